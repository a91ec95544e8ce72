// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers of a piece by their places in the whole tensor, to compare the ranks' pieces with one rank.
//
//   const std::vector<double> x = numbers_of_piece(piece, {0, 0, first_row, 0}, whole, 0.1);
//   CHECK(testing::detail::distance(x, piece_of_whole(all, piece, {0, 0, first_row, 0}, whole)) == 0);

#include <cmath>
#include <cstddef>
#include <vector>

#include <weft/tensor/shape.hpp>

namespace weft_test {

/// f(place in the piece, place in the whole) of a piece whose first element is at `first`, slowest dim first.
template <class F>
void for_each_place(const weft::Shape& piece, const std::vector<std::size_t>& first, const weft::Shape& whole, F&& f) {
  for (std::size_t i = 0; i < piece.size(); ++i) {
    std::size_t rest = i, there = 0, stride = 1;
    for (std::size_t dim = piece.rank(); dim-- > 0;) {
      there += (rest % piece[dim] + first[dim]) * stride;
      rest /= piece[dim], stride *= whole[dim];
    }
    f(i, there);
  }
}
/// Numbers that depend on `shift` and on the places in the whole.
inline std::vector<double> numbers_of_piece(const weft::Shape& piece, const std::vector<std::size_t>& first,
                                            const weft::Shape& whole, double shift) {
  std::vector<double> all(piece.size());
  for_each_place(piece, first, whole,
                 [&](std::size_t i, std::size_t there) { all[i] = std::sin(double(there) * double(there) * 0.37 + shift); });
  return all;
}
/// The piece's elements of the whole.
inline std::vector<double> piece_of_whole(const std::vector<double>& of, const weft::Shape& piece,
                                          const std::vector<std::size_t>& first, const weft::Shape& whole) {
  std::vector<double> all(piece.size());
  for_each_place(piece, first, whole, [&](std::size_t i, std::size_t there) { all[i] = of[there]; });
  return all;
}

}  // namespace weft_test
