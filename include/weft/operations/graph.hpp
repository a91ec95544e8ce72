// SPDX-License-Identifier: Apache-2.0
#pragma once
// Graphs whose nodes a domain axis cuts. Each rank has some nodes of each sample and the edges into them. A layer brings the
// nodes of other ranks from which its edges come, and its backward sends their gradients home: to<Ghosts<axis>>(x, graph).
//
//   const auto graph = graph_part<dx>(batch[value], batch[sender], batch[receiver]);
//   auto x = merge_samples(batch[value]);                                   // [samples * nodes, width], nodes of this rank
//   const auto around = to<Ghosts<dx>>(x, graph);                           // with those of other ranks behind them
//   const auto messages = mlp(concat<1>(index_select(around, graph.from), index_select(around, graph.into)));
//   x = x + scatter_add(messages, graph.into, x.shape()[0], local_ids);     // each node has all of its edges here
//
// Without the axis, or on one rank of it, this is the same program on the whole graph. mesh/graph_parts.hpp divides a graph.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/module.hpp>
#include <weft/autograd/nested_variable.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/samples.hpp>
#include <weft/operations/segments.hpp>
#include <weft/tensor/ghosts.hpp>

namespace weft {

/// The edges of a rank of axis A, of all samples of a micro-batch, in rows of that rank: Variables [samples * edges], cut along
/// dim 0. A Module takes it as an argument behind the first.
template <class A, class Ids>
struct GraphPart {
  using axis = A;
  using Rows = detail::GhostRows<typename Ids::tensor_type::execution_space>;
  GraphPart(Ids from, Ids into, Rows rows) : from(std::move(from)), into(std::move(into)), rows(std::move(rows)) {}
  Ids from;  ///< the sender of each edge, a row of Ghosts<A>
  Ids into;  ///< its receiver, a node of this rank
  Rows rows;
};

namespace detail {

template <class A, class Ids>
inline constexpr bool passed_along<GraphPart<A, Ids>> = true;

/// Whether these operands are a graph whose nodes A cuts; any are, where A is not in force.
template <class A, class C, class... X>
constexpr bool cut_as_graph() {
  constexpr bool fits = !C::has(A()) || (std::is_same_v<placement_t<X, A>, Shard<A, 1>> && ...);
  static_assert(
      fits,
      "weft: graph_part<axis>(nodes, senders, receivers) takes [samples, nodes, ...] and [samples, edges] that the axis "
      "cuts along dim 1: fields with data::Cut<axis, 1>");
  return fits;
}
/// A graph that was refused: its uses cause no second error.
struct RefusedGraph : AlreadyRefused {
  AlreadyRefused from, into;
};

template <class I>
std::vector<std::int64_t> host_ids(const I& ids) {
  const auto values = copy_to_host(ids);
  return {values.begin(), values.end()};
}

/// Throws UsageError for an id of another sample. On a GPU the host does not see the ids.
template <class I>
void require_ids_of_samples(const I& ids, const char* end, const EdgesOfSamples& edges) {
  if constexpr (on_host<typename I::execution_space>) {
    const std::int32_t* const data = ids.data();
    const std::size_t known = ids.device().rehearsal() == nullptr ? ids.size() : 0;
    for (std::size_t edge = 0; edge < known; ++edge) edges.require(edge, end, data[edge]);
  }
}

/// x with To on A's axis, by the rows of a graph's edges; the gradient moves back.
template <class To, class Back, class C, class X, class Rows>
auto moved_along_edges(const Variable<C, X>& x, const Rows& rows) {
  const auto move = []<class P>(std::type_identity<P>, const auto& context, const auto& value, const Rows& rows) {
    using V = std::remove_cvref_t<decltype(value)>;
    if constexpr (AnyTensor<V>) {
      using Y = replace_t<V, P>;
      const Communicator& comm = context.comm(typename P::axis());
      if (comm.size() == 1) return relabel<Y>(value);
      if constexpr (kind_of<P> == Kind::shard) return send_ghosts_home<Y>(comm, value, rows);
      else return bring_ghosts<Y>(comm, value, rows);
    } else {
      using Other = std::conditional_t<std::is_same_v<P, To>, Back, To>;
      return moved_along_edges<P, Other>(value, rows);
    }
  };
  return record_any(
      x, move(std::type_identity<To>(), x.context(), x.value(), rows),
      from(x, [rows, move](const auto& context, const auto& g) { return move(std::type_identity<Back>(), context, g, rows); }));
}

}  // namespace detail

namespace operations {

/// The part of a rank of axis A of the graphs of a micro-batch: nodes [samples, nodes, ...] give the number of its nodes, and
/// senders and receivers [samples, edges], whole numbers, the edges into them. Ids count the nodes of all samples of the
/// micro-batch on all ranks of A, in their order: node n of sample s is s * (nodes of a sample) + n. Ranks may have different
/// numbers of nodes and edges. Collective over A; the graph may differ from batch to batch. Throws UsageError for an id that is
/// no node or a node of another sample than its edge, an edge into a node of another rank, a rank without nodes, and in a
/// rehearsal of several ranks of A; ShapeError for ranks with other numbers of samples. Where A is not in force or has one rank,
/// ids are those of the whole graph, and are not checked if they are on a GPU.
template <class A, class C, class X, class I>
auto graph_part(const Variable<C, X>& nodes, const Variable<C, I>& senders, const Variable<C, I>& receivers) {
  if constexpr (!detail::cut_as_graph<A, C, X, I>()) {
    return detail::RefusedGraph();
  } else {
    const auto from = merge_samples(senders), into = merge_samples(receivers);
    using Ids = Variable<C, with_scalar_t<typename decltype(from)::tensor_type, std::int32_t>>;
    auto& device = nodes.value().device();
    const std::size_t samples = nodes.shape()[0], here = nodes.shape()[1];
    if constexpr (C::has(A())) {
      const Communicator& comm = nodes.context().comm(A());
      if (comm.size() > 1) {
        const detail::GhostPlan plan =
            detail::plan_ghosts(comm, {samples, here}, detail::host_ids(from.value()), detail::host_ids(into.value()));
        const auto on_device = [&](const std::vector<std::int32_t>& ids) {
          typename Ids::tensor_type tensor(device, {ids.size()});
          copy_from_host(tensor, std::span<const std::int32_t>(ids));
          return Ids(std::move(tensor), senders.tape());
        };
        return GraphPart<A, Ids>(on_device(plan.from), on_device(plan.into), {device, plan});
      }
    }
    const auto checked = [&](const auto& ids, const char* end) {
      auto rows = detail::ids_of(ids.value(), samples * here, {"graph_part", end, " of edge ", " nodes"});
      detail::require_ids_of_samples(rows, end, {samples, rows.size(), here});
      return Ids(std::move(rows), senders.tape());
    };
    return GraphPart<A, Ids>(checked(from, "sender"), checked(into, "receiver"), {});
  }
}

}  // namespace operations

/// x [nodes, ...] of a rank of A, placed Shard<A, 0>, with the nodes of other ranks that its edges name behind them:
/// to<Ghosts<A>>(x, graph) is [nodes + others, ...]. Its gradient, GhostTerms<A>, goes home: to<Shard<A, 0>>(g, graph) adds the
/// terms of all ranks, in accumulate_t by rank. Both may be inside of grad(f, x). Throws ShapeError for x of other rows than the
/// graph. The identity where A is not in force.
template <Placement To, class C, class X, class A, class Ids>
auto to(const Variable<C, X>& x, const GraphPart<A, Ids>& graph) {
  using P = placement_t<detail::bottom_t<X>, A>;
  constexpr bool brings = std::is_same_v<To, Ghosts<A>> && std::is_same_v<P, Shard<A, 0>>,
                 returns = std::is_same_v<To, Shard<A, 0>> && std::is_same_v<P, GhostTerms<A>>;
  static_assert(brings || returns || !C::has(A()),
                "weft: along the edges of a graph x [nodes, ...] placed Shard<axis, 0> becomes Ghosts<axis>, to<Ghosts<axis>>(x, "
                "graph), and GhostTerms<axis> become Shard<axis, 0>; merge_samples(x) makes rows of [samples, nodes, ...]");
  if constexpr (brings) return detail::moved_along_edges<To, P>(x, graph.rows);
  else if constexpr (returns) return detail::moved_along_edges<To, Ghosts<A>>(x, graph.rows);
  else return x;
}
template <Placement To, class Graph>
detail::AlreadyRefused to(detail::AlreadyRefused refused, const Graph&) {
  return refused;
}
template <Placement To, class C, class X>
detail::AlreadyRefused to(const Variable<C, X>&, detail::AlreadyRefused refused) {
  return refused;
}

}  // namespace weft
