// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/elementwise.hpp weft/operations/reductions.hpp weft/operations/softmax.hpp
// covers: weft/operations/views.hpp weft/kernels/rows.hpp
// Every typed operation: values and gradients by finite differences, equality on several ranks, the placement of its result, and
// its errors.

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/kernels/rows.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/operations/softmax.hpp>
#include <weft/operations/views.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
template <class... P>
using D = Tensor<double, Exec, P...>;
template <class... P>
using F = Tensor<float, Exec, P...>;

/// f(context, x) and b(context, x, g) as a layer.
template <class Forward, class Backward>
struct Function {
  Forward f;
  Backward b;
  auto forward(const auto& context, const auto& x) const { return Result{f(context, x), x}; }
  auto backward(const auto& context, auto x, const auto& g) const { return b(context, x, g); }
};
template <class A, class B>
Function(A, B) -> Function<A, B>;

/// Against finite differences, and over tp with x whole and with its rows cut.
template <class Forward, class Backward>
void check(Forward f, Backward b, const Shape& shape = {4, 6}) {
  const auto make = [=](const auto&) { return Function{f, b}; };
  CHECK(testing::check_layer(make, shape).compared != 0);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, shape).compared != 0);
  CHECK(testing::check_layer_on<tp, Shard<tp, 0>>(2, make, shape).compared != 0);
}
/// The same, and on columns that tp cuts.
template <class Forward, class Backward>
void check_columns(Forward f, Backward b, const Shape& shape = {4, 6}) {
  check(f, b, shape);
  const auto cut = [=](const auto&) {
    return Function{[=](const auto& context, const auto& x) { return f(context, to<Shard<tp, 1>>(context, x)); },
                    [=](const auto& context, const auto& x, const auto& g) {
                      return to_layout_of<gradient_t<std::remove_cvref_t<decltype(x)>>>(
                          context, b(context, to<Shard<tp, 1>>(context, x), g));
                    }};
  };
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, cut, shape).compared != 0);
}

// Positive numbers of x.
auto positive(const auto& x) { return exp(scale(x, 0.5)); }
auto positive_gradient(const auto& x, const auto& g) { return scale(times(g, positive(x)), 0.5); }

template <class Error, class Act>
std::string refusal(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class X, class... V>
X tensor(DefaultDevice& device, const Shape& shape, V... values) {
  X x(device, shape);
  const std::vector<typename X::value_type> all{typename X::value_type(values)...};
  copy_from_host(x, std::span<const typename X::value_type>(all));
  return x;
}

}  // namespace

TEST_CASE("functions of each element") {
  check_columns([](const auto&, const auto& x) { return exp(x); },
                [](const auto&, const auto& x, const auto& g) { return times(g, exp(x)); });
  check_columns([](const auto&, const auto& x) { return log(positive(square(x))); },
                [](const auto&, const auto& x, const auto& g) {
                  const auto s = square(x);
                  return scale(times(positive_gradient(s, divide(g, positive(s))), x), 2);
                });
  check_columns(
      [](const auto&, const auto& x) { return sqrt(positive(x)); },
      [](const auto&, const auto& x, const auto& g) { return positive_gradient(x, scale(divide(g, sqrt(positive(x))), 0.5)); });
  check_columns([](const auto&, const auto& x) { return tanh(x); },
                [](const auto&, const auto& x, const auto& g) { return subtract(g, times(g, square(tanh(x)))); });
  check_columns([](const auto&, const auto& x) { return sigmoid(x); },
                [](const auto&, const auto& x, const auto& g) {
                  const auto y = sigmoid(x);
                  return times(subtract(g, times(g, y)), y);
                });
  check_columns([](const auto&, const auto& x) { return divide(subtract(x, square(x)), positive(x)); },
                [](const auto&, const auto& x, const auto& g) {
                  const auto top = subtract(x, square(x)), bottom = positive(x);
                  const auto d_top = divide(g, bottom), d_bottom = scale(divide(times(g, divide(top, bottom)), bottom), -1);
                  return add(subtract(d_top, scale(times(d_top, x), 2)), positive_gradient(x, d_bottom));
                });
}

