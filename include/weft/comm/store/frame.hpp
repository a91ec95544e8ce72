// SPDX-License-Identifier: Apache-2.0
#pragma once
// Frames: the units of bytes on a connection between two ranks, or between a rank and the store. Each begins with a head whose
// counter and HMAC show that the peer sent it, here and in this order; each frame of data ends with further bytes of the same
// HMAC, so that bytes which were inserted or lost inside of the data are found before the message counts as received. Apart from
// the connections, so that it can be fuzzed without any.
//
//   FrameSeal out(key), in(key);                                         // one for each direction of a connection
//   FrameSeal::Code code;  auto head = out.seal(frame, code);            // sends head, data, tail_of(code)
//   Frame frame = in.open(head.data(), code);                            // throws InvalidFrame

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include <weft/comm/store/sha256.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::store {

/// ready: the sender has memory for one message of at most `length` bytes in this slot. data: such a message.
enum class FrameKind : std::uint32_t { ready = 1, data = 2 };

struct Frame {
  FrameKind kind;
  std::uint64_t slot, length;
};

/// Received bytes that are no frame. The text gives the frame and the reason, not the sender.
class InvalidFrame : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Writes or reads the heads of one direction of one connection.
class FrameSeal {
 public:
  static constexpr std::size_t code_bytes = 16, head_bytes = 48;
  using Code = Digest;  ///< the first half ends the head, the second half the frame
  using Head = std::array<char, head_bytes>;

  explicit FrameSeal(std::string_view key) : hmac_(key) {}

  /// The head of the next frame.
  Head seal(const Frame& frame, Code& code) {
    const Plain plain{mark, frame.kind, next_++, frame.slot, frame.length};
    Head head;
    std::memcpy(head.data(), &plain, sizeof plain);
    code = hmac_({head.data(), sizeof plain});
    std::memcpy(head.data() + sizeof plain, code.data(), code_bytes);
    return head;
  }

  /// Throws InvalidFrame if the first `length` bytes of a head, which may be incomplete, are not those of a frame.
  void expect_mark(const char* head, std::size_t length) const {
    if (std::memcmp(head, &mark, std::min(length, sizeof mark)) != 0) refuse("does not begin as a frame");
  }
  /// The next frame. Throws InvalidFrame if the head is not the one that the peer's seal makes next.
  Frame open(const char* head, Code& code) {
    Plain plain;
    std::memcpy(&plain, head, sizeof plain);
    expect_mark(head, head_bytes);
    code = hmac_({head, sizeof plain});
    if (!same(head + sizeof plain, code.data())) refuse("has a wrong authentication code");
    if (plain.counter != next_) refuse("is numbered ", plain.counter);
    if (plain.kind != FrameKind::ready && plain.kind != FrameKind::data)
      refuse("is of the unknown kind ", std::uint32_t(plain.kind));
    ++next_;
    return {plain.kind, plain.slot, plain.length};
  }
  static const char* tail_of(const Code& code) { return reinterpret_cast<const char*>(code.data()) + code_bytes; }
  /// Throws InvalidFrame if the data of the last frame that was opened does not end with these bytes.
  void close(const char* tail, const Code& code) const {
    if (!same(tail, code.data() + code_bytes))
      throw InvalidFrame(
          weft::detail::joined({"frame ", next_ - 1, " ends with wrong bytes: some were inserted or are missing"}));
  }

 private:
  static constexpr std::uint32_t mark = 0x77656674;
  struct Plain {
    std::uint32_t mark;
    FrameKind kind;
    std::uint64_t counter, slot, length;
  };
  static_assert(sizeof(Plain) + code_bytes == head_bytes && std::has_unique_object_representations_v<Plain>);

  template <class... Why>
  [[noreturn]] void refuse(const Why&... why) const {
    throw InvalidFrame(weft::detail::joined({"frame ", next_, " ", why...}));
  }
  /// Takes the same time wherever the codes differ.
  static bool same(const char* found, const unsigned char* code) {
    unsigned difference = 0;
    for (std::size_t i = 0; i < code_bytes; ++i) difference |= static_cast<unsigned char>(found[i]) ^ unsigned(code[i]);
    return difference == 0;
  }

  Hmac hmac_;
  std::uint64_t next_ = 0;
};

}  // namespace weft::comm::store
