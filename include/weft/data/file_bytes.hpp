// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bytes of a file, mapped into memory: pages are read on first use, and the ranks of a computer share them. Only regular
// files are accepted: a FIFO would wait for a writer, and a folder or a device has no size. A file must not shrink while it is
// mapped: the system kills a program that reads past its end.
//
//   const auto file = detail::FileBytes::open("train.bin");
//   file->bytes().size();

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/data_identity.hpp>
#include <weft/core/scalar.hpp>

namespace weft::data::detail {

/// Throws UsageError: "data: cannot read 'FILE': REASON".
[[noreturn]] void refuse_file(std::string_view file, weft::detail::Words reason);

class FileBytes {
 public:
  /// Throws UsageError if the file is missing, unreadable, empty or no regular file.
  static std::shared_ptr<const FileBytes> open(const std::string& file);
  /// The same for a plain file, or the decompressed contents of a gzip file.
  static std::shared_ptr<const FileBytes> open_unzipped(const std::string& file);
  /// Bytes of the program under the name of a file.
  static std::shared_ptr<const FileBytes> from_bytes(std::string file, std::vector<std::uint8_t> bytes);

  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes();

  std::span<const std::uint8_t> bytes() const { return bytes_; }
  const std::string& file() const { return file_; }

 private:
  explicit FileBytes(std::string file) : file_(std::move(file)) {}

  std::string file_;
  std::span<const std::uint8_t> bytes_;
  std::vector<std::uint8_t> owned_;
  void* mapped_ = nullptr;
};

/// The type of a file's elements, and its usual name. Kinds: 'i', 'u', 'f', 'b' (bool).
struct ElementType {
  char kind = 0;
  std::size_t bytes = 0;
  friend bool operator==(const ElementType&, const ElementType&) = default;
  std::string text() const;
};

/// The type of T's elements; kind 0 if files have no such type.
template <class T>
constexpr ElementType element_type_of() {
  if constexpr (std::is_floating_point_v<T> && sizeof(T) <= 8) return {'f', sizeof(T)};
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return {std::is_signed_v<T> ? 'i' : 'u', sizeof(T)};
  else if constexpr (requires(T half) { half.bits; } && std::is_same_v<T, float16>) return {'f', 2};
  else return {};
}

/// The elements of an array in a file, [shape...], in this computer's row-major order. Shares the file's memory.
class FileArray {
 public:
  const std::string& file() const { return bytes_->file(); }
  /// The extents; the first one is the number of samples.
  const std::vector<std::size_t>& shape() const { return shape_; }
  std::size_t size() const { return size_; }
  ElementType type() const { return type_; }
  std::string shape_text() const;

  /// All elements. Throws UsageError if the file's type is not T.
  template <class T>
  std::span<const T> values() const {
    static_assert(element_type_of<T>().kind != 0,
                  "weft: files have no elements of this type: ask for float, double, std::int32_t, std::uint8_t, ...");
    require(element_type_of<T>());
    return {reinterpret_cast<const T*>(elements_), size_};
  }
  /// The identity of the elements; a compressed file has the same one.
  DataIdentity identity() const { return {file(), elements_, size_ * type_.bytes}; }
  /// Keeps the elements alive.
  std::shared_ptr<const void> owner() const { return bytes_; }

 protected:
  /// `place`: position of the first element in the file. `swapped`: elements have the opposite byte order. Throws UsageError
  /// unless the file ends with the last element.
  FileArray(std::shared_ptr<const FileBytes> bytes, std::size_t place, std::vector<std::size_t> shape, ElementType type,
            bool swapped);

 private:
  void require(ElementType wanted) const;

  std::shared_ptr<const FileBytes> bytes_;
  std::vector<std::size_t> shape_;
  std::size_t size_ = 0;
  ElementType type_;
  const std::uint8_t* elements_ = nullptr;
};

}  // namespace weft::data::detail

#ifndef WEFT_COMPILED
#include <weft/data/file_bytes_impl.hpp>
#endif
