// SPDX-License-Identifier: Apache-2.0
#pragma once
// The copies of the training state that a rank of an elastic run holds outside of its model: its part of the state after a step,
// and the part of a partner, half the ranks away. All ranks together hold every tensor twice, whatever the layout and the stage
// of ZeRO are. The parts are those that a checkpoint would have as files (checkpoint/write_plan.hpp), so that
// elastic/fetch.hpp restores any other layout from them.
//
//   copies.keep(ranks, state, step, generation);   // after each step: 2 steps x 2 parts x state / ranks bytes of host memory

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/pages.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/write_plan.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/core/hash.hpp>

namespace weft::elastic::detail {

namespace stored = checkpoint::detail;

/// One rank's part of the state, in memory. Parts have the numbers of the ranks that made them.
struct PartCopy {
  std::size_t number = 0;
  bool whole = false;
  stored::Pages bytes;
};

/// The name of a part that some rank holds: the `number`th of the `of` parts of a generation of the world.
struct HeldPart {
  std::uint64_t generation = 0;
  std::size_t number = 0, of = 0;
  friend bool operator==(const HeldPart&, const HeldPart&) = default;
  friend bool operator<(const HeldPart& a, const HeldPart& b) {
    return std::tie(a.generation, a.number, a.of) < std::tie(b.generation, b.number, b.of);
  }
};
using HeldParts = std::set<HeldPart>;

/// The parts of one step that a rank holds.
struct Snapshot {
  std::uint64_t step = 0, generation = 0;
  std::shared_ptr<const checkpoint::Index> index;  ///< the pieces of all ranks; the numbers below are of this step
  std::optional<std::uint64_t> optimizer_steps, next_step;
  std::optional<checkpoint::StoredLossScale> loss_scale;
  std::array<PartCopy, 2> parts;  ///< its own, and the partner's

  bool holds(std::size_t number) const {
    return (parts[0].whole && parts[0].number == number) || (parts[1].whole && parts[1].number == number);
  }
  const std::byte* part(std::size_t number) const {
    for (const PartCopy& part : parts)
      if (part.whole && part.number == number) return part.bytes.data();
    return nullptr;
  }
  /// The index with the numbers of this step.
  checkpoint::Index whole_index() const {
    checkpoint::Index all = *index;
    all.step = step;
    all.optimizer_steps = optimizer_steps;
    all.next_step = next_step;
    all.loss_scale = loss_scale;
    return all;
  }
};

/// Bytes of host memory that the copies take on a rank, for a rehearsal: the mean over the `ranks` ranks that share the tensors
/// of `state`, without padding. A run's copies are those of all its tensors, each divided evenly.
inline std::size_t mean_copy_bytes(const stored::State& state, std::size_t ranks) {
  // A rank without elements of a parameter has no buffers of the optimizer for it, but other ranks have.
  double bytes = 0, buffers = 0, elements = 0, elements_here = 0;
  for (const stored::Item& item : state.items) {
    const double whole = double(stored::bytes_of(item.shape, item.type).value_or(0));
    const bool parameter = item.kind == "parameter";
    (parameter || item.kind == "buffer" || item.kind == "hook" ? bytes : buffers) += whole;
    if (!parameter || std::find(state.frozen.begin(), state.frozen.end(), item.name) != state.frozen.end()) continue;
    elements += whole / double(size_of(item.type));
    if (item.size > 0) elements_here += whole / double(size_of(item.type));
  }
  if (elements_here > 0) bytes += buffers * elements / elements_here;
  const double copies = ranks > 1 ? 4 : 2;  // of 2 steps, its own part and a partner's
  return std::size_t(bytes * copies / double(ranks));
}

/// The distance in ranks of the partner that holds a rank's second copy: on another node, if there are several of equal size.
inline int partner_distance(int ranks) { return ranks / 2; }

class Copies {
 public:
  /// Copies this rank's part of the state after `step`, and exchanges parts with the partners. `others(flag)` is the maximum of a
  /// flag over all ranks; `wanted` is this rank's, and the result that of all. A step's copies replace those of the step before
  /// the last one, which no rank needs any more once all are here. Collective.
  bool keep(const Communicator& ranks, const stored::State& state, std::uint64_t step, std::uint64_t generation, bool wanted) {
    const std::uint64_t signature = signature_of(state, generation);
    std::uint64_t flags[] = {signature != planned_ ? 1u : 0u, wanted ? 1u : 0u};
    if (ranks.size() > 1) ranks.all_reduce(std::span(flags), Reduction::max);
    if (flags[0] != 0) make_plan(ranks, state, signature);
    Snapshot& snapshot = snapshots_[newest_ == 0 ? 1 : 0];
    snapshot.parts[0].whole = snapshot.parts[1].whole = false;
    snapshot.step = step;
    snapshot.generation = generation;
    snapshot.index = index_;
    snapshot.optimizer_steps = state.optimizer_steps;
    snapshot.next_step = state.next_step;
    snapshot.loss_scale = state.loss_scale;
    copy_own(ranks, state, snapshot.parts[0]);
    exchange(ranks, snapshot);
    newest_ = newest_ == 0 ? 1 : 0;
    return flags[1] != 0;
  }
  /// The snapshot to keep; the next `keep` replaces the other one.
  void protect(const Snapshot& snapshot) { newest_ = &snapshot == &snapshots_[0] ? 0 : 1; }
  const std::array<Snapshot, 2>& snapshots() const { return snapshots_; }

