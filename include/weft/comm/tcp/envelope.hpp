// SPDX-License-Identifier: Apache-2.0
#pragma once
// The envelope with which every message of a mesh begins: the sender's call, so that a receiver finds out that the
// two made different calls before it takes any data. Apart from the connections, so that it can be fuzzed without any.
//
//   const Head found = read_head(bytes);
//   if (!fits(found, expected)) refuse(describe(found.signature, found.count));

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <weft/comm/operation.hpp>
#include <weft/comm/shared_memory/peer_heaps.hpp>

namespace weft::comm::tcp {

/// The sender's call, the length of this message, and the number of its payload.
struct Head {
  std::uint64_t signature = 0, count = 0, bytes = 0, payload = 0;
  shared_memory::HeapPlace place = {};  ///< of the bytes, if the receiver copies them from the sender's heap
};
inline constexpr std::size_t eager = 32768;  ///< bytes that travel with the envelope

/// The envelope at the beginning of a received message, of which nothing is known yet.
inline Head read_head(const char* message) {
  Head head;
  std::memcpy(&head, message, sizeof head);
  return head;
}

/// True if the sender made the call that this rank expects. The number of copied bytes is the receiver's, never the sender's.
constexpr bool fits(const Head& found, const Head& expected) {
  return same_call(found.signature, expected.signature) && found.count == expected.count && found.bytes == expected.bytes;
}

}  // namespace weft::comm::tcp
