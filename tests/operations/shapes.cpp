// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/along_dim.hpp weft/operations/shapes.hpp weft/operations/index_select.hpp
// covers: weft/operations/batched.hpp weft/operations/parts.hpp weft/kernels/along_dim.hpp weft/kernels/permute.hpp
// Reductions and softmax along a dim, other shapes, parts, rows by ids and batched products, with only a forward: derivatives,
// placements of results, equality on several ranks, every permutation and lane count compared with plain loops, and errors.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/permute.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/batched.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/parts.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/operations/variable_rows.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::check_cut;
using weft_test::check_formula;
using weft_test::check_rows;
using weft_test::Exec;

namespace {

template <class... P>
using F = Tensor<float, Exec, P...>;

// The dims `dims` of `values`, whose shape is [shape], in the order of a permutation's result, y.
std::vector<double> permuted(const std::vector<double>& values, const Shape& shape, const std::array<std::size_t, 4>& dims,
                             const Shape& y) {
  std::array<std::size_t, 4> strides{1, 1, 1, 1};
  for (std::size_t d = 3; d-- > 0;) strides[d] = strides[d + 1] * shape[d + 1];
  std::vector<double> want;
  for (std::size_t a = 0; a < y[0]; ++a)
    for (std::size_t b = 0; b < y[1]; ++b)
      for (std::size_t c = 0; c < y[2]; ++c)
        for (std::size_t d = 0; d < y[3]; ++d)
          want.push_back(values[a * strides[dims[0]] + b * strides[dims[1]] + c * strides[dims[2]] + d * strides[dims[3]]]);
  return want;
}
template <int... Dims>
void check_permutation(const Shape& shape) {
  DefaultDevice device;
  std::vector<double> values(shape.size());
  std::iota(values.begin(), values.end(), 0);
  const auto y = permute<Dims...>(weft_test::tensor_of<float>(device, shape, values));
  CHECK(weft_test::numbers_of(y) == permuted(values, shape, {Dims...}, y.shape()));
  CHECK(weft_test::numbers_of(permute_back<Dims...>(y)) == values);
}

/// Rows of three tables by four ids: a whole table; a whole table with ids that tp shards, so that its gradient is summed over
/// the ranks; and a table with columns that tp shards.
struct Lookup : Module<Lookup> {
  Parameter<> whole, inside;
  Parameter<Shard<tp, 1>> cut;
  explicit Lookup(const auto& context)
      : whole(context, "whole", {5, 6}, normal(1)),
        inside(context, "inside", {5, 6}, normal(1)),
        cut(context, "cut", {5, 6}, normal(1)) {}
  template <class C, class X>
  auto forward(const Variable<C, X>& x) const {
    using Ids = with_scalar_t<X, std::int64_t>;
    const auto list = weft_test::tensor_of<std::int64_t>(x.value().device(), {4}, {3, 0, 3, 1});
    const Variable<C, Ids> ids(relabel<Ids>(list), x.tape());
    const auto columns = to<Shard<tp, 1>>(x);
    const auto rows = index_select(to<Replicated<tp>>(beside(x, inside)), to<Shard<tp, 0>>(ids));
    return std::tuple(exp(index_select(beside(x, whole), ids)) * x, rows * rows * to<Shard<tp, 0>>(x),
                      index_select(beside(columns, cut), ids) * columns);
  }
};

/// Samples of three rows, each with a separate graph: four ids of its rows.
template <class C, class X>
auto edges(const Variable<C, X>& x) {
  const std::size_t samples = x.shape()[0] / 3;
  std::vector<double> ids;
  for (std::size_t sample = 0; sample < samples; ++sample)
    for (const std::size_t row : {2, 0, 2, 1}) ids.push_back(double(3 * sample + row));
  using Ids = with_scalar_t<X, std::int32_t>;
  return Variable<C, Ids>(relabel<Ids>(weft_test::tensor_of<std::int32_t>(x.value().device(), {4 * samples}, ids)), x.tape());
}

// Results of reductions and softmax of x along a dim.
struct Along {
  std::vector<double> x, sums, maxima, at, means, soft, logs;
};
// Along each dim of [3, 5, 37], in T, against plain loops.
void compare(const detail::Around& around, const Along& found, double tolerance) {
  double worst = 0;
  bool same = true;
  for (std::size_t o = 0; o < around.outer; ++o)
    for (std::size_t i = 0; i < around.inner; ++i) {
      const auto element = [&](std::size_t k) { return (o * around.extent + k) * around.inner + i; };
      double total = 0, largest = -1e9, power = 0;
      std::size_t place = 0;
      for (std::size_t k = 0; k < around.extent; ++k) {
        const double value = found.x[element(k)];
        total += value;
        power += std::exp(value);
        if (value > largest) largest = value, place = k;
      }
      const std::size_t out = o * around.inner + i;
      worst =
          std::max({worst, std::abs(found.sums[out] - total) / 10, std::abs(found.means[out] - total / double(around.extent))});
      same = same && found.maxima[out] == largest && std::size_t(found.at[out]) == place;
      for (std::size_t k = 0; k < around.extent; ++k) {
        const double value = found.x[element(k)];
        worst = std::max(worst, std::abs(found.soft[element(k)] - std::exp(value) / power));
        worst = std::max(worst, std::abs(found.logs[element(k)] - (value - std::log(power))) / 4);
      }
    }
  CHECK(worst < tolerance);
  CHECK(same);
}
template <class T, int Dim>
void check_along(double tolerance) {
  DefaultDevice device;
  const Shape shape{3, 5, 37};
  const auto x = weft_test::tensor_of<T>(device, shape, weft_test::waves(shape.size(), 0.4, 2));
  using weft_test::numbers_of;
  compare(detail::Around(shape, Dim),
          {numbers_of(x), numbers_of(sum<Dim>(x)), numbers_of(max<Dim>(x)), numbers_of(argmax<Dim>(x)), numbers_of(mean<Dim>(x)),
           numbers_of(softmax<Dim>(x)), numbers_of(log_softmax<Dim>(x))},
          tolerance);
}
template <class T>
void check_along_each(double tolerance) {
  check_along<T, 0>(tolerance);
  check_along<T, 1>(tolerance);
  check_along<T, 2>(tolerance);
}

}  // namespace