  /// Bytes of the copies that this rank holds.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Snapshot& snapshot : snapshots_)
      for (const PartCopy& part : snapshot.parts)
        if (part.whole) sum += std::size_t(snapshot.index->files[part.number].bytes);
    return sum;
  }

 private:
  static std::uint64_t padded(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  // Items that are the same in every step of a generation need no new plan.
  static std::uint64_t signature_of(const stored::State& state, std::uint64_t generation) {
    std::uint64_t hash = generation + 1;
    const auto add = [&](std::uint64_t word) {
      hash = weft::detail::hash_bytes(&word, sizeof word) ^ (hash * 0x9e3779b97f4a7c15u);
    };
    for (const stored::Item& item : state.items) {
      add(weft::detail::hash_bytes(item.name.data(), item.name.size()));
      add(std::uint64_t(item.type) << 8 | std::uint64_t(item.of));
      add(item.size);
    }
    for (const auto& [name, steps] : state.begun) {
      add(weft::detail::hash_bytes(name.data(), name.size()));
      add(steps);
    }
    return hash;
  }

  void make_plan(const Communicator& ranks, const stored::State& state, std::uint64_t signature) {
    planned_ = 0;
    checkpoint::Index index = stored::index_of(ranks, state, 0, {});
    index.chunk_bytes = 1u << 30;
    plan_ = stored::plan_writes(ranks, state.items);
    index.tensors = plan_.tensors;
    for (std::size_t rank = 0; rank < plan_.parts.size(); ++rank) {
      std::uint64_t offset = 0;
      for (const stored::WritePlan::Part& part : plan_.parts[rank]) {
        checkpoint::LogicalTensor& tensor = index.tensors[part.tensor];
        const std::uint64_t bytes = part.block.elements() * size_of(tensor.type);
        tensor.pieces.push_back(
            {rank, part.block, offset, std::vector<std::uint64_t>((bytes + index.chunk_bytes - 1) / index.chunk_bytes)});
        offset += padded(bytes);
      }
      index.files.push_back({stored::rank_file(int(rank)), offset, 0, 0, 0});
    }
    items_.clear();
    for (const stored::WritePlan::Mine& mine : plan_.mine) items_.push_back(std::size_t(mine.item - state.items.data()));
    index_ = std::make_shared<const checkpoint::Index>(std::move(index));
    planned_ = signature;
  }

  std::byte* room_for(PartCopy& part, std::size_t number) const {
    part.number = number;
    const std::size_t bytes = std::size_t(index_->files[number].bytes);
    if (part.bytes.bytes() < bytes || part.bytes.data() == nullptr) part.bytes = stored::Pages(bytes);
    return part.bytes.data();
  }

  void copy_own(const Communicator& ranks, const stored::State& state, PartCopy& part) {
    std::byte* at = room_for(part, std::size_t(ranks.rank()));
    for (std::size_t i = 0; i < items_.size(); ++i) plan_.mine[i].item = &state.items[items_[i]];
    for (const stored::Part& piece : stored::parts_of(plan_)) {
      piece.copy_to(at);
      at += padded(piece.elements * piece.element_bytes);
    }
    part.whole = true;
  }

  void exchange(const Communicator& ranks, Snapshot& snapshot) {
    const int size = ranks.size(), distance = partner_distance(size);
    if (distance == 0) return;
    const int to = (ranks.rank() + distance) % size, from = (ranks.rank() + size - distance) % size;
    const auto words = [&](PartCopy& part) {
      return std::span(reinterpret_cast<std::uint64_t*>(part.bytes.data()), std::size_t(index_->files[part.number].bytes / 8));
    };
    room_for(snapshot.parts[1], std::size_t(from));
    const auto mine = words(snapshot.parts[0]), other = words(snapshot.parts[1]);
    Request receive, sending;
    if (!other.empty()) receive = ranks.recv_async(other, from);
    if (!mine.empty()) sending = ranks.send_async(std::span<const std::uint64_t>(mine), to);
    if (!other.empty()) receive.wait();
    if (!mine.empty()) sending.wait();
    snapshot.parts[1].whole = true;
  }

  std::array<Snapshot, 2> snapshots_;
  int newest_ = 1;
  std::uint64_t planned_ = 0;  // the signature of the plan's items; 0: no plan
  stored::WritePlan plan_;
  std::vector<std::size_t> items_;  // of plan_.mine
  std::shared_ptr<const checkpoint::Index> index_;
};

}  // namespace weft::elastic::detail
