// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of a graph. Definitions for mesh/graph_parts.hpp.

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include <weft/core/hash.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/mesh/graph_parts.hpp>

namespace weft {

namespace detail {

WEFT_INLINE void require_one_graph(const Communicator& comm, const GraphDivision& graph) {
  const auto hash = [](std::span<const std::int32_t> all, std::uint64_t seed = 0) {
    return hash_bytes(all.data(), all.size_bytes(), seed);
  };
  const std::array<std::uint64_t, 4> mine{graph.part_of.size(), graph.senders.size(), hash(graph.part_of),
                                          hash(graph.receivers, hash(graph.senders))};
  std::vector<std::uint64_t> all(4 * std::size_t(comm.size()));
  comm.all_gather(mine, all);
  for (std::size_t rank = 1; rank < std::size_t(comm.size()); ++rank) {
    const std::uint64_t *first = all.data(), *other = all.data() + 4 * rank;
    if (std::equal(first, first + 4, other)) continue;
    throw_error<UsageError>({"GraphParts: the ranks of ", comm.axis(), "(", comm.size(), ") have different graphs: ", first[0],
                             " nodes and ", first[1], " edges on rank 0, ", other[0], " and ", other[1], " on rank ", rank,
                             first[0] == other[0] && first[1] == other[1]
                                 ? first[2] != other[2] ? ", with other parts" : ", with other ends of edges"
                                 : ""});
  }
}
WEFT_INLINE void require_edges(std::size_t nodes, std::span<const std::int32_t> senders,
                               std::span<const std::int32_t> receivers) {
  if (senders.size() != receivers.size())
    throw_error<UsageError>({"GraphParts: ", senders.size(), " senders and ", receivers.size(), " receivers"});
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  if (std::max(nodes, senders.size()) > most)
    throw_error<UsageError>({"GraphParts: ", nodes, " nodes and ", senders.size(), " edges: at most ", most, " of each"});
  const auto require_ends = [nodes](const char* end, std::span<const std::int32_t> all) {
    for (std::size_t edge = 0; edge < all.size(); ++edge)
      if (std::cmp_less(all[edge], 0) || std::cmp_greater_equal(all[edge], nodes))
        throw_error<UsageError>({"GraphParts: edge ", edge, " has ", end, " ", all[edge], ", and there are ", nodes, " nodes"});
  };
  require_ends("sender", senders), require_ends("receiver", receivers);
}

}  // namespace detail

WEFT_INLINE GraphParts::GraphParts(const Communicator& comm, const GraphDivision& graph) {
  detail::require_one_graph(comm, graph);
  const std::size_t nodes = graph.part_of.size(), ranks = std::size_t(comm.size());
  detail::require_edges(nodes, graph.senders, graph.receivers);
  std::vector<std::size_t> first(ranks + 1);
  for (std::size_t node = 0; node < nodes; ++node) {
    if (std::cmp_less(graph.part_of[node], 0) || std::cmp_greater_equal(graph.part_of[node], ranks))
      throw_error<UsageError>(
          {"GraphParts: node ", node, " has part ", graph.part_of[node], ", and ", comm.axis(), " has ", ranks, " ranks"});
    ++first[std::size_t(graph.part_of[node]) + 1];
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (first[rank + 1] == 0)
      throw_error<UsageError>(
          {"GraphParts: no node of ", nodes, " has part ", rank, ", and ", comm.axis(), " has ", ranks, " ranks"});
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::int32_t> place(nodes);  // in the order of ranks
  for (std::size_t node = 0; node < nodes; ++node) {
    const auto rank = std::size_t(graph.part_of[node]);
    place[node] = std::int32_t(first[rank]++);
    if (rank == std::size_t(comm.rank())) nodes_.push_back(std::int32_t(node));
  }
  for (std::size_t edge = 0; edge < graph.senders.size(); ++edge) {
    const auto from = std::size_t(graph.senders[edge]), into = std::size_t(graph.receivers[edge]);
    cut_edges_ += graph.part_of[from] != graph.part_of[into] ? 1 : 0;
    if (graph.part_of[into] != comm.rank()) continue;
    edges_.push_back(std::int32_t(edge));
    senders_.push_back(place[from]), receivers_.push_back(place[into]);
  }
}

}  // namespace weft
