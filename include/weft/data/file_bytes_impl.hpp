// SPDX-License-Identifier: Apache-2.0
#pragma once
// The mapping of files, and the checks of their arrays. Definitions for data/file_bytes.hpp.

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include <weft/core/inline.hpp>
#include <weft/core/input_file.hpp>
#include <weft/data/file_bytes.hpp>
#include <weft/data/gzip.hpp>

namespace weft::data::detail {

WEFT_COLD WEFT_INLINE void refuse_file(std::string_view file, weft::detail::Words reason) {
  throw_error<UsageError>({"data: cannot read '", file, "': ", weft::detail::joined(reason)});
}

WEFT_INLINE std::shared_ptr<const FileBytes> FileBytes::open(const std::string& file) {
  constexpr std::uint64_t most = std::uint64_t(1) << 43;  // 8 TiB: pages are read on first use
  const weft::detail::InputFile opened("data", file, "file", most);
  const std::size_t size = opened.size();
  if (size == 0) refuse_file(file, {"it is empty (0 bytes)"});
  std::shared_ptr<FileBytes> bytes(new FileBytes(file));
  void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, opened.descriptor(), 0);
  if (mapped == MAP_FAILED) refuse_file(file, {std::strerror(errno)});
  bytes->mapped_ = mapped;
  bytes->bytes_ = {static_cast<const std::uint8_t*>(mapped), size};
  return bytes;
}

WEFT_INLINE std::shared_ptr<const FileBytes> FileBytes::open_unzipped(const std::string& file) {
  auto bytes = open(file);
  if (!is_gzip(bytes->bytes())) return bytes;
  return from_bytes(file, unzip(file, bytes->bytes()));
}

WEFT_INLINE std::shared_ptr<const FileBytes> FileBytes::from_bytes(std::string file, std::vector<std::uint8_t> bytes) {
  std::shared_ptr<FileBytes> made(new FileBytes(std::move(file)));
  made->owned_ = std::move(bytes);
  made->bytes_ = made->owned_;
  return made;
}

WEFT_INLINE FileBytes::~FileBytes() {
  if (mapped_ != nullptr) ::munmap(mapped_, bytes_.size());
}

WEFT_INLINE std::string ElementType::text() const {
  const char* const name = kind == 'f' ? "float" : kind == 'i' ? "int" : kind == 'u' ? "uint" : "bool";
  return kind == 'b' ? std::string(name) : weft::detail::joined({name, bytes * 8});
}

WEFT_INLINE FileArray::FileArray(std::shared_ptr<const FileBytes> bytes, std::size_t place, std::vector<std::size_t> shape,
                                 ElementType type, bool swapped)
    : bytes_(std::move(bytes)), shape_(std::move(shape)), type_(type) {
  const std::span<const std::uint8_t> all = bytes_->bytes();
  const std::size_t there = all.size() - place;  // the caller has checked that `place` is within the file
  // A file may contain any extents: their product may overflow, and one may be zero.
  std::size_t needed = type_.bytes;
  bool fits = true;
  for (const std::size_t extent : shape_) {
    fits = fits && (extent == 0 || needed <= std::numeric_limits<std::size_t>::max() / 2 / extent);
    if (fits) needed *= extent;
  }
  if (!fits)
    refuse_file(file(), {"its shape ", shape_text(), " of ", type_.text(), " is more than can be counted, the file has ",
                         all.size(), " bytes"});
  if (needed != there)
    refuse_file(file(), {needed > there ? "it is cut off: " : "it is too long: ", "its shape ", shape_text(), " of ",
                         type_.text(), " needs ", needed, " bytes behind the header's ", place, ", the file has ", there});
  if (needed == 0) refuse_file(file(), {"its shape ", shape_text(), " has no elements"});
  size_ = needed / type_.bytes;
  elements_ = all.data() + place;
  if (!swapped && reinterpret_cast<std::uintptr_t>(elements_) % type_.bytes == 0) return;
  std::vector<std::uint8_t> own(elements_, elements_ + needed);
  if (swapped)
    for (std::size_t at = 0; at < needed; at += type_.bytes)
      std::reverse(own.begin() + static_cast<std::ptrdiff_t>(at), own.begin() + static_cast<std::ptrdiff_t>(at + type_.bytes));
  bytes_ = FileBytes::from_bytes(file(), std::move(own));
  elements_ = bytes_->bytes().data();
}

WEFT_INLINE std::string FileArray::shape_text() const {
  std::string text = "[";
  for (std::size_t i = 0; i < shape_.size(); ++i) weft::detail::append_to(text, {i ? ", " : "", shape_[i]});
  return text += ']';
}

WEFT_INLINE void FileArray::require(ElementType wanted) const {
  if (wanted != type_) refuse_file(file(), {"its elements are ", type_.text(), ", ", wanted.text(), " was asked for"});
}

}  // namespace weft::data::detail
