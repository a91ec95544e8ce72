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

/// Copies this rank's elements of each item to out[i]. `snapshot`: this rank's copies of the step, or null; holders[p]: the rank
/// that sends part p. A round sends the tensors of about `round_bytes`, at least one, so memory is bounded.
/// Collective.
inline void fetch(const Communicator& ranks, const checkpoint::Index& index, const Snapshot* snapshot,
                  const std::vector<int>& holders, const std::vector<const checkpoint::LogicalTensor*>& tensors,
                  const std::vector<stored::Item>& items, const std::vector<std::byte*>& out,
                  std::uint64_t round_bytes = 64u << 20) {
  const std::vector<Needs> needs = needs_of_all(ranks, index, tensors, items);
  std::map<std::size_t, std::size_t> item_of;
  for (std::size_t i = 0; i < items.size(); ++i) item_of[std::size_t(tensors[i] - index.tensors.data())] = i;
  struct Arrival {
    std::byte* to;
    std::size_t bytes;
  };
  const std::size_t size = std::size_t(ranks.size());
  for (std::size_t begin = 0, end = 0; begin < index.tensors.size(); begin = end) {
    std::vector<std::vector<std::uint8_t>> to_rank(size);
    std::vector<std::vector<Arrival>> from_rank(size);
    for (std::uint64_t bytes = 0; end < index.tensors.size() && (end == begin || bytes < round_bytes); ++end) {
      const checkpoint::LogicalTensor& tensor = index.tensors[end];
      const std::size_t element = size_of(tensor.type);
      for (const checkpoint::StoredPiece& piece : tensor.pieces) {
        bytes += piece.block.elements() * element;
        const int holder = holders[piece.file];
        if (holder == ranks.rank())
          for (std::size_t rank = 0; rank < size; ++rank) {
            const auto at = needs[rank].find(end);
            if (at == needs[rank].end()) continue;
            const auto* const data = reinterpret_cast<const std::uint8_t*>(snapshot->part(piece.file) + piece.offset);
            stored::for_each_overlap(piece.block, at->second, [&](std::uint64_t from, std::size_t, std::uint64_t count) {
              to_rank[rank].insert(to_rank[rank].end(), data + from * element, data + (from + count) * element);
            });
          }
        if (const auto at = item_of.find(end); at != item_of.end())
          stored::for_each_overlap(
              piece.block, items[at->second].runs.sorted(), [&](std::uint64_t, std::size_t local, std::uint64_t count) {
                from_rank[std::size_t(holder)].push_back({out[at->second] + local * element, std::size_t(count) * element});
              });
      }
    }
    std::vector<std::uint8_t> sent;
    std::vector<std::size_t> send_counts, receive_counts;
    std::size_t expected = 0;
    for (std::size_t rank = 0; rank < size; ++rank) {
      sent.insert(sent.end(), to_rank[rank].begin(), to_rank[rank].end());
      send_counts.push_back(to_rank[rank].size());
      std::vector<std::uint8_t>().swap(to_rank[rank]);
      std::size_t bytes = 0;
      for (const Arrival& arrival : from_rank[rank]) bytes += arrival.bytes;
      receive_counts.push_back(bytes);
      expected += bytes;
    }
    std::vector<std::uint8_t> received(expected);
    if (size == 1) received = std::move(sent);
    else ranks.all_to_all_v(std::span<const std::uint8_t>(sent), send_counts, std::span(received), receive_counts);
    const std::uint8_t* at = received.data();
    for (const std::vector<Arrival>& arrivals : from_rank)
      for (const Arrival& arrival : arrivals) {
        std::memcpy(arrival.to, at, arrival.bytes);
        at += arrival.bytes;
      }
  }
}

}  // namespace weft::elastic::detail
