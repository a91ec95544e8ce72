// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/process.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/process.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE void Process::put(const std::string& key, const std::string& bytes) {
  const std::size_t rest = bytes.size() <= piece ? 0 : (bytes.size() - 1) / piece;
  for (std::size_t k = rest; k > 0; --k)
    client.set(weft::detail::joined({key, "/", k}), std::string_view(bytes).substr(k * piece, piece), soon());
  std::string first;
  store::put(first, std::uint32_t(rest));
  client.set(key, first += std::string_view(bytes).substr(0, piece), soon());
}

WEFT_INLINE std::optional<std::string> Process::take(const std::string& key) {
  auto found = client.take(key, soon());
  if (!found) return std::nullopt;
  if (found->size() < 4) throw_error<StoreError>({"the store holds nothing sensible under '", key, "'"});
  std::string bytes = found->substr(4);
  const std::uint32_t rest = number_at(*found, 0);
  for (std::uint32_t k = 1; k <= rest; ++k) {
    const auto next = client.take(weft::detail::joined({key, "/", k}), soon());
    if (!next) throw_error<StoreError>({"the store has lost a part of '", key, "'"});
    bytes += *next;
  }
  return bytes;
}

WEFT_INLINE std::string Process::failure() {
  // A store that stands still answers nothing.
  if (heart && heart->lost() == 0 && rank() != 0) return heart->fate();
  if (client.has("failed", soon())) return *client.get("failed", soon());
  if (client.has("lost", soon()))
    return weft::detail::joined({"rank ", *client.get("lost", soon()), " is lost, its process ended or its connection broke"});
  if (heart && heart->lost() >= 0 && heart->lost() != rank()) return heart->fate();
  return {};
}

}  // namespace weft::comm::store