TEST_CASE("sums, means, maxima and softmax along a dim") {
  check_along_each<double>(1e-14);
  check_along_each<float>(1e-6);
  check_along_each<bfloat16>(1e-2);
  check_rows([](const auto& x) { return sum<1>(square(x)); }, {4, 6});
  check_rows([](const auto& x) { return exp(mean<2>(x)) * max<2>(x); }, {4, 3, 5});
  check_rows([](const auto& x) { return max<1>(x) - sum<1>(x * x); }, {4, 3, 5});
  check_rows([](const auto& x) { return softmax<2>(x) * softmax<1>(x) + log_softmax<1>(x) * log_softmax<2>(x); }, {4, 3, 5});
  check_rows([](const auto& x) { return softmax(x) * x - log_softmax(x); }, {4, 3, 5});
  check_formula([](const auto& x) { return softmax<0>(x) * log_softmax<0>(x); }, {4, 3, 5});
  check_formula([](const auto& x) { return sum(square(x)) + exp(mean(x)); }, {4, 3});
  check_cut<1>([](const auto& x) { return max<2>(x) * mean<2>(x) + sum<2>(softmax<2>(x) * x); }, {4, 6, 5});
  // Along a dim that tp shards, the sum is Partial, and its all-reduce has a separate backward.
  check_cut<1>([](const auto& x) { return exp(to<Invariant<tp>>(sum<1>(square(x)))); }, {4, 6});
  check_cut<2>([](const auto& x) { return exp(to<Invariant<tp>>(sum<2>(square(x)))); }, {4, 3, 6});
  using X = F<Shard<dp, 0>, Shard<tp, 2>>;
  static_assert(std::is_same_v<decltype(sum<1>(std::declval<X>())), F<Shard<dp, 0>, Shard<tp, 1>>> &&
                std::is_same_v<decltype(sum<2>(std::declval<X>())), F<Shard<dp, 0>, Partial<tp>>> &&
                std::is_same_v<decltype(sum<0>(std::declval<X>())), F<Partial<dp>, Shard<tp, 1>>> &&
                std::is_same_v<decltype(sum(std::declval<X>())), F<Partial<dp>, Partial<tp>>>);
  static_assert(std::is_same_v<decltype(argmax<1>(std::declval<X>())), Tensor<std::int32_t, Exec, Shard<dp, 0>, Shard<tp, 1>>>);
}

TEST_CASE("the first of equal elements is the largest, a NaN is larger") {
  DefaultDevice device;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto x = weft_test::tensor_of<float>(device, {2, 3}, {1, 3, 3, 2, nan, 5});
  CHECK(weft_test::numbers_of(argmax<1>(x)) == std::vector<double>{1, 1});
  CHECK(weft_test::numbers_of(argmax<0>(x)) == std::vector<double>{1, 1, 1});
  CHECK(std::isnan(weft_test::numbers_of(max<1>(x))[1]));
}

