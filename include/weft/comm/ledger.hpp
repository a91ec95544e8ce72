// SPDX-License-Identifier: Apache-2.0
#pragma once
// The account of the calls that a process has begun on one communicator. It shows whether another rank waits for this one
// (comm/watch.hpp), and which messages were sent and never received.
//
//   ledger.collective(call);
//   const std::uint64_t number = ledger.message(true, to, tag, call);

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/comm/operation.hpp>

namespace weft::comm {

/// A call that a rank waits for another one to make, in numbers that are the same on both.
struct Step {
  std::uint64_t channel = 0;  ///< the communicator's number
  std::uint64_t number = 0;   ///< of the collective on the communicator, or of the message between the two ranks with this tag
  std::uint64_t signature = 0, count = 0, counts = 0;
  std::int32_t tag = 0;
  enum Kind : std::uint32_t { collective, send, receive } kind = collective;  ///< the call that the other rank has to make
};

class Ledger {
 public:
  /// The messages with one tag to or from one rank (its number in the world).
  struct Messages {
    std::int32_t peer, tag;
    bool sent;
    std::uint64_t begun;
    std::uint64_t signature, count;  // of the newest
  };

  Ledger(std::uint64_t channel, std::string axis) : channel_(channel), axis_(std::move(axis)) {}

  std::uint64_t channel() const { return channel_; }
  const std::string& axis() const { return axis_; }
  /// Notes a collective; returns its number, from 1.
  std::uint64_t collective(const Call& call);
  /// Notes a message to or from `peer`; returns its number, from 1.
  std::uint64_t message(bool sent, int peer, const Call& call);

  /// True if this rank has made the call that `peer` waits for.
  bool has(const Step& step, int peer) const;
  /// The collective that this rank made under that number, as {signature, count, counts}; zeros if it is long past.
  std::array<std::uint64_t, 3> at(std::uint64_t number) const;
  const std::vector<Messages>& messages() const { return messages_; }

 private:
  static constexpr std::size_t kept = 64;
  static std::uint64_t key(bool sent, int peer, int tag) {
    return std::uint64_t(sent) << 63 | std::uint64_t(std::uint32_t(peer)) << 32 | std::uint32_t(tag);
  }

  std::uint64_t channel_, collectives_ = 0;
  std::string axis_;
  std::vector<std::array<std::uint64_t, 3>> last_;  // collectives, by number modulo `kept`
  std::vector<Messages> messages_;
  std::unordered_map<std::uint64_t, std::size_t> places_;  // in messages_: of few pairs, or of a program that counts its tags up
};

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/ledger_impl.hpp>
#endif
