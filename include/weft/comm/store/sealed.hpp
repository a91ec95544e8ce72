// SPDX-License-Identifier: Apache-2.0
#pragma once
// The messages between a rank and the store, after the handshake: each is a frame of data, so that foreign bytes on the
// connection are found at once, and not taken for a request, a reply or a heartbeat.
//
//   Sealed mine(link.key, Sealed::Side::rank);             // the store: Sealed::Side::store
//   mine.seal(request(Op::has, 1, "key", {}), outgoing);   // appends the bytes to send
//   mine.add(received);
//   while (auto text = mine.open()) ...                    // throws InvalidFrame

#include <optional>
#include <string>
#include <string_view>

#include <weft/comm/store/frame.hpp>
#include <weft/comm/store/protocol.hpp>

namespace weft::comm::store {

class Sealed {
 public:
  enum class Side { store, rank };
  /// The longest message.
  static constexpr std::size_t most = request_bytes + most_key + most_value;

  /// `key` is that of the connection (Link).
  Sealed(const Digest& key, Side side);

  /// Appends the frame of one message. All frames must be sent, in the order of the calls. Allocates nothing if `to` has room.
  void seal(std::string_view text, std::string& to);
  /// Adds received bytes. The caller takes all messages out before it adds more.
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next message, or nothing if more bytes are needed. Throws InvalidFrame as soon as the bytes cannot be the peer's.
  std::optional<std::string> open();

 private:
  FrameSeal out_, in_;
  FrameSeal::Code code_{};
  std::optional<Frame> head_;  // of the frame whose other bytes have not all come
  std::string bytes_;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/sealed_impl.hpp>
#endif
