// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sum over data ranks in the order of a ReductionTree: each rank sends every other rank its pieces of all its nodes, and adds
// up its own piece. If the tree's order is rank order, a plain reduction gives the same bits and is used instead.
//
//   TreeExchange<Exec> exchange(data_ranks, device, tree, type, flat, begins, members);
//   exchange.write_sum(out);   // this rank's piece of the sum

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/reduction_tree.hpp>
#include <weft/engine/hook/bucket.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/kernels/elementwise.hpp>

namespace weft::detail {

// Gradients are never narrower than float.
template <class F>
void dispatch_gradient(DataType type, F&& f) {
  if (type == DataType::float32) f(float{});
  else f(double{});
}

template <class Exec>
class TreeExchange {
 public:
  /// This rank's nodes: the first is in `flat`, the others beside the members' gradients. The owner of piece k gets the elements
  /// begins[k] to begins[k + 1] of `flat`, and rank r owns piece r % pieces. `flat` must live until `finish`.
  TreeExchange(const Communicator& comm, Device<Exec>& device, const ReductionTree& tree, DataType type, const Buffer& flat,
               std::vector<std::size_t> begins, std::span<const FlatMember> members)
      : device_(&device), tree_(&tree), type_(type), flat_(flat), begins_(std::move(begins)) {
    const std::size_t ranks = std::size_t(comm.size()), nodes = tree.counts()[std::size_t(comm.rank())],
                      pieces = begins_.size() - 1, piece = piece_ = size(std::size_t(comm.rank()) % pieces);
    for (const std::size_t count : tree.counts()) receive_.push_back(count * piece);
    for (std::size_t rank = 0; rank < ranks; ++rank) send_.push_back(nodes * size(rank % pieces));
    dispatch_gradient(type, [&](auto zero) {
      using G = decltype(zero);
      if (nodes == 1 && pieces == ranks) outgoing_ = flat;
      else pack<G>(ranks, pieces, nodes, members);
      incoming_ = device.allocate(tree.nodes().size() * piece * sizeof(G));
      request_ = comm.all_to_all_v_async(
          std::span<const G>(data<G>(outgoing_), std::accumulate(send_.begin(), send_.end(), std::size_t(0))), send_,
          std::span<G>(data<G>(incoming_), tree.nodes().size() * piece), receive_);
    });
  }

  bool test() { return request_.test(); }
  /// Writes this rank's piece of the sum to `out`.
  void write_sum(void* out) {
    request_.wait();
    outgoing_.reset();
    dispatch_gradient(type_, [&](auto zero) {
      using G = decltype(zero);
      G* in = data<G>(incoming_);
      for (const auto& [into, from] : tree_->additions())
        kernels::accumulate<G, G>(*device_, piece_, in + from * piece_, in + into * piece_);
      kernels::cast<G, G>(*device_, piece_, in, static_cast<G*>(out));
    });
    incoming_.reset();
  }

 private:
  template <class G>
  static G* data(const Buffer& buffer) {
    return static_cast<G*>(buffer.get());
  }

  // The message to each rank: its piece of all nodes.
  template <class G>
  void pack(std::size_t ranks, std::size_t pieces, std::size_t nodes, std::span<const FlatMember> members) {
    std::vector<std::size_t> message(ranks + 1);  // the first element for each rank
    for (std::size_t rank = 0; rank < ranks; ++rank) message[rank + 1] = message[rank] + send_[rank];
    outgoing_ = device_->allocate(message.back() * sizeof(G));
    for (std::size_t node = 0; node < nodes; ++node) {
      const auto copy = [&](const G* from, std::size_t first, std::size_t count) {
        for (std::size_t done = 0; done < count;) {
          const std::size_t at = first + done,
                            owner = std::size_t(std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin()) - 1,
                            length = std::min(count - done, begins_[owner + 1] - at);
          for (std::size_t rank = owner; rank < ranks; rank += pieces)
            kernels::cast<G, G>(*device_, length, from + done,
                                data<G>(outgoing_) + message[rank] + node * size(owner) + (at - begins_[owner]));
          done += length;
        }
      };
      if (node == 0) {
        copy(data<G>(flat_), 0, begins_.back());
        continue;
      }
      std::size_t used = 0;
      const auto gap = [&](std::size_t to) {  // the sums of gaps are never read, but they are defined
        if (used < to) copy(data<G>(flat_) + used, used, to - used);
      };
      for (const FlatMember& member : members) {
        gap(member.first);
        copy(data<G>(member.state->gradients().nodes()[node - 1]), member.first, member.state->size());
        used = member.first + member.state->size();
      }
      gap(begins_.back());
    }
    for (const FlatMember& member : members) member.state->gradients().clear_nodes();
  }

  std::size_t size(std::size_t piece) const { return begins_[piece + 1] - begins_[piece]; }

  Device<Exec>* device_;
  const ReductionTree* tree_;
  DataType type_;
  Buffer flat_;
  std::vector<std::size_t> begins_;
  std::size_t piece_;  // elements that this rank owns
  std::vector<std::size_t> send_, receive_;
  Buffer outgoing_, incoming_;
  Request request_;
};

}  // namespace weft::detail
