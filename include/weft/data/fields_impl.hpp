// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for data/fields.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <limits>

#include <weft/core/inline.hpp>
#include <weft/data/fields.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE void refuse_field_length(std::string_view name, std::size_t values, const Shape& shape) {
  const std::string of_one = shape.text();
  throw_error<ShapeError>({"batch: field ", name, " has ", values, " values, which are not whole samples of ", of_one});
}

WEFT_COLD WEFT_INLINE void refuse_field_samples(std::string_view name, std::size_t samples, const Shape& shape,
                                                std::size_t expected) {
  const std::string of_one = shape.text();
  throw_error<ShapeError>({"batch: field ", name, " has ", samples, " samples of ", of_one, ", the batch has ", expected});
}

WEFT_COLD WEFT_INLINE void refuse_micro_batches(std::size_t samples, std::size_t micro_batches) {
  throw_error<ShapeError>({"batch: samples(", samples, ") % micro-batches(", micro_batches,
                           ") != 0: every micro-batch holds the same number of whole samples"});
}

WEFT_COLD WEFT_INLINE void refuse_label(std::string_view name, std::string_view label, std::size_t sample, std::size_t classes) {
  throw_error<UsageError>({"batch: field ", name, ": label(", label, ") of sample ", sample, " is not in classes(", classes,
                           "), 0 to ", classes - 1});
}

WEFT_COLD WEFT_INLINE void refuse_field_part(std::string_view name, std::size_t first, std::size_t count, std::size_t samples) {
  throw_error<ShapeError>({"batch: field ", name, " has ", samples, " samples: there are not ", count, " from ", first, " on"});
}

WEFT_COLD WEFT_INLINE void refuse_view_to_write(std::string_view name) {
  throw_error<UsageError>({"batch: field ", name,
                           " is a view of the program's own memory, which weft does not write: resize() gives ",
                           "memory of the batch"});
}

WEFT_INLINE std::size_t field_length(std::string_view name, std::size_t samples, const Shape& shape) {
  constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / 8;  // of 8 bytes each
  std::size_t product = samples;
  bool fits = true;
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) {
    fits = fits && (shape[dim] == 0 || product <= most / shape[dim]);
    product *= shape[dim];
  }
  const std::string of_one = fits && product <= most ? std::string() : shape.text();
  if (!of_one.empty())
    throw_error<ShapeError>({"batch: field ", name, ": ", samples, " samples of ", of_one, " are too many values to count"});
  return product;
}

}  // namespace weft::detail
