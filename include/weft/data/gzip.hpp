// SPDX-License-Identifier: Apache-2.0
#pragma once
// The contents of a gzip file, the usual compression of published datasets, decompressed by zlib.
//
//   if (detail::is_gzip(bytes)) bytes = detail::unzip("labels.gz", bytes);

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::data::detail {

inline bool is_gzip(std::span<const std::uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

/// The decompressed bytes of all members of a gzip file. Throws UsageError, with the file's name, if it is damaged, truncated or
/// larger than half of the machine's memory, or if the program was built without zlib.
std::vector<std::uint8_t> unzip(std::string_view file, std::span<const std::uint8_t> bytes);

}  // namespace weft::data::detail

#ifndef WEFT_COMPILED
#include <weft/data/gzip_impl.hpp>
#endif
