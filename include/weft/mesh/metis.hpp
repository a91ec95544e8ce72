// SPDX-License-Identifier: Apache-2.0
#pragma once
// A division of a graph among the ranks of an axis by METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998), with few edges
// between ranks. It needs METIS 5: weft::metis in CMake, libmetis-dev on Debian.
//
//   const GraphParts parts = metis_parts(mesh.comm(dx{}), {.nodes = nodes, .senders = senders, .receivers = receivers});

#include <metis.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/mesh/graph_parts.hpp>

namespace weft {

/// A graph of so many nodes, whose edge i goes from senders[i] to receivers[i].
struct WholeGraph {
  std::size_t nodes = 0;
  std::span<const std::int32_t> senders, receivers;
};

namespace detail {

/// The neighbours of each node, as METIS takes them: each pair once in both directions, weighted by its number of edges.
struct MetisGraph {
  explicit MetisGraph(const WholeGraph& graph) : first(graph.nodes + 1) {
    std::vector<std::vector<idx_t>> of_node(graph.nodes);
    for (std::size_t edge = 0; edge < graph.senders.size(); ++edge) {
      const auto from = graph.senders[edge], into = graph.receivers[edge];
      if (from == into) continue;
      of_node[std::size_t(from)].push_back(into), of_node[std::size_t(into)].push_back(from);
    }
    for (std::size_t node = 0; node < graph.nodes; ++node) {
      std::sort(of_node[node].begin(), of_node[node].end());
      for (const idx_t other : of_node[node]) {
        if (std::size_t(first[node]) == others.size() || others.back() != other) others.push_back(other), weights.push_back(0);
        ++weights.back();
      }
      first[node + 1] = idx_t(others.size());
    }
  }
  std::vector<idx_t> first, others, weights;
};

/// Nodes move until each part has nodes / parts, or one more in the parts that are largest before. A node moves to the part to
/// which it has most edges, and those that lose fewest edges move first.
inline void make_parts_equal(const MetisGraph& graph, std::size_t parts, std::vector<idx_t>& part_of) {
  struct Move {
    std::ptrdiff_t gain;
    std::size_t node, to;
  };
  std::vector<std::ptrdiff_t> size(parts), room(parts), edges(parts);
  for (const idx_t part : part_of) ++size[std::size_t(part)];
  std::vector<std::size_t> by_size(parts);
  std::iota(by_size.begin(), by_size.end(), std::size_t(0));
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) { return size[a] > size[b]; });
  for (std::size_t i = 0; i < parts; ++i)
    room[by_size[i]] = std::ptrdiff_t(part_of.size() / parts + (i < part_of.size() % parts ? 1 : 0)) - size[by_size[i]];
  while (std::any_of(room.begin(), room.end(), [](std::ptrdiff_t free) { return free > 0; })) {
    std::vector<Move> moves;
    for (std::size_t node = 0; node < part_of.size(); ++node) {
      const std::size_t here = std::size_t(part_of[node]);
      if (room[here] >= 0) continue;
      std::fill(edges.begin(), edges.end(), 0);
      for (idx_t i = graph.first[node]; i < graph.first[node + 1]; ++i)
        edges[std::size_t(part_of[std::size_t(graph.others[std::size_t(i)])])] += graph.weights[std::size_t(i)];
      std::size_t best = parts;
      for (std::size_t part = 0; part < parts; ++part)
        if (room[part] > 0 && (best == parts || edges[part] > edges[best])) best = part;
      moves.push_back({edges[best] - edges[here], node, best});
    }
    std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.gain > b.gain; });
    for (const Move& move : moves) {
      const std::size_t here = std::size_t(part_of[move.node]);
      if (room[here] >= 0 || room[move.to] <= 0) continue;
      ++room[here], --room[move.to];
      part_of[move.node] = idx_t(move.to);
    }
  }
}

/// Throws UsageError for a graph that METIS cannot cut into these parts.
inline void require_parts(const WholeGraph& graph, std::size_t parts) {
  require_edges(graph.nodes, graph.senders, graph.receivers);
  if (parts == 0 || parts > graph.nodes)
    throw_error<UsageError>({"metis: ", parts, " parts of ", graph.nodes, " nodes: each part has a node"});
  if (graph.senders.size() > std::size_t(std::numeric_limits<idx_t>::max()) / 2)
    throw_error<UsageError>({"metis: ", graph.senders.size(), " edges, and this METIS counts at most ",
                             std::numeric_limits<idx_t>::max() / 2, ": build it with 64-bit integers"});
}

}  // namespace detail

/// The part of each node, by METIS_PartGraphKway: as few edges as it finds go between parts. Each part has nodes / parts nodes,
/// or one more. The same in every run with one METIS. Throws UsageError for the end of an edge out of range and more parts than
/// nodes, and Error if METIS fails.
inline std::vector<std::int32_t> metis_part_of(const WholeGraph& graph, std::size_t parts) {
  detail::require_parts(graph, parts);
  std::vector<idx_t> part_of(graph.nodes);
  detail::MetisGraph whole(graph);
  if (whole.others.empty()) {
    for (std::size_t node = 0; node < graph.nodes; ++node) part_of[node] = idx_t(node * parts / graph.nodes);
  } else if (parts > 1) {
    static std::mutex one_at_a_time;  // METIS draws from rand() and sets handlers of signals
    const std::lock_guard lock(one_at_a_time);
    std::array<char, 128> numbers;  // of METIS; those of the program go on afterwards
    char* const numbers_before = ::initstate(1, numbers.data(), numbers.size());
    idx_t nodes = idx_t(graph.nodes), constraints = 1, count = idx_t(parts), cut = 0, options[METIS_NOPTIONS];
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = 1;
    // The largest part in thousandths over the mean: METIS's default, or as much as whole nodes need. Less cuts more edges.
    const std::size_t over = (parts - graph.nodes % parts) % parts;
    options[METIS_OPTION_UFACTOR] = std::max(idx_t(30), idx_t(1000 * over / graph.nodes + 1));
    const int status = METIS_PartGraphKway(&nodes, &constraints, whole.first.data(), whole.others.data(), nullptr, nullptr,
                                           whole.weights.data(), &count, nullptr, nullptr, options, &cut, part_of.data());
    ::setstate(numbers_before);
    if (status != METIS_OK)
      throw_error<Error>({"metis: METIS_PartGraphKway failed with status ", status, " for ", graph.nodes, " nodes, ",
                          graph.senders.size(), " edges and ", parts, " parts"});
  }
  detail::make_parts_equal(whole, parts, part_of);
  return {part_of.begin(), part_of.end()};
}

/// The part of this rank. Collective: rank 0 cuts the graph by metis_part_of, and all ranks take its parts. Each rank has the
/// whole graph. Throws as metis_part_of, and UsageError if the ranks have different graphs.
inline GraphParts metis_parts(const Communicator& comm, const WholeGraph& graph) {
  detail::require_parts(graph, std::size_t(comm.size()));
  std::vector<std::int32_t> part_of(graph.nodes);
  detail::require_one_graph(comm, {part_of, graph.senders, graph.receivers});
  if (comm.rank() == 0) part_of = metis_part_of(graph, std::size_t(comm.size()));
  comm.broadcast(part_of, 0);
  return GraphParts(comm, {part_of, graph.senders, graph.receivers});
}

}  // namespace weft
