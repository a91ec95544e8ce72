// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/segments.hpp weft/kernels/segments.hpp
// Operations over segments of rows compared with plain loops, their derivatives, their layouts on two ranks of dp and tp, and a
// layer of message passing on graphs that dp cuts, compared with products of matrices.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <weft/kernels/segments.hpp>
#include <weft/operations/segments.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::check_formula;
using weft_test::check_over;
using weft_test::Exec;

namespace {

template <class... P>
using F = Tensor<float, Exec, P...>;
template <class... P>
using I = Tensor<std::int32_t, Exec, P...>;

/// Whole numbers beside x, placed as P.
template <class Ids, class C, class X>
Variable<C, Ids> ids_beside(const Variable<C, X>& x, const std::vector<double>& list) {
  return Variable<C, Ids>(relabel<Ids>(weft_test::tensor_of<std::int32_t>(x.value().device(), {list.size()}, list)), x.tape());
}
/// Six rows in four segments, of which segment 1 has none; placed as x.
template <class C, class X>
auto six(const Variable<C, X>& x) {
  return ids_beside<with_scalar_t<X, std::int32_t>>(x, {3, 0, 2, 3, 0, 3});
}
/// Samples of three rows, each with two segments: ids of this rank's samples.
template <class C, class X>
auto samples(const Variable<C, X>& x) {
  std::vector<double> list;
  for (std::size_t row = 0; row < x.shape()[0]; ++row) list.push_back(double(row / 3 * 2 + (row % 3 == 1 ? 0 : 1)));
  return ids_beside<with_scalar_t<X, std::int32_t>>(x, list);
}
std::size_t segments_of(const auto& x) { return x.shape()[0] / 3 * 2; }

/// All four, of values that depend on each other.
template <class... L>
auto all(const auto& x, const auto& ids, std::size_t segments, L... scope) {
  const auto weights = segment_softmax(x * 2, ids, segments, scope...);
  return scatter_add(weights * x, ids, segments, scope...) * segment_max(x, ids, segments, scope...) +
         exp(segment_mean(x * x, ids, segments, scope...)) + segment_sum(x, ids, segments, scope...);
}

struct Loops {
  std::vector<double> sum, mean, max, softmax;
};
Loops loops(const std::vector<double>& x, const std::vector<double>& ids, std::size_t segments) {
  const std::size_t width = x.size() / ids.size();
  Loops out{std::vector<double>(segments * width), {}, std::vector<double>(segments * width), x};
  for (std::size_t s = 0; s < segments; ++s)
    for (std::size_t c = 0; c < width; ++c) {
      double sum = 0, top = 0, powers = 0, count = 0;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != double(s)) continue;
        top = count == 0 ? x[i * width + c] : std::max(top, x[i * width + c]);
        sum += x[i * width + c];
        ++count;
      }
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] == double(s)) powers += std::exp(x[i * width + c] - top);
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] == double(s)) out.softmax[i * width + c] = std::exp(x[i * width + c] - top) / powers;
      out.sum[s * width + c] = sum;
      out.mean.push_back(sum / std::max(count, 1.0));
      out.max[s * width + c] = top;
    }
  return out;
}
template <class T>
void compare(std::size_t width, double tolerance) {
  DefaultDevice device;
  constexpr std::size_t rows = 41, segments = 7;
  std::vector<double> list;
  for (std::size_t i = 0; i < rows; ++i) list.push_back(double(i * i * 5 % 6));  // segment 6, and others, have none
  const auto x = weft_test::tensor_of<T>(device, {rows, width}, weft_test::waves(rows * width, 0.2, 3));
  const auto ids = weft_test::tensor_of<std::int64_t>(device, {rows}, list);
  const Loops want = loops(weft_test::numbers_of(x), list, segments);
  CHECK(weft_test::difference(weft_test::numbers_of(scatter_add(x, ids, segments)), want.sum) < tolerance);
  CHECK(weft_test::numbers_of(segment_sum(x, ids, segments)) == weft_test::numbers_of(scatter_add(x, ids, segments)));
  CHECK(weft_test::difference(weft_test::numbers_of(segment_mean(x, ids, segments)), want.mean) < tolerance);
  CHECK(weft_test::numbers_of(segment_max(x, ids, segments)) == want.max);
  CHECK(weft_test::difference(weft_test::numbers_of(segment_softmax(x, ids, segments)), want.softmax) < tolerance);
}

