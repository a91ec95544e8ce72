// SPDX-License-Identifier: Apache-2.0
// Graphs whose nodes an axis cuts: a forgotten exchange, and nodes of other ranks under operations that have no rule for them.
#include <weft/operations/graph.hpp>
#include <weft/weft.hpp>

using namespace weft;

using Exec = Kokkos::DefaultExecutionSpace;
template <class T, class... P>
using X = Tensor<T, Exec, P...>;
using Over = decltype(std::declval<Context<Compute<Exec, float>>>().with<Invariant<dx>>(dx{}, Communicator()));
using Nodes = X<float, Shard<dx, 1>>;
using Ids = X<int, Shard<dx, 1>>;

// section: forgotten
// The senders of a rank's edges are nodes of other ranks too.
// expect: index_select: an axis cuts the tensor's rows, so a rank lacks those that its ids name
// mention: index_select\(to<Ghosts<axis>>\(x, graph\), graph.from\)
struct Messages : Module<Messages> {
  explicit Messages(const auto&) {}
  auto forward(const auto& nodes, const auto& senders, const auto& receivers) const {
    const auto graph = graph_part<dx>(nodes, senders, receivers);
    const auto x = merge_samples(nodes);
#ifdef WEFT_FAIL
    return tanh(scatter_add(index_select(x, graph.from), graph.into, x.shape()[0], local_ids));
#else
    return tanh(scatter_add(index_select(to<Ghosts<dx>>(x, graph), graph.from), graph.into, x.shape()[0], local_ids));
#endif
  }
};
auto go(const Over& context, Nodes x, Ids from, Ids into) {
  return weft::forward(Messages(context), context, x, from, into).output;
}

// section: order_of_rows
// expect: a domain axis cuts each sample, so these rows are \[samples, the rank's nodes\]
// mention: split_samples\(x\) first, then to<Invariant<axis>>
struct Gathered : Module<Gathered> {
  explicit Gathered(const auto&) {}
  auto forward(const auto& nodes) const {
#ifdef WEFT_FAIL
    return tanh(to<Invariant<dx>>(merge_samples(nodes)));
#else
    return tanh(to<Invariant<dx>>(split_samples(merge_samples(nodes))));
#endif
  }
};
auto go(const Over& context, Nodes x) { return weft::forward(Gathered(context), context, x).output; }

// section: exchange_without_edges
// expect: the edges of a graph decide which nodes of other ranks a rank has
// mention: graph_part<axis>\(nodes, senders, receivers\)
struct Messages : Module<Messages> {
  explicit Messages(const auto&) {}
  auto forward(const auto& nodes, const auto& senders, const auto& receivers) const {
    const auto graph = graph_part<dx>(nodes, senders, receivers);
    const auto x = merge_samples(nodes);
#ifdef WEFT_FAIL
    return index_select(to<Ghosts<dx>>(x), graph.from);
#else
    return index_select(to<Ghosts<dx>>(x, graph), graph.from);
#endif
  }
};
auto go(const Over& context, Nodes x, Ids from, Ids into) {
  return weft::forward(Messages(context), context, x, from, into).output;
}

// section: sum_of_ghosts
// Nodes of other ranks would count twice.
// expect: this operation has no rule for Ghosts
// mention: to<Ghosts<axis>>\(x, graph\)
#ifdef WEFT_FAIL
auto go(X<float, Ghosts<dx>> x) { return sum_all(x); }
#else
auto go(X<float, Shard<dx, 0>> x) { return sum_all(x); }
#endif

// section: nodes_along_another_dim
// A field of a graph is [samples, nodes, ...], and the axis cuts its nodes.
// expect: graph_part<axis>\(nodes, senders, receivers\) takes .samples, nodes, .... and .samples, edges. that the axis cuts along dim 1
#ifdef WEFT_FAIL
using Wrong = X<float, Shard<dx, 2>>;
#else
using Wrong = Nodes;
#endif
struct Messages : Module<Messages> {
  explicit Messages(const auto&) {}
  auto forward(const auto& nodes, const auto& senders, const auto& receivers) const {
    const auto graph = graph_part<dx>(nodes, senders, receivers);
    return exp(index_select(to<Ghosts<dx>>(merge_samples(nodes), graph), graph.from));
  }
};
auto go(const Over& context, Wrong x, Ids from, Ids into) {
  return weft::forward(Messages(context), context, x, from, into).output;
}

// section: ghosts_of_images
// Rows of a graph's nodes are those of all samples.
// expect: along the edges of a graph x .nodes, .... placed Shard<axis, 0> becomes Ghosts<axis>
struct Messages : Module<Messages> {
  explicit Messages(const auto&) {}
  auto forward(const auto& nodes, const auto& senders, const auto& receivers) const {
    const auto graph = graph_part<dx>(nodes, senders, receivers);
#ifdef WEFT_FAIL
    return exp(to<Ghosts<dx>>(nodes, graph));
#else
    return exp(to<Ghosts<dx>>(merge_samples(nodes), graph));
#endif
  }
};
auto go(const Over& context, Nodes x, Ids from, Ids into) {
  return weft::forward(Messages(context), context, x, from, into).output;
}