TEST_CASE("products with a number for each row, and sums of rows") {
  // x over the root of its row's sum of squares and one, times that sum: mean and sum, times_column and divide_column.
  const auto forward = [](const auto&, const auto& x) {
    const auto m = mean_columns(square(x));
    return times_column(divide_column(x, positive(m)), m);
  };
  const auto backward = [](const auto&, const auto& x, const auto& g) {
    const auto m = mean_columns(square(x));
    const auto p = positive(m), y = divide(m, p);  // x y
    const auto dy = sum_columns(times(x, g), Of::gradients);
    const auto dm = subtract(divide(dy, p), positive_gradient(m, divide(times(dy, y), p)));
    return add(times_column(g, y), scale(times(x, mean_columns_gradient(x, dm)), 2));
  };
  check(forward, backward);
  // The sum of a row with columns that tp shards, reduced, and a product with it.
  const auto whole = []<class X>(const auto& context, const X&, const auto& s) {
    if constexpr (std::is_same_v<placement_t<X, tp>, Shard<tp, 1>>)
      return to<Replicated<tp>>(context, to<Invariant<tp>>(context, s));
    else return s;
  };
  check_columns([=](const auto& context, const auto& x) { return times_column(x, whole(context, x, sum_columns(x))); },
                [=](const auto& context, const auto& x, const auto& g) {
                  const auto s = whole(context, x, sum_columns(x)),
                             ds = whole(context, x, sum_columns(times(x, g), Of::gradients));
                  return add(times_column(g, s), sum_columns_gradient(x, ds));
                });
}

TEST_CASE("products with one number, and sums of everything") {
  const auto home = [](const auto& context, const auto& s) {
    return to<Replicated<dp>>(context, to<Invariant<dp>>(context, to<Replicated<tp>>(context, to<Invariant<tp>>(context, s))));
  };
  const auto as = []<class X>(const auto& context, const X&, const auto& s) {  // with x as a further input
    if constexpr (std::is_same_v<placement_t<X, tp>, Invariant<tp>>) return to<Invariant<tp>>(context, s);
    else return s;
  };
  const auto number = [=](const auto& context, const auto& x) {
    return as(context, x, home(context, add(dot<double>(x, x), scale(sum_all<double>(x), 3))));
  };
  check_columns([=](const auto& context, const auto& x) { return times_scalar(x, number(context, x)); },
                [=](const auto& context, const auto& x, const auto& g) {
                  const auto s = number(context, x);
                  const auto ds = as(context, x, home(context, dot(x, g, Of::gradients)));
                  return add(times_scalar(g, s), add(scale(times_scalar(x, ds), 2), scale(sum_all_gradient(x, ds), 3)));
                });
}

TEST_CASE("softmax, its logarithm and log sum exp") {
  check([](const auto&, const auto& x) { return softmax(x); },
        [](const auto&, const auto& x, const auto& g) { return softmax_gradient(softmax(x), g); });
  check([](const auto&, const auto& x) { return log_softmax(x); },
        [](const auto&, const auto& x, const auto& g) { return log_softmax_gradient(log_softmax(x), g); });
  check([](const auto&, const auto& x) { return log_sum_exp(x); },
        [](const auto&, const auto& x, const auto& g) { return log_sum_exp_gradient(x, log_sum_exp(x), g); });
  // Over columns that tp cuts, the last one padding.
  const auto cut = [](const auto&) {
    return Function{[](const auto& context, const auto& x) { return log_sum_exp(context, to<Shard<tp, 1>>(context, x), 5); },
                    [](const auto& context, const auto& x, const auto& g) {
                      const auto z = to<Shard<tp, 1>>(context, x);
                      return to_layout_of<gradient_t<std::remove_cvref_t<decltype(x)>>>(
                          context, log_sum_exp_gradient(context, z, 5, log_sum_exp(context, z, 5), g));
                    }};
  };
  CHECK(testing::check_layer(cut, {4, 6}).compared != 0);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, cut, {4, 6}).compared != 0);
  DefaultDevice device;
  const auto x = tensor<F<>>(device, {2, 3}, 1000, 1000, -1000, 0, 0, 0);
  const auto y = copy_to_host(softmax(x));
  CHECK(y[0] == doctest::Approx(0.5));
  CHECK(y[2] == 0);
  CHECK(copy_to_host(log_sum_exp(x))[0] == doctest::Approx(1000 + std::log(2)));
}

