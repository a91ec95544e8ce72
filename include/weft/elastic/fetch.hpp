// SPDX-License-Identifier: Apache-2.0
#pragma once
// A state restored from the copies that ranks hold in memory (elastic/copies.hpp), in any layout. Every rank learns which
// elements each rank needs, so holders send them without being asked.
//
//   fetch(ranks, index, snapshot, holders, tensors, items, out);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <weft/checkpoint/blocks.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/elastic/copies.hpp>

namespace weft::elastic::detail {

/// The runs of one rank by the position of their tensor in the index.
using Needs = std::map<std::size_t, std::vector<stored::Run>>;

/// The parts that each rank needs: [ranks.size()]. `tensors[i]` points into `index.tensors`. Collective.
inline std::vector<Needs> needs_of_all(const Communicator& ranks, const checkpoint::Index& index,
                                       const std::vector<const checkpoint::LogicalTensor*>& tensors,
                                       const std::vector<stored::Item>& items) {
  stored::Packed mine;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::vector<stored::StridedRun> blocks = items[i].runs.strided(items[i].row);
    mine.put(std::uint64_t(tensors[i] - index.tensors.data()));
    mine.put(std::uint64_t(blocks.size()));
    for (const stored::StridedRun& block : blocks)
      for (const std::uint64_t word : {block.first.global, block.first.length, block.count, block.global_stride}) mine.put(word);
  }
  std::vector<Needs> all;
  for (stored::Packed& said : stored::from_all(ranks, std::move(mine))) {
    Needs& needs = all.emplace_back();
    while (!said.done()) {
      std::vector<stored::Run>& runs = needs[std::size_t(said.word())];
      for (std::uint64_t count = said.word(); count > 0; --count) {
        stored::StridedRun block;
        block.first.global = said.word();
        block.first.length = said.word();
        block.count = said.word();
        block.global_stride = said.word();
        for (std::size_t i = 0; i < block.count; ++i) runs.push_back(block.run(i));
      }
      std::sort(runs.begin(), runs.end(), [](const stored::Run& a, const stored::Run& b) { return a.global < b.global; });
    }
  }
  return all;
}

/// Copies this rank's elements of each item to out[i], those of its own copies without a message. `snapshot`: this rank's copies
/// of the step, or null; holders[p]: the rank that sends part p. A round sends the tensors of about `round_bytes`, at least one,
/// so memory is bounded. Collective.
inline void fetch(const Communicator& ranks, const checkpoint::Index& index, const Snapshot* snapshot,
                  const std::vector<int>& holders, const std::vector<const checkpoint::LogicalTensor*>& tensors,
                  const std::vector<stored::Item>& items, const std::vector<std::byte*>& out,
                  std::uint64_t round_bytes = 8u << 20) {
  const std::vector<Needs> needs = needs_of_all(ranks, index, tensors, items);
  std::map<std::size_t, std::size_t> item_of;
  for (std::size_t i = 0; i < items.size(); ++i) item_of[std::size_t(tensors[i] - index.tensors.data())] = i;
  struct Source {
    const std::byte* from;
    std::size_t bytes;
  };
  struct Target {
    std::byte* to;
    std::size_t bytes;
  };
  // Memory that all rounds use, and that is not set to 0 first.
  struct Room {
    std::unique_ptr<std::uint8_t[]> memory;
    std::size_t size = 0;
    std::span<std::uint8_t> of(const std::vector<std::size_t>& counts) {
      const std::size_t bytes = std::accumulate(counts.begin(), counts.end(), std::size_t(0));
      if (bytes > size) memory.reset(new std::uint8_t[size = bytes]);
      return {memory.get(), bytes};
    }
  } room_to_send, room_to_receive;
  const std::size_t size = std::size_t(ranks.size());
  for (std::size_t begin = 0, end = 0; begin < index.tensors.size(); begin = end) {
    std::vector<std::vector<Source>> to_rank(size);
    std::vector<std::vector<Target>> from_rank(size);
    for (std::uint64_t bytes = 0; end < index.tensors.size() && (end == begin || bytes < round_bytes); ++end) {
      const checkpoint::LogicalTensor& tensor = index.tensors[end];
      const std::size_t element = size_of(tensor.type);
      for (const checkpoint::StoredPiece& piece : tensor.pieces) {
        bytes += piece.block.elements() * element;
        const int holder = holders[piece.file];
        const std::byte* const data = holder == ranks.rank() ? snapshot->part(piece.file) + piece.offset : nullptr;
        for (std::size_t rank = 0; data != nullptr && rank < size; ++rank) {
          const auto at = needs[rank].find(end);
          if (at == needs[rank].end() || int(rank) == holder) continue;
          stored::for_each_overlap(piece.block, at->second, [&](std::uint64_t from, std::size_t, std::uint64_t count) {
            to_rank[rank].push_back({data + from * element, std::size_t(count) * element});
          });
        }
        if (const auto at = item_of.find(end); at != item_of.end())
          stored::for_each_overlap(piece.block, items[at->second].runs.sorted(),
                                   [&](std::uint64_t from, std::size_t local, std::uint64_t count) {
                                     std::byte* const to = out[at->second] + local * element;
                                     const std::size_t length = std::size_t(count) * element;
                                     if (data != nullptr) std::memcpy(to, data + from * element, length);
                                     else from_rank[std::size_t(holder)].push_back({to, length});
                                   });
      }
    }
    if (size == 1) continue;
    const auto counts_of = [](const auto& lists) {
      std::vector<std::size_t> counts;
      for (const auto& list : lists) {
        counts.push_back(0);
        for (const auto& one : list) counts.back() += one.bytes;
      }
      return counts;
    };
    const std::vector<std::size_t> send_counts = counts_of(to_rank), receive_counts = counts_of(from_rank);
    const std::span<std::uint8_t> sent = room_to_send.of(send_counts), received = room_to_receive.of(receive_counts);
    std::uint8_t* to = sent.data();
    for (const std::vector<Source>& sources : to_rank)
      for (const Source& source : sources) {
        std::memcpy(to, source.from, source.bytes);
        to += source.bytes;
      }
    ranks.all_to_all_v(std::span<const std::uint8_t>(sent), send_counts, received, receive_counts);
    const std::uint8_t* from = received.data();
    for (const std::vector<Target>& targets : from_rank)
      for (const Target& target : targets) {
        std::memcpy(target.to, from, target.bytes);
        from += target.bytes;
      }
  }
}

}  // namespace weft::elastic::detail