TEST_CASE("dims in another order") {
  const Shape shape{3, 35, 2, 33};
  check_permutation<0, 1, 2, 3>(shape);
  check_permutation<0, 1, 3, 2>(shape);
  check_permutation<0, 3, 1, 2>(shape);
  check_permutation<0, 2, 3, 1>(shape);
  check_permutation<3, 2, 1, 0>(shape);
  check_permutation<1, 0, 2, 3>(shape);
  check_permutation<2, 3, 0, 1>(shape);
  check_permutation<1, 3, 0, 2>(shape);
  check_permutation<3, 0, 2, 1>({1, 4, 1, 5});
  check_permutation<3, 0, 2, 1>({1, 1, 1, 1});
  check_formula([](const auto& x) { return permute<2, 0, 1>(x * x); }, {3, 4, 5});
  check_rows([](const auto& x) { return transpose<1, 2>(exp(x)); }, {4, 3, 5});
  check_cut<1>([](const auto& x) { return sum<1>(transpose<1, 2>(exp(x))); }, {4, 6, 5});
  using X = F<Shard<dp, 0>, Shard<tp, 1>>;
  static_assert(std::is_same_v<decltype(permute<1, 2, 0>(std::declval<X>())), F<Shard<dp, 2>, Shard<tp, 0>>> &&
                std::is_same_v<decltype(transpose<1, 3>(std::declval<X>())), F<Shard<dp, 0>, Shard<tp, 3>>> &&
                std::is_same_v<decltype(flatten<1, 2>(std::declval<X>())), X> &&
                std::is_same_v<decltype(flatten<2, 3>(std::declval<F<Shard<tp, 2>>>())), F<Shard<tp, 2>>> &&
                std::is_same_v<decltype(flatten<0, 1>(std::declval<F<Shard<tp, 3>>>())), F<Shard<tp, 2>>> &&
                std::is_same_v<decltype(unflatten<0>(std::declval<X>(), 2, 3)), F<Shard<dp, 0>, Shard<tp, 3>>>);
}

TEST_CASE("dims joined, divided and cut") {
  check_rows([](const auto& x) { return exp(flatten<1, 2>(x)); }, {4, 3, 5});
  check_rows([](const auto& x) { return unflatten<1>(x * x, 3) * 2 + unflatten<1>(x, 3); }, {4, 6});
  check_cut<1>([](const auto& x) { return sum<2>(square(unflatten<1>(x, 3))); }, {4, 12});
  check_rows([](const auto& x) { return reshape(square(x), {x.rows() / 2, 2 * x.columns()}); }, {4, 6});
  check_rows([](const auto& x) { return merge_heads(split_heads(x, 3) * 2); }, {4, 6});
  check_rows([](const auto& x) { return slice<1>(x, 1, 3) * slice<1>(x, 3, 3); }, {4, 6});
  check_formula([](const auto& x) { return slice<0>(x * x, 1, 2) - slice<0>(x, 2, 2); }, {4, 6});
  check_rows([](const auto& x) { return concat<1>(x, slice<1>(exp(x), 2, 2), x * x); }, {4, 6, 2});
  check_rows(
      [](const auto& x) {
        auto [a, b, c] = chunk<1, 3>(exp(x));
        return a * b;  // c has no gradient
      },
      {4, 6});
  check_formula(
      [](const auto& x) {
        auto [a, b] = chunk<0, 2>(x);
        return concat<0>(b * b, a, a);
      },
      {4, 6});
  check_cut<1>([](const auto& x) { return concat<2>(x, slice<2>(x * x, 1, 2)); }, {4, 6, 3});
}

TEST_CASE("rows by ids") {
  const auto make = [](const auto& context) { return Lookup(context); };
  CHECK(testing::check_layer(make, {4, 6}).compared > 24);
  CHECK(testing::check_layer_on<dp, Shard<dp, 0>>(1, make, {4, 6}).compared > 24);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, {4, 6}).compared > 24);
  DefaultDevice device;
  const auto x = weft_test::tensor_of<bfloat16>(device, {3, 2}, {1, 2, 3, 4, 5, 6});
  const auto ids = weft_test::tensor_of<std::uint8_t>(device, {4}, {2, 0, 2, 2});
  CHECK(weft_test::numbers_of(index_select(x, ids)) == std::vector<double>{5, 6, 1, 2, 5, 6, 5, 6});
  CHECK(weft_test::numbers_of(index_select_gradient(x, ids, index_select(x, ids))) == std::vector<double>{1, 2, 0, 0, 15, 18});
  CHECK(weft_test::refusal_of<UsageError>([&] {
          index_select(x, weft_test::tensor_of<std::int32_t>(device, {2}, {1, 3}));
        }) == "weft: index_select: id 3 at 1 is not one of 3 rows, 0 to 2");
  CHECK(weft_test::refusal_of<UsageError>([&] { index_select(x, weft_test::tensor_of<std::int64_t>(device, {1}, {-1})); }) ==
        "weft: index_select: id -1 at 0 is not one of 3 rows, 0 to 2");
}