/// A step of message passing: an MLP of both nodes of each edge, its messages summed at the edges' ends, an MLP of the node and
/// its sum, added to the node. Battaglia and others 2018; Pfaff and others 2021.
template <class Layer>
struct MessagePassing : Module<Layer> {
  Parameter<> edge, edge_out, node, node_out;
  explicit MessagePassing(const auto& context)
      : edge(context, "edge", {5, 8}, normal(0.5)),
        edge_out(context, "edge_out", {3, 5}, normal(0.5)),
        node(context, "node", {6, 7}, normal(0.5)),
        node_out(context, "node_out", {4, 6}, normal(0.5)) {}
  auto message(const auto& pairs) const { return matmul(silu(matmul(pairs, edge)), edge_out); }
  auto change(const auto& nodes, const auto& sums) const { return matmul(silu(matmul(concat<1>(nodes, sums), node)), node_out); }
};
/// The nodes, counted in the whole, at one end of each edge, in graphs of three nodes and five edges.
std::vector<double> ends(std::size_t nodes, const std::vector<double>& graph) {
  std::vector<double> list;
  for (std::size_t first = 0; first < nodes; first += 3)
    for (const double end : graph) list.push_back(double(first) + end);
  return list;
}
const std::vector<double> from_ends = {0, 2, 1, 2, 0}, to_ends = {1, 1, 0, 0, 1};

struct Graphs : MessagePassing<Graphs> {
  using MessagePassing::MessagePassing;
  template <class C, class X>
  auto forward(const Variable<C, X>& nodes) const {  // [nodes, 4]
    using Ids = with_scalar_t<X, std::int32_t>;
    const std::size_t count = nodes.shape()[0];
    const auto from = ids_beside<Ids>(nodes, ends(count, from_ends)), to = ids_beside<Ids>(nodes, ends(count, to_ends));
    const auto messages = message(concat<1>(index_select(nodes, from), index_select(nodes, to)));  // [edges, 3]
    return nodes + change(nodes, scatter_add(messages, to, count));                                // [nodes, 4]
  }
};
/// The same by products with matrices of ones and zeros [edges, nodes], on one rank.
struct Dense : MessagePassing<Dense> {
  using MessagePassing::MessagePassing;
  auto forward(const auto& nodes) const {
    const auto from = matrix(nodes, ends(nodes.shape()[0], from_ends)), to = matrix(nodes, ends(nodes.shape()[0], to_ends));
    const auto columns = transpose<0, 1>(nodes);  // [4, nodes]
    const auto messages = message(concat<1>(matmul(from, columns), matmul(to, columns)));
    return nodes + change(nodes, matmul(transpose<0, 1>(to), transpose<0, 1>(messages)));
  }
  template <class C, class X>
  static Variable<C, X> matrix(const Variable<C, X>& nodes, const std::vector<double>& list) {
    std::vector<double> ones(list.size() * nodes.shape()[0]);
    for (std::size_t edge = 0; edge < list.size(); ++edge) ones[edge * nodes.shape()[0] + std::size_t(list[edge])] = 1;
    return {weft_test::tensor_of<double>(nodes.value().device(), {list.size(), nodes.shape()[0]}, ones), nodes.tape()};
  }
};
struct MakeGraphs {
  Dense operator()(const weft_test::Alone::context& context) const { return Dense(context); }
  Graphs operator()(const auto& context) const { return Graphs(context); }
};

}  // namespace

TEST_CASE("segments against plain loops") {
  for (const std::size_t width : {1, 5, 70}) {
    compare<double>(width, 1e-14);
    compare<float>(width, 1e-5);
    compare<bfloat16>(width, 1e-2);
  }
  DefaultDevice device;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto x = weft_test::tensor_of<float>(device, {4, 1}, {2, nan, 2, 7});
  const auto ids = weft_test::tensor_of<std::int32_t>(device, {4}, {1, 0, 1, 0});
  const auto found = segment_max_and_place(x, ids, 3);
  CHECK(std::isnan(weft_test::numbers_of(found.first)[0]));
  CHECK(weft_test::numbers_of(found.second) == std::vector<double>{1, 0, -1});
  const auto none = scatter_add(F<>(device, {0, 2}), I<>(device, {0}), 2);
  CHECK(weft_test::numbers_of(none) == std::vector<double>{0, 0, 0, 0});
}

TEST_CASE("derivatives of operations over segments") {
  check_formula([](const auto& x) { return all(x, six(x), 4); }, {6, 5});
  check_formula([](const auto& x) { return all(x, six(x), 4); }, {6, 2, 3});
}

