// SPDX-License-Identifier: Apache-2.0
#pragma once
// The contents of a gzip file (RFC 1951 and 1952), the usual compression of published datasets. The decoder is short and saves a
// dependency. It refuses damaged files: it checks every length, and the checksum at the end.
//
//   if (detail::is_gzip(bytes)) bytes = detail::unzip("labels.gz", bytes);

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::data::detail {

inline bool is_gzip(std::span<const std::uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

/// The decompressed bytes of all members of a gzip file. Throws UsageError, with the file's name, if it is damaged or truncated.
std::vector<std::uint8_t> unzip(std::string_view file, std::span<const std::uint8_t> bytes);

}  // namespace weft::data::detail

#ifndef WEFT_COMPILED
#include <weft/data/gzip_impl.hpp>
#endif
