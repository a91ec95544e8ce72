// SPDX-License-Identifier: Apache-2.0
#pragma once
// The error of a checkpoint's files: the file, the tensor and the byte, so that a script can distinguish a damaged file from a
// full disk without parsing a message.
//
//   try { checkpoint::load(folder, model, optimizer); } catch (const checkpoint::Error& error) { error.file(); }

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace weft::checkpoint {

/// The place of a fault. `offset` is a byte of the file, or `nowhere`.
struct Place {
  static constexpr std::uint64_t nowhere = ~std::uint64_t(0);
  std::string file = {};
  std::string tensor = {};
  std::uint64_t offset = nowhere;
};

/// An error of a checkpoint's file. Exit code 2: the file is damaged, foreign, missing or unusable. Exit code 1: the disk is full
/// or the device fails. Model, optimizer and earlier checkpoints are unchanged. All ranks throw it, with the text of the first
/// rank that failed.
class Error : public weft::Error {
 public:
  explicit Error(const std::string& what, Place place = {}, int exit_code = 2)
      : weft::Error(what, exit_code), place_(std::move(place)) {}
  const std::string& file() const { return place_.file; }
  const std::string& tensor() const { return place_.tensor; }
  std::uint64_t offset() const { return place_.offset; }

 private:
  Place place_;
};

namespace detail {

using weft::detail::shown;

/// A shape as messages show it, [4, 16].
inline std::string shape_text(const std::vector<std::size_t>& shape) {
  std::string text = "[";
  for (std::size_t dim = 0; dim < shape.size(); ++dim) weft::detail::append_to(text, {dim ? ", " : "", shape[dim]});
  return text += "]";
}

/// Throws an Error that names the place and `what` is wrong: "checkpoint: FILE: tensor T: byte B: what".
[[noreturn]] WEFT_COLD inline void refuse(const Place& place, weft::detail::Words what, int exit_code = 2) {
  constexpr std::size_t longest_path = 4096;  // keeps the end of a longer path, which has the file's name
  std::string text = "checkpoint: " + shown(place.file, longest_path);
  if (!place.tensor.empty()) text += ": tensor " + shown(place.tensor, 256);
  if (place.offset != Place::nowhere) weft::detail::append_to(text, {": byte ", place.offset});
  text += ": ";
  weft::detail::append_to(text, what);
  throw Error(text, place, exit_code);
}

}  // namespace detail

}  // namespace weft::checkpoint
