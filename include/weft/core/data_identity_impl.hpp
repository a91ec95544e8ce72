// SPDX-License-Identifier: Apache-2.0
#pragma once
// The digest and the text of data. Definitions for core/data_identity.hpp.

#include <charconv>

#include <weft/core/data_identity.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>

namespace weft {

namespace detail {

// The shortest text that reads back as the number.
inline std::string shortest_text(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace detail

WEFT_INLINE DataIdentity::DataIdentity(std::string called, const void* data, std::size_t count)
    : name(std::move(called)), files(1), bytes(count) {
  const char* const first = static_cast<const char*>(data);
  detail::for_each_sampled_block(count, [&](std::size_t place, std::size_t some) {
    digest = detail::hash_bytes(first + place, some, digest);
    return true;
  });
}

WEFT_INLINE void DataIdentity::add(const DataIdentity& next) {
  if (files == 0) name = next.name, digest = next.digest;
  else digest = detail::hash_of(detail::hash_step(0, digest), next.digest);  // hash_of is symmetric in its arguments
  files += next.files;
  bytes += next.bytes;
  for (const auto& one : next.settings)
    if (std::find(settings.begin(), settings.end(), one) == settings.end()) add(one.first, one.second);
}

WEFT_INLINE void DataIdentity::add(const std::string& setting, const std::string& value) {
  const auto at = std::find_if(settings.begin(), settings.end(), [&](const auto& one) { return one.first == setting; });
  if (at == settings.end()) settings.emplace_back(setting, value);
  else at->second += ", " + value;
}
WEFT_INLINE void DataIdentity::set(const std::string& setting, const std::string& value) {
  const auto at = std::find_if(settings.begin(), settings.end(), [&](const auto& one) { return one.first == setting; });
  if (at == settings.end()) settings.emplace_back(setting, value);
  else at->second = value;
}
WEFT_INLINE void DataIdentity::add(const std::string& setting, double value) { add(setting, detail::shortest_text(value)); }
WEFT_INLINE void DataIdentity::set(const std::string& setting, double value) { set(setting, detail::shortest_text(value)); }

WEFT_INLINE std::string DataIdentity::digest_text() const {
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[i] = "0123456789abcdef"[digest >> (60 - 4 * i) & 15];
  return text;
}
WEFT_INLINE std::string DataIdentity::files_text() const {
  return files > 1 ? detail::joined({name, " and ", files - 1, files == 2 ? " more file" : " more files"}) : name;
}
WEFT_INLINE std::string DataIdentity::text() const {
  return detail::joined({detail::shown(files_text()), " (", bytes, " bytes, digest ", digest_text(), ")"});
}

}  // namespace weft