TEST_CASE("views and parts of columns") {
  check([](const auto&, const auto& x) { return concat_columns(slice_columns(x, 3, 3), scale(slice_columns(x, 0, 4), 2)); },
        [](const auto&, const auto& x, const auto& g) {
          return add(slice_columns_gradient(x, 3, slice_columns(g, 0, 3)),
                     slice_columns_gradient(x, 0, scale(slice_columns(g, 3, 4), 2)));
        });
  check(
      [](const auto&, const auto& x) {
        return exp(reshape(x, {x.rows(), 2, 3}));
      },
      [](const auto&, const auto& x, const auto& g) {
        return reshape(times(g, exp(reshape(x, {x.rows(), 2, 3}))), x.shape());
      });
  DefaultDevice device;
  const auto x = tensor<F<>>(device, {2, 4}, 1, 2, 3, 4, 5, 6, 7, 8);
  const auto heads = split_heads(x, 2);
  CHECK(heads.shape() == Shape{2, 2, 2});
  CHECK(heads.data() == x.data());
  CHECK(merge_heads(heads).data() == x.data());
  CHECK(copy_to_host(slice_columns(x, 1, 2)) == std::vector<float>{2, 3, 6, 7});
  CHECK(copy_to_host(concat_columns(x, x)) == std::vector<float>{1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8});
  CHECK(copy_to_host(sum_columns(x)) == std::vector<float>{10, 26});
  CHECK(copy_to_host(sum_groups(x, 2)) == std::vector<float>{16, 20});
  CHECK(copy_to_host(sum_heads(heads)) == std::vector<float>{16, 20});
  CHECK(copy_to_host(sum_each_head(heads)) == std::vector<float>{3, 7, 11, 15});
  CHECK(copy_to_host(mean_each_head(heads)) == std::vector<float>{1.5, 3.5, 5.5, 7.5});
  CHECK(copy_to_host(times_each_head(heads, sum_each_head(heads))) == std::vector<float>{3, 6, 21, 28, 55, 66, 105, 120});
  CHECK(copy_to_host(times_heads(heads, tensor<F<>>(device, {2}, 1, 10))) == std::vector<float>{1, 20, 3, 40, 5, 60, 7, 80});
  CHECK(copy_to_host(dot<double>(x, x)) == std::vector<double>{204});
  CHECK(copy_to_host(cast<double>(x))[7] == 8);
  CHECK(copy_to_host(times_scalar(x, dot<double>(x, x)))[1] == 408);
  // A part of a buffer keeps its address.
  const F<> second(device, {1, 4}, x.buffer(), 4);
  CHECK(copy_to_host(split_heads(second, 2)) == std::vector<float>{5, 6, 7, 8});
}

