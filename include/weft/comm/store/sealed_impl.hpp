// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/sealed.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/sealed.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

/// The key of one direction.
inline Digest key_of_messages(const Digest& link, bool from_store) {
  return hmac_sha256(letters(link), from_store ? "messages of the store" : "messages of a rank");
}

WEFT_INLINE Sealed::Sealed(const Digest& key, Side side)
    : out_(letters(key_of_messages(key, side == Side::store))), in_(letters(key_of_messages(key, side == Side::rank))) {}

WEFT_INLINE void Sealed::seal(std::string_view text, std::string& to) {
  FrameSeal::Code code;
  const FrameSeal::Head head = out_.seal({FrameKind::data, 0, text.size()}, code);
  to.append(head.data(), head.size());
  to += text;
  to.append(FrameSeal::tail_of(code), FrameSeal::code_bytes);
}

WEFT_INLINE std::optional<std::string> Sealed::open() {
  if (!head_) {
    in_.expect_mark(bytes_.data(), bytes_.size());
    if (bytes_.size() < FrameSeal::head_bytes) return std::nullopt;
    const Frame frame = in_.open(bytes_.data(), code_);
    if (frame.kind != FrameKind::data || frame.slot != 0 || frame.length > most)
      throw InvalidFrame(weft::detail::joined({"it announces a message of ", frame.length, " bytes, at most ", most}));
    bytes_.erase(0, FrameSeal::head_bytes);
    head_ = frame;
  }
  if (bytes_.size() < head_->length + FrameSeal::code_bytes) return std::nullopt;
  in_.close(bytes_.data() + head_->length, code_);
  std::string text = bytes_.substr(0, head_->length);
  bytes_.erase(0, head_->length + FrameSeal::code_bytes);
  head_.reset();
  return text;
}

}  // namespace weft::comm::store