TEST_CASE("rows by ids of each rank's own samples") {
  weft_test::check_over<Shard<dp, 0>>([](const auto& x) { return exp(index_select(x * x, edges(x))); }, {6, 5});
  using R = F<Shard<dp, 0>, Replicated<tp>>;
  using I = with_scalar_t<F<Shard<dp, 0>, Shard<tp, 0>>, std::int32_t>;
  static_assert(std::is_same_v<decltype(index_select(std::declval<R>(), std::declval<I>())), F<Shard<dp, 0>, Shard<tp, 0>>>);
  DefaultDevice device;
  const F<Shard<dp, 0>> x(device, {3, 2});
  CHECK(weft_test::refusal_of<UsageError>([&] {
          index_select(x, weft_test::tensor_of<std::int32_t, Shard<dp, 0>>(device, {2}, {1, 4}));
        }) == "weft: index_select: id 4 at 1 is not one of 3 rows, 0 to 2");
  // Ids of a whole graph, of which this rank has three nodes.
  CHECK(
      weft_test::refusal_of<UsageError>([&] {
        index_select(F<Shard<dx, 0>>(device, {3, 2}), weft_test::tensor_of<std::int32_t, Shard<dx, 0>>(device, {2}, {1, 4}),
                     local_ids);
      }) ==
      "weft: index_select: id 4 at 1 is not one of 3 rows, 0 to 2, of this rank, as local_ids counts them: nodes of other ranks "
      "come by to<Ghosts<axis>>(x, graph), and graph.from counts them");
}

TEST_CASE("the sum over rows of a tensor cut along dim 2 is Partial") {
  using Four = F<Shard<dp, 0>, Shard<tp, 2>>;
  static_assert(std::is_same_v<decltype(sum_rows(std::declval<Four>())), F<Partial<dp>, Partial<tp>>> &&
                std::is_same_v<decltype(sum_rows(std::declval<F<Shard<tp, 3>>>())), F<Shard<tp, 0>>>);
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) { return exp(to<Invariant<dp>>(to<Invariant<tp>>(sum_rows(square(to<Shard<tp, 2>>(x)))))); },
      {2, 3, 4, 5});
  DefaultDevice device;
  CHECK(weft_test::refusal_of<ShapeError>([&] {
          sum_rows(F<Shard<tp, 2>>(device, {2, 3, 4}));
        }) == "weft: sum_rows([2, 3, 4]): an axis cuts the columns, dim 2: name the summed dims, sum<0>(flatten<0, 1>(x))");
  CHECK(weft_test::refusal_of<ShapeError>([&] {
          sum_rows(F<Shard<tp, 3>>(device, {2, 3, 4, 5, 6}));
        }) == "weft: sum_rows([2, 3, 4, 5, 6]): an axis cuts rows along dim 3: name the summed dims, sum<0>(flatten<0, 3>(x))");
  static_assert(std::is_same_v<decltype(sum_rows(std::declval<F<Shard<tp, 4>>>())), F<Partial<tp>>>);
}

TEST_CASE("tensors of six dims") {
  weft_test::check_formula([](const auto& x) { return transpose<0, 5>(permute<5, 3, 1, 0, 2, 4>(unflatten<3>(x * x, 2, 2))); },
                           {2, 3, 2, 4});
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) {
        const auto y = to<Shard<tp, 4>>(unflatten<1>(x, 2, 1, 2, 2));
        return exp(to<Invariant<tp>>(sum<1>(transpose<4, 1>(flatten<2, 3>(y * y)))));
      },
      {3, 16});
}

