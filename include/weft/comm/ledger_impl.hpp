// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/ledger.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/ledger.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm {

WEFT_INLINE std::uint64_t Ledger::collective(const Call& call) {
  if (last_.empty()) last_.resize(kept);
  ++collectives_;
  last_[collectives_ % kept] = {signature(call), call.count, digest_of_counts(call)};
  return collectives_;
}

WEFT_INLINE std::uint64_t Ledger::message(bool sent, int peer, const Call& call) {
  const auto [place, first] = places_.try_emplace(key(sent, peer, call.tag), messages_.size());
  if (first) messages_.push_back({peer, call.tag, sent, 0, 0, 0});
  Messages& messages = messages_[place->second];
  messages.signature = signature(call);
  messages.count = call.count;
  return ++messages.begun;
}

WEFT_INLINE bool Ledger::has(const Step& step, int peer) const {
  if (step.kind == Step::collective) return collectives_ >= step.number;
  const auto known = places_.find(key(step.kind == Step::send, peer, step.tag));
  return known != places_.end() && messages_[known->second].begun >= step.number;
}

WEFT_INLINE std::array<std::uint64_t, 3> Ledger::at(std::uint64_t number) const {
  if (number == 0 || number > collectives_ || collectives_ - number >= kept) return {};
  return last_[number % kept];
}

}  // namespace weft::comm
