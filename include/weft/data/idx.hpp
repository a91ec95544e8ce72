// SPDX-License-Identifier: Apache-2.0
#pragma once
// IDX files, the format of MNIST and similar datasets, plain or with gzip: two zero bytes, the type, the number of dims, the
// extents and the elements, all big-endian. Debian's dataset-fashion-mnist has four of them in /usr/share/datasets/fashion-mnist.
//
//   const auto images = data::Idx::open("train-images-idx3-ubyte.gz");   // [60000, 28, 28]
//   images.values<std::uint8_t>();

#include <string>

#include <weft/data/file_bytes.hpp>

namespace weft::data {

/// An array in an IDX file.
class Idx : public detail::FileArray {
 public:
  /// Throws UsageError, with the file's name, if it cannot be read, is no IDX file, or does not have the length in its header.
  static Idx open(const std::string& file);
  /// The same for bytes in memory; `file` is their name in messages.
  static Idx from_bytes(const std::string& file, std::vector<std::uint8_t> bytes) {
    return Idx(detail::FileBytes::from_bytes(file, std::move(bytes)));
  }

 private:
  struct Header {
    detail::ElementType type;
    std::vector<std::size_t> shape;
  };
  explicit Idx(const std::shared_ptr<const detail::FileBytes>& bytes) : Idx(bytes, read(*bytes)) {}
  Idx(const std::shared_ptr<const detail::FileBytes>& bytes, const Header& header)
      : FileArray(bytes, 4 + 4 * header.shape.size(), header.shape, header.type, header.type.bytes > 1) {}
  static Header read(const detail::FileBytes& bytes);
};

}  // namespace weft::data

#ifndef WEFT_COMPILED
#include <weft/data/idx_impl.hpp>
#endif
