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

WEFT_COLD WEFT_INLINE void refuse_cut(std::string_view name, std::string_view file, const Shape& sample, std::size_t dim,
                                      std::string_view axis, std::size_t degree) {
  const std::string one = sample.text();
  throw_error<ShapeError>({"data: field ", name, ": '", file, "' has samples of ", one, ", of which ", axis, "(", degree,
                           ") cannot cut dim ", dim, ": each rank needs one place at least"});
}

WEFT_COLD WEFT_INLINE void refuse_piece(std::string_view name, std::string_view file, const Shape& sample, const Shape& piece,
                                        const Shape& whole, std::string_view ranks) {
  const std::string one = sample.text(), wanted = piece.text(), all = whole.text();
  throw_error<ShapeError>({"data: field ", name, ": '", file, "' has samples of ", one, ", and ", ranks, " has ", wanted, " of ",
                           all, ": pieces are as even as possible, longer ones first"});
}

WEFT_COLD WEFT_INLINE void refuse_whole_file(std::string_view name, std::string_view file, std::string_view shape) {
  throw_error<UsageError>({"data: field ", name, ": domain axes cut it, and '", file, "' ", shape,
                           " may be the whole or a piece: give the mesh, data::array<field>(mesh, file), and for a piece the "
                           "shape of a whole sample, data::array<field>(mesh, file, data::PieceOf{{...}})"});
}

WEFT_INLINE Shape sample_shape(std::string_view name, std::string_view file, const std::vector<std::size_t>& shape) {
  if (shape.empty() || shape.size() > Shape::max_rank + 1)
    throw_error<ShapeError>({"data: field ", name, ": '", file, "' has ", shape.size(), " dims; samples, and up to ",
                             Shape::max_rank, " of a sample, are 1 to ", Shape::max_rank + 1});
  return Shape::of(std::span(shape).subspan(1));
}

}  // namespace weft::data::detail
