// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sum of gradients as integers (ZeRO++ qgZ, arXiv:2306.10209, section 3.3): an all-to-all among the ranks of a node, a sum in
// float, and an all-to-all of the nodes' sums between nodes. Between nodes each rank sends a quarter of the bytes of a
// reduce-scatter in float, and each number is rounded twice, however many ranks there are.
//
//   QuantisedReduction<Exec> reduction(ranks, device, DataType::float32, flat, begins, 8);
//   reduction.advance();     // the messages between nodes start
//   reduction.finish(out);   // this rank's piece of the sum

#include <algorithm>
#include <cstddef>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/parallel/fsdp/flat_array.hpp>
#include <weft/parallel/fsdp/packed_values.hpp>
#include <weft/parallel/fsdp/settings.hpp>
#include <weft/parallel/reproducible/tree_exchange.hpp>

namespace weft::detail {

/// Rank `node * here + place` of the ranks that share a copy is `place` of its node, which has `here` ranks.
template <class Exec>
class QuantisedReduction {
 public:
  /// The owner of piece r gets the elements begins[r] to begins[r + 1] of `flat`, which is packed at once and may be freed then.
  /// `bits`: of the integers inside a node, 8 or 4; between nodes they have 8. Starts the messages inside the nodes.
  QuantisedReduction(const ShardRanks& ranks, Device<Exec>& device, DataType type, const Buffer& flat,
                     std::vector<std::size_t> begins, int bits)
      : ranks_(&ranks), device_(&device), type_(type), begins_(std::move(begins)) {
    std::size_t most = 0;
    for (std::size_t piece = 0; piece + 1 < begins_.size(); ++piece) most = std::max(most, size(piece));
    inside_ = PackedValues(most, type, bits), outside_ = PackedValues(most, type, 8);
    if (here() == 1) {
      dispatch_gradient(type_, [&](auto zero) {
        using G = decltype(zero);
        send([&](std::size_t node) { return static_cast<const G*>(flat.get()) + begins_[node]; });
      });
      return;
    }
    const std::size_t block = inside_.bytes(), bytes = here() * nodes() * block;
    outgoing_ = device.allocate(bytes), incoming_ = device.allocate(bytes);
    dispatch_gradient(type_, [&](auto zero) {
      using G = decltype(zero);
      for (std::size_t place = 0; place < here(); ++place)
        for (std::size_t node = 0; node < nodes(); ++node) {
          const std::size_t piece = node * here() + place;
          inside_.pack(device, size(piece), static_cast<const G*>(flat.get()) + begins_[piece],
                       buffer_at(outgoing_, (place * nodes() + node) * block).get());
        }
    });
    request_ = ranks.node.all_to_all_async(words_of(outgoing_, bytes), words_of(incoming_, bytes));
  }

  /// True once the messages between nodes have started.
  bool advanced() const { return advanced_; }
  /// Adds up the node's gradients and starts the messages between nodes. Waits for those inside the node. All ranks call it at
  /// the same place of their programs, since the order of a communicator's calls is the same on all its ranks.
  void advance() {
    if (advanced_) return;
    request_.wait();
    outgoing_.reset();
    dispatch_gradient(type_, [&](auto zero) {
      using G = decltype(zero);
      std::size_t all = 0;
      for (std::size_t node = 0; node < nodes(); ++node) all += size(node * here() + place());
      const Buffer sums = device_->allocate(all * sizeof(G));
      std::vector<G*> sum_of;
      for (G* at = static_cast<G*>(sums.get()); sum_of.size() < nodes(); at += size((sum_of.size() - 1) * here() + place()))
        sum_of.push_back(at);
      for (std::size_t node = 0; node < nodes(); ++node)
        for (std::size_t from = 0; from < here(); ++from)
          inside_.unpack(*device_, size(node * here() + place()),
                         buffer_at(incoming_, (from * nodes() + node) * inside_.bytes()).get(), sum_of[node], from > 0);
      incoming_.reset();
      if (nodes() == 1) sums_ = sums, advanced_ = true;
      else send([&](std::size_t node) -> const G* { return sum_of[node]; });
    });
  }
  /// Writes this rank's piece of the sum to `out`.
  void finish(void* out) {
    advance();
    request_.wait();
    outgoing_.reset();
    const std::size_t count = size(std::size_t(ranks_->sharing.rank()));
    dispatch_gradient(type_, [&](auto zero) {
      using G = decltype(zero);
      if (sums_) kernels::cast<G, G>(*device_, count, static_cast<const G*>(sums_.get()), static_cast<G*>(out));
      else
        for (std::size_t node = 0; node < nodes(); ++node)
          outside_.unpack(*device_, count, buffer_at(incoming_, node * outside_.bytes()).get(), static_cast<G*>(out), node > 0);
    });
    incoming_.reset(), sums_.reset();
  }

 private:
  std::size_t here() const { return std::size_t(ranks_->node.size()); }
  std::size_t nodes() const { return std::size_t(ranks_->between.size()); }
  std::size_t place() const { return std::size_t(ranks_->node.rank()); }
  std::size_t size(std::size_t piece) const { return begins_[piece + 1] - begins_[piece]; }

  // Sends each node the sum of its piece of this place.
  template <class SumOf>
  void send(const SumOf& sum_of) {
    const std::size_t bytes = nodes() * outside_.bytes();
    outgoing_ = device_->allocate(bytes), incoming_ = device_->allocate(bytes);
    for (std::size_t node = 0; node < nodes(); ++node)
      outside_.pack(*device_, size(node * here() + place()), sum_of(node), buffer_at(outgoing_, node * outside_.bytes()).get());
    request_ = ranks_->between.all_to_all_async(words_of(outgoing_, bytes), words_of(incoming_, bytes));
    advanced_ = true;
  }

  const ShardRanks* ranks_;
  Device<Exec>* device_;
  DataType type_;
  std::vector<std::size_t> begins_;
  PackedValues inside_, outside_;
  Buffer outgoing_, incoming_, sums_;
  Request request_;
  bool advanced_ = false;
};

}  // namespace weft::detail
