// SPDX-License-Identifier: Apache-2.0
#pragma once
// NumPy files of one array, .npy (versions 1 to 3), mapped into memory: np.save("fields.npy", array). Arrays of float16 to
// float64 and integers, in C order and this computer's byte order, are used in place. Others, and pickled objects, are refused.
//
//   const auto fields = data::Npy::open("fields.npy");   // [samples, ...]
//   fields.values<float>();

#include <string>

#include <weft/data/file_bytes.hpp>

namespace weft::data {

/// An array in a .npy file.
class Npy : public detail::FileArray {
 public:
  /// Throws UsageError, with the file's name, if it cannot be read, is no .npy file of plain numbers in C order, or does not have
  /// the length in its header.
  static Npy open(const std::string& file);
  /// The same for bytes in memory; `file` is their name in messages.
  static Npy from_bytes(const std::string& file, std::vector<std::uint8_t> bytes) {
    return Npy(detail::FileBytes::from_bytes(file, std::move(bytes)));
  }

 private:
  struct Header {
    std::size_t bytes = 0;
    detail::ElementType type;
    std::vector<std::size_t> shape;
  };
  explicit Npy(const std::shared_ptr<const detail::FileBytes>& bytes) : Npy(bytes, read(*bytes)) {}
  Npy(const std::shared_ptr<const detail::FileBytes>& bytes, const Header& header)
      : FileArray(bytes, header.bytes, header.shape, header.type, false) {}
  static Header read(const detail::FileBytes& bytes);
};

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/npy_impl.hpp>
#endif
