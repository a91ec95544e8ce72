// SPDX-License-Identifier: Apache-2.0
#pragma once
// A division of a graph among the ranks of an axis: from the part of each node, as a partitioner such as METIS gives it or as a
// simulation has it, the nodes and edges of each rank, and ids that count the nodes in the order of ranks, as graph_part takes
// them (operations/graph.hpp). Each rank has the whole graph here, and loads the values of its part. mesh/metis.hpp cuts a graph
// by METIS.
//
//   const GraphParts parts(mesh.comm(dx{}), {.part_of = part_of, .senders = senders, .receivers = receivers});
//   for (const std::int32_t node : parts.nodes()) ...      // the rank's nodes, as part_of counts them: a row of a field each
//   for (const std::int32_t edge : parts.edges()) ...      // its edges, those into its nodes
//   batch[sender].assign({parts.senders().begin(), parts.senders().end()}, {parts.senders().size()});

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>

namespace weft {

/// A whole graph, and its parts: node n belongs to rank part_of[n], and edge i goes from senders[i] to receivers[i].
struct GraphDivision {
  std::span<const std::int32_t> part_of, senders, receivers;
};

namespace detail {

/// The same UsageError on each rank if their graphs differ.
void require_one_graph(const Communicator& comm, const GraphDivision& graph);
/// Throws UsageError for other numbers of senders than of receivers, too many nodes or edges, and the end of an edge out of
/// range.
void require_edges(std::size_t nodes, std::span<const std::int32_t> senders, std::span<const std::int32_t> receivers);

}  // namespace detail

/// The part of this rank. Nodes of a rank are in the order of the graph, and so are its edges.
class GraphParts {
 public:
  /// Collective. Throws UsageError for a part or the end of an edge out of range, a rank without nodes, and ranks that have
  /// different graphs or parts.
  GraphParts(const Communicator& comm, const GraphDivision& graph);

  /// The nodes of this rank, as the graph counts them.
  std::span<const std::int32_t> nodes() const { return nodes_; }
  /// The edges into these nodes.
  std::span<const std::int32_t> edges() const { return edges_; }
  /// The ends of these edges, as nodes in the order of ranks. In sample s of a micro-batch, s * part_of.size() is added.
  std::span<const std::int32_t> senders() const { return senders_; }
  std::span<const std::int32_t> receivers() const { return receivers_; }
  /// The edges of all ranks whose ends are on two of them.
  std::size_t cut_edges() const { return cut_edges_; }

 private:
  std::vector<std::int32_t> nodes_, edges_, senders_, receivers_;
  std::size_t cut_edges_ = 0;
};

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/mesh/graph_parts_impl.hpp>
#endif
