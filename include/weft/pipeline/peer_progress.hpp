// SPDX-License-Identifier: Apache-2.0
#pragma once
// The progress of a pipeline's other ranks as a rehearsed rank can infer it. A message from a rank shows which of its actions are
// complete, and hence which messages it has received. Until then, late messages keep their buffers.
//
//   peers.received(message);
//   if (peers.taken(other)) ...

#include <algorithm>
#include <cstddef>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/pipeline/schedule/messages.hpp>
#include <weft/pipeline/schedule/table.hpp>
#include <weft/pipeline/stage_shapes.hpp>

namespace weft::detail {

class PeerProgress {
 public:
  WEFT_COLD PeerProgress(const schedule::Table& table, bool forward_only)
      : micro_batches_(table.micro_batches), done_(std::size_t(table.ranks), -1) {
    const std::size_t messages = 2 * std::size_t(table.stages()) * std::size_t(table.micro_batches);
    takers_.resize(messages);
    senders_.resize(messages);
    for (int rank = 0; rank < table.ranks; ++rank) {
      const schedule::Order& order = table.orders[std::size_t(rank)];
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (forward_only && order[i].what != schedule::Op::F) continue;
        if (const schedule::Message wanted = schedule::wanted_by(table, rank, order[i]); wanted.from >= 0)
          takers_[place_of(wanted)] = {rank, int(i)};
        if (const schedule::Message sent = schedule::sent_by(table, rank, order[i]); sent.to >= 0)
          senders_[place_of(sent)] = {rank, int(i)};
      }
    }
  }
  WEFT_COLD void received(const StageMessage& message) {
    const Action sender = senders_[place_of(message)];
    if (sender.rank < 0) return;
    int& done = done_[std::size_t(sender.rank)];
    done = std::max(done, sender.number);
  }
  WEFT_COLD bool taken(const StageMessage& message) const {
    const Action taker = takers_[place_of(message)];
    return taker.rank < 0 || done_[std::size_t(taker.rank)] >= taker.number;
  }

 private:
  struct Action {
    int rank = -1, number = 0;  // in the order of that rank; -1: no rank sends or takes such a message
  };
  std::size_t place_of(const auto& message) const {
    return 2 * (std::size_t(message.stage) * std::size_t(micro_batches_) + std::size_t(message.micro)) + message.forward;
  }
  int micro_batches_;
  std::vector<Action> takers_, senders_;  // by message
  std::vector<int> done_;                 // by rank: the last action of which it is known
};

}  // namespace weft::detail