TEST_CASE("segments on two ranks") {
  check_over<Shard<dp, 0>>([](const auto& x) { return all(x, samples(x), segments_of(x)); }, {6, 5});
  check_over<Shard<tp, 0>>([](const auto& x) { return all(x, samples(x), segments_of(x), local_ids); }, {6, 5});
  check_over<Shard<tp, 0>>(
      [](const auto& x) {
        return index_select(scatter_add(x * x, samples(x), segments_of(x), local_ids), samples(x), local_ids) * x;
      },
      {6, 5});
  check_over<Invariant<tp>>([](const auto& x) { return all(x, six(x), 4); }, {6, 5});
  check_over<Invariant<tp>>(
      [](const auto& x) {
        const auto cut = to<Shard<tp, 1>>(x);
        return all(cut, ids_beside<with_scalar_t<std::remove_cvref_t<decltype(x.value())>, std::int32_t>>(x, {3, 0, 2, 3, 0, 3}),
                   4);
      },
      {6, 4});
  // Each rank has some rows of every segment: a Partial sum. The rows are gathered from a tensor that all ranks hold.
  check_over<Invariant<tp>>(
      [](const auto& x) {
        const auto ids = to<Shard<tp, 0>>(six(x));
        const auto edges = index_select(to<Replicated<tp>>(exp(x)), ids);
        return to<Invariant<tp>>(scatter_add(edges * edges * to<Shard<tp, 0>>(x), ids, 6)) * x;
      },
      {6, 4});
  check_over<Invariant<tp>>(
      [](const auto& x) {
        const auto terms = to<Partial<tp>>(x * x);
        return exp(to<Invariant<tp>>(scatter_add(terms, six(x), 4) + segment_mean(terms, six(x), 4)));
      },
      {6, 4});
}

TEST_CASE("message passing on graphs that dp cuts equals one rank's products with matrices of the edges") {
  CHECK(testing::check_layer([](const auto& context) { return Graphs(context); }, {6, 4}).compared > 100);
  CHECK(testing::check_layer_on<dp, Shard<dp, 0>>(2, MakeGraphs(), {6, 4}).compared > 100);
}

TEST_CASE("placements over segments") {
  using R = F<Replicated<tp>>;
  using S = F<Shard<tp, 0>>;
  using Ids = I<Shard<tp, 0>>;
  static_assert(std::is_same_v<decltype(scatter_add(std::declval<S>(), std::declval<Ids>(), 2)), F<Partial<tp>>>);
  static_assert(std::is_same_v<decltype(scatter_add(std::declval<S>(), std::declval<Ids>(), 2, local_ids)), S>);
  static_assert(std::is_same_v<decltype(segment_max(std::declval<R>(), std::declval<I<Invariant<tp>>>(), 2)), R>);
  using D = F<Shard<dp, 0>, Shard<tp, 0>>;
  using DIds = I<Shard<dp, 0>, Shard<tp, 0>>;
  static_assert(std::is_same_v<decltype(segment_sum(std::declval<D>(), std::declval<DIds>(), 2)), F<Shard<dp, 0>, Partial<tp>>>);
}

TEST_CASE("segments that are refused") {
  DefaultDevice device;
  const F<> x(device, {3, 2});
  const auto ids = weft_test::tensor_of<std::int32_t>(device, {3}, {0, 4, 1});
  CHECK(weft_test::refusal_of<UsageError>([&] { scatter_add(x, ids, 4); }) ==
        "weft: scatter_add: id 4 at 1 is not one of 4 segments, 0 to 3");
  CHECK(weft_test::refusal_of<UsageError>([&] { segment_softmax(x, ids, 2); }) ==
        "weft: segment_softmax: id 4 at 1 is not one of 2 segments, 0 to 1");
  CHECK(weft_test::refusal_of<UsageError>([&] { scatter_add(x, ids, 0); }) ==
        "weft: scatter_add: id 0 at 0 is not one of 0 segments");
  CHECK(weft_test::refusal_of<ShapeError>([&] {
          index_select(F<>(device, {3000000000, 0}), ids);
        }) == "weft: index_select: 3000000000 rows, and ids name at most 2147483647");
  CHECK(weft_test::refusal_of<ShapeError>([&] {
          segment_mean(F<>(device, {4, 2}), ids, 5);
        }) == "weft: segment_mean([4, 2], [3]): expected one id for each row");
  const F<Shard<tp, 0>> padded(device, Shape{3, 2}.set_sharding(0, DimSharding::padded));
  CHECK(weft_test::refusal_of<LayoutError>([&] {
          scatter_add(padded, relabel<I<Shard<tp, 0>>>(ids), 5);
        }).starts_with("weft: scatter_add: dim 0 of [3, 2] is padded, which a sum would count"));
}
