// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks of arrays' shapes. Definitions for data/arrays.hpp.

#include <weft/core/inline.hpp>
#include <weft/data/arrays.hpp>

namespace weft::data::detail {

WEFT_COLD WEFT_INLINE void refuse_array_shape(std::string_view name, const Shape& of_array, const Shape& wanted) {
  const std::string one = of_array.text(), other = wanted.text();
  throw_error<ShapeError>(
      {"data: field ", name, ": the array's samples are ", one, ", which are not as many elements as ", other});
}

WEFT_COLD WEFT_INLINE void refuse_array_samples(std::string_view name, std::size_t samples, std::string_view other,
                                                std::size_t expected) {
  throw_error<ShapeError>({"data: field ", name, " has ", samples, " samples, field ", other, " has ", expected});
}

WEFT_INLINE Shape sample_shape(std::string_view name, std::string_view file, const std::vector<std::size_t>& shape) {
  if (shape.empty() || shape.size() > Shape::max_rank + 1)
    throw_error<ShapeError>({"data: field ", name, ": '", file, "' has ", shape.size(), " dims; samples, and up to ",
                             Shape::max_rank, " of a sample, are 1 to ", Shape::max_rank + 1});
  return Shape::of(std::span(shape).subspan(1));
}

}  // namespace weft::data::detail