TEST_CASE("how results lie on an axis") {
  using I = Invariant<tp>;
  using R = Replicated<tp>;
  using P = Partial<tp>;
  using S0 = Shard<tp, 0>;
  using S1 = Shard<tp, 1>;
  const auto result = []<class X>(X*, auto f) { return std::type_identity<decltype(f(std::declval<X>()))>{}; };
  const auto rows = [](auto x) { return sum_columns(x); };
  const auto all = [](auto x) { return sum_all(x); };
  const auto heads = [](auto x) { return sum_heads(x); };
  const auto each = [](auto x) { return sum_each_head(x); };
  const auto groups = [](auto x) { return sum_groups(x, 2); };
  static_assert(std::is_same_v<decltype(result((F<I>*)nullptr, rows)), std::type_identity<F<I>>> &&
                std::is_same_v<decltype(result((F<R>*)nullptr, rows)), std::type_identity<F<R>>>);
  static_assert(std::is_same_v<decltype(result((F<S0>*)nullptr, rows)), std::type_identity<F<S0>>> &&
                std::is_same_v<decltype(result((F<S1>*)nullptr, rows)), std::type_identity<F<P>>>);
  static_assert(std::is_same_v<decltype(result((F<P>*)nullptr, rows)), std::type_identity<F<P>>>);
  static_assert(std::is_same_v<decltype(result((F<S0, Shard<dp, 0>>*)nullptr, all)), std::type_identity<F<P, Partial<dp>>>>);
  static_assert(std::is_same_v<decltype(result((F<S1, Shard<dp, 0>>*)nullptr, heads)), std::type_identity<F<P, Partial<dp>>>>);
  static_assert(std::is_same_v<decltype(result((F<S1, Shard<dp, 0>>*)nullptr, groups)), std::type_identity<F<P, Partial<dp>>>>);
  static_assert(std::is_same_v<decltype(result((F<I, R>*)nullptr, heads)), std::type_identity<F<I, R>>>);
  static_assert(std::is_same_v<decltype(result((F<S1, Shard<dp, 0>>*)nullptr, each)), std::type_identity<F<S1, Shard<dp, 0>>>>);
  const auto product = []<class X, class Y>(X*, Y*, auto f) {
    return std::type_identity<decltype(f(std::declval<X>(), std::declval<Y>()))>{};
  };
  const auto inner = [](auto x, auto y) { return dot(x, y); };
  const auto column = [](auto x, auto v) { return times_column(x, v); };
  const auto one = [](auto x, auto s) { return times_scalar(x, s); };
  static_assert(std::is_same_v<decltype(product((F<S1>*)nullptr, (F<S1>*)nullptr, inner)), std::type_identity<F<P>>>);
  static_assert(std::is_same_v<decltype(product((F<R>*)nullptr, (F<P>*)nullptr, inner)), std::type_identity<F<P>>>);
  static_assert(std::is_same_v<decltype(product((F<I>*)nullptr, (F<I>*)nullptr, inner)), std::type_identity<F<I>>>);
  static_assert(std::is_same_v<decltype(product((F<S1>*)nullptr, (F<R>*)nullptr, column)), std::type_identity<F<S1>>>);
  static_assert(std::is_same_v<decltype(product((F<S0>*)nullptr, (F<S0>*)nullptr, column)), std::type_identity<F<S0>>>);
  static_assert(std::is_same_v<decltype(product((F<R>*)nullptr, (F<P>*)nullptr, column)), std::type_identity<F<P>>>);
  static_assert(std::is_same_v<decltype(product((F<S1>*)nullptr, (D<R>*)nullptr, one)), std::type_identity<F<S1>>>);
  static_assert(std::is_same_v<decltype(product((F<P>*)nullptr, (F<I>*)nullptr, one)), std::type_identity<F<P>>>);
}