TEST_CASE("batched products") {
  check_rows([](const auto& x) { return batched_matmul(transpose<1, 2>(x), exp(x)); }, {4, 3, 5});
  check_rows(
      [](const auto& x) {
        return batched_matmul_transposed(x, batched_matmul(batched_transposed_matmul(x * x, x), transpose<1, 2>(x)) * 2);
      },
      {2, 3, 3});
  check_rows([](const auto& x) { return batched_matmul(softmax(batched_matmul_transposed(x, x * 2)), x); }, {4, 3, 5});
  check_cut<0>([](const auto& x) { return batched_matmul_transposed(x, exp(x)); }, {4, 3, 5});
  // Cut along the rows of the left, the columns of the right, and the summed dim.
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) { return batched_matmul_transposed(to<Shard<tp, 1>>(x), to<Replicated<tp>>(x * x)); }, {3, 4, 6});
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) { return batched_matmul_transposed(to<Replicated<tp>>(x * x), to<Shard<tp, 1>>(x)); }, {3, 4, 6});
  weft_test::check_over<Invariant<tp>>(
      [](const auto& x) { return to<Invariant<tp>>(batched_matmul_transposed(to<Shard<tp, 2>>(x), to<Shard<tp, 2>>(exp(x)))); },
      {3, 4, 6});
  using B = F<Shard<tp, 0>>;
  static_assert(
      std::is_same_v<decltype(batched_matmul(std::declval<B>(), std::declval<B>())), B> &&
      std::is_same_v<decltype(batched_matmul(std::declval<F<Shard<tp, 2>>>(), std::declval<F<Shard<tp, 1>>>())), F<Partial<tp>>>);
  DefaultDevice device;
  const auto a = weft_test::tensor_of<float>(device, {2, 3, 4}, weft_test::waves(24)),
             b = weft_test::tensor_of<float>(device, {2, 4, 5}, weft_test::waves(40, 1));
  const auto left = weft_test::tensor_of<double>(device, {2, 3, 4}, weft_test::waves(24)),
             right = weft_test::tensor_of<double>(device, {2, 4, 5}, weft_test::waves(40, 1));
  CHECK(weft_test::difference(weft_test::numbers_of(batched_matmul(a, b)), weft_test::numbers_of(batched_matmul(left, right))) <
        1e-6);
}

TEST_CASE("shapes that these operations refuse") {
  DefaultDevice device;
  const F<> x(device, {4, 6}), y(device, {4, 3, 2});
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] { sum<2>(x); }) == "weft: sum([4, 6]): there is no dim 2");
  CHECK(refusal([&] { max<1>(F<>(device, {4, 0})); }) == "weft: max([4, 0]): dim 1 is empty");
  CHECK(refusal([&] { permute<1, 0>(y); }) == "weft: permute([4, 3, 2]): 3 dims, not 2");
  CHECK(refusal([&] { transpose<1, 2>(x); }) == "weft: transpose([4, 6]): there is no dim 2");
  CHECK(refusal([&] { unflatten<1>(x, 4); }) == "weft: unflatten([4, 6]): dim 1 is not a multiple of 4");
  CHECK(refusal([&] { unflatten<1>(y, 1, 1, 1, 3); }) == "weft: unflatten([4, 3, 2]): the result would have more than 6 dims");
  CHECK(refusal([&] { slice<1>(x, 4, 3); }) == "weft: slice([4, 6]): there is no 4 to 7 along dim 1");
  CHECK(refusal([&] { chunk<1, 4>(x); }) == "weft: chunk([4, 6]): dim 1 is not 4 equal parts");
  CHECK(refusal([&] { concat<0>(x, F<>(device, {4, 5})); }) == "weft: concat([4, 6], [4, 5]): the extents beside dim 0 differ");
  CHECK(refusal([&] {
          index_select(x, weft_test::tensor_of<std::int32_t>(device, {1, 1}, {0}));
        }) == "weft: index_select([4, 6], [1, 1]): expected ids of one dim");
  CHECK(refusal([&] { batched_matmul(x, y); }) ==
        "weft: batched_matmul([4, 6], [4, 3, 2]): expected two batches of as many matrices, [b, rows, columns]");
  CHECK(refusal([&] { batched_matmul(y, y); }) == "weft: batched_matmul([4, 3, 2], [4, 3, 2]): the summed dims differ, 2 and 3");
  const F<Shard<tp, 1>> padded(device, Shape{4, 6}.set_sharding(1, DimSharding::padded));
  CHECK(weft_test::refusal_of<LayoutError>([&] { sum<1>(padded); }) ==
        "weft: sum: dim 1 of [4, 6] is padded, which a sum would count; of the terms of a gradient (Of::gradients) every rank's "
        "count");
  CHECK(weft_test::refusal_of<LayoutError>([&] {
          flatten<0, 1>(F<>(device, Shape{4, 6}.set_sharding(1, DimSharding::padded)));
        }) == "weft: flatten: dim 1 of [4, 6] is padded, cut by segments or held alike");
}
