// SPDX-License-Identifier: Apache-2.0
#pragma once
// The progress of a pipeline's other ranks, as a rehearsed rank may know it: a message that one of them sent says which of its
// actions are done, and so which messages it has taken. Until then, late messages keep their buffers.
//
//   peers.received(message);
//   if (peers.taken(other)) ...

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include <weft/pipeline/schedule/messages.hpp>
#include <weft/pipeline/schedule/table.hpp>
#include <weft/pipeline/stage_shapes.hpp>

namespace weft::detail {

class PeerProgress {
 public:
  PeerProgress(const schedule::Table& table, bool forward_only) : done_(std::size_t(table.ranks), -1) {
    for (int rank = 0; rank < table.ranks; ++rank) {
      const schedule::Order& order = table.orders[std::size_t(rank)];
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (forward_only && order[i].what != schedule::Op::F) continue;
        if (const schedule::Message wanted = schedule::wanted_by(table, rank, order[i]); wanted.from >= 0)
          takers_[key(wanted)] = {rank, int(i)};
        if (const schedule::Message sent = schedule::sent_by(table, rank, order[i]); sent.to >= 0)
          senders_[key(sent)] = {rank, int(i)};
      }
    }
  }
  void received(const StageMessage& message) {
    const auto sender = senders_.find(key(message));
    if (sender == senders_.end()) return;
    int& done = done_[std::size_t(sender->second.rank)];
    done = std::max(done, sender->second.action);
  }
  bool taken(const StageMessage& message) const {
    const auto taker = takers_.find(key(message));
    return taker == takers_.end() || done_[std::size_t(taker->second.rank)] >= taker->second.action;
  }

 private:
  struct Place {
    int rank, action;
  };
  using Key = std::tuple<int, int, bool>;
  static Key key(const auto& message) { return {message.stage, message.micro, message.forward}; }
  std::map<Key, Place> takers_, senders_;
  std::vector<int> done_;  // by rank: the last action of which it is known
};

}  // namespace weft::detail