TEST_CASE("shapes that operations refuse") {
  DefaultDevice device;
  const F<> x(device, {4, 6}), heads(device, {4, 2, 3});
  CHECK(refusal<ShapeError>([&] { sum_columns(heads); }) == "weft: sum_columns([4, 2, 3]): 3 dims, expected 2");
  CHECK(refusal<ShapeError>([&] { sum_heads(x); }) == "weft: sum_heads([4, 6]): 2 dims, expected 3");
  CHECK(refusal<ShapeError>([&] { split_heads(x, 4); }) ==
        "weft: split_heads([4, 6]): the columns are not whole heads of width 4");
  CHECK(refusal<ShapeError>([&] { sum_groups(x, 4); }) == "weft: sum_groups([4, 6]): the columns are not whole groups of 4");
  CHECK(refusal<ShapeError>([&] { times_column(x, F<>(device, {6})); }) ==
        "weft: times_column([4, 6], [6]): expected one number for each row");
  CHECK(refusal<ShapeError>([&] { times_scalar(x, F<>(device, {6})); }) == "weft: times_scalar([6]): expected one number, [1]");
  CHECK(refusal<ShapeError>([&] { times_each_head(heads, F<>(device, {4})); }) ==
        "weft: times_each_head([4, 2, 3], [4]): expected one number for each head of each token");
  CHECK(refusal<ShapeError>([&] { times_heads(heads, F<>(device, {6})); }) ==
        "weft: times_heads([4, 2, 3], [6]): the extents differ, 3 and 6");
  CHECK(refusal<ShapeError>([&] { reshape(x, {8, 4}); }) == "weft: reshape([4, 6]) to [8, 4]: the number of elements must stay");
  CHECK(refusal<ShapeError>([&] {
          reshape(F<Shard<cp, 0>>(device, {4, 6}), {8, 3});
        }) == "weft: reshape([4, 6]) to [8, 3]: dim 0 must stay, because cp cuts it in two chunks of each sequence");
  CHECK(refusal<ShapeError>([&] {
          reshape(F<>(device, Shape{4, 6}.set_sharding(0, DimSharding::padded)), {8, 3});
        }) == "weft: reshape([4, 6]) to [8, 3]: dim 0 must stay, because it is not cut evenly");
  CHECK(reshape(F<Shard<dp, 0>>(device, {4, 6}), {8, 3}).shape() == Shape{8, 3});
  CHECK(refusal<ShapeError>([&] { slice_columns(x, 4, 3); }) == "weft: slice_columns([4, 6]): there are no columns 4 to 7");
  CHECK(refusal<ShapeError>([&] { subtract(x, F<>(device, {6, 4})); }) == "weft: subtract([4, 6], [6, 4]): the shapes differ");
  CHECK(refusal<ShapeError>([&] {
          concat_columns(x, F<>(device, {5, 6}));
        }) == "weft: concat_columns([4, 6], [5, 6]): the rows differ");
}

TEST_CASE("sums over ranks that hold elements alike are refused of values, not of gradients") {
  CHECK(run(RunOptions{.ranks = 4}, [](World& world) {
          detail::Environment environment;
          const auto context =
              Context<Compute<Exec, float>>(world.device(), environment).with<Invariant<tp>>(tp{}, world.communicator());
          const F<Replicated<tp>> x(world.device(), {4, 16});
          kernels::fill(x.device(), x.size(), x.data(), 1.0f);
          const auto columns_of = [&](const ParameterSharding& cut, std::size_t out) {
            return Linear<Column, StoredAs::out_in, false>(context / "layer", 16, out, {.sharding = cut})
                .forward(context, x)
                .output;
          };
          const auto alike = columns_of({{{12, 2}}, false}, 12), fused = columns_of({{{24, 4}, {24, 4}}, false}, 48);
          const auto heads = split_heads(alike, 6);
          const std::string text =
              "is held alike by several ranks, which a sum over them would count several times; of the terms of a gradient "
              "(Of::gradients) every rank's count";
          CHECK(refusal<LayoutError>([&] { sum_heads(heads); }) == "weft: sum_heads: dim 1 of [4, 1, 6] " + text);
          CHECK(refusal<LayoutError>([&] { sum_columns(alike); }) == "weft: sum_columns: dim 1 of [4, 6] " + text);
          CHECK(refusal<LayoutError>([&] { sum_all(alike); }) != "");
          CHECK(refusal<LayoutError>([&] { dot(alike, alike); }) != "");
          CHECK(refusal<LayoutError>([&] { sum_groups(alike, 3); }) != "");
          CHECK(sum_heads(heads, Of::gradients).size() == 6);
          CHECK(sum_columns(fused).size() == 4);
          CHECK(refusal<LayoutError>([&] {
                  sum_all(columns_of({{}, true}, 19));
                }).find("padded, which a sum would count") != std::string::npos);
          CHECK(refusal<LayoutError>([&] { split_heads(fused, 6); }) ==
                "weft: split_heads: dim 1 of [4, 12] is cut by segments, which need not be whole heads; make query, key and "
                "value in a Linear each");
          CHECK(refusal<LayoutError>([&] { log_sum_exp(context, alike, 12); }).find("held alike") != std::string::npos);
          // Marks outlive views and numbers of heads.
          CHECK(merge_heads(heads).shape().sharding(1) == DimSharding::replicated);
          CHECK(sum_each_head(heads).shape().sharding(1) == DimSharding::replicated);
        }) == 0);
}
