// SPDX-License-Identifier: Apache-2.0
// covers: weft/testing/layer_trial.hpp weft/testing/rank_comparison.hpp
// Layers that are right for one micro-batch, one rank or an executor that keeps everything, and wrong elsewhere: check_layer
// refuses each by its mistake, and the same layer without it passes.

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>

#include <weft/nn/activation.hpp>
#include <weft/nn/attention.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/norm.hpp>
#include <weft/nn/sequential.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/testing/layer_trial.hpp>
#include <weft/testing/rank_comparison.hpp>

#include "support/layers.hpp"

using namespace weft;
using testing::check_layer, testing::check_layer_on;

namespace {
constexpr std::size_t rows = 8, width = 6;
const Shape shape{rows, width};

enum class Mistake {
  none,
  overwrites,       // a gradient, instead of adding
  adds_to_nothing,  // independent of open_gradient
  last_input,       // in a mutable member
  counts,           // its forwards
  writes_input,
  writes_saved_input,
  writes_gradient,
  writes_gradient_late,  // in backward_weight
  writes_value,
  points_to_input,
  refers_to_input,
  points_to_output,
  points_to_gradient,
  keeps_gradient,  // in a member, for backward_weight
  one_name,
  untouched,
  other_shape,
  disagrees,  // backward and its halves
  owes_on_one_rank,
  throws_when_made,
  throws_in_forward,
  throws_different_things,
  calls_alone,
  reads_beyond,
};

// y = x gain + shift, its rows' gradients by hand.
struct Affine {
  Parameter<> gain, shift;
  Mistake mistake;
  mutable const double* last = nullptr;
  mutable detail::Buffer held;
  mutable int calls = 0;

  template <class X>
  struct Saved {
    X x;
    const double* pointer = nullptr;
    Shape shape;
    const X* reference = nullptr;
  };

  Affine(const auto& context, Mistake mistake)
      : gain(context, "gain", {width}, normal(1.0)),
        shift(context, mistake == Mistake::one_name ? "gain" : "shift", {width}, normal(1.0)),
        mistake(mistake) {
    if (mistake == Mistake::throws_when_made && context.rank(tp{}) == 1) throw std::runtime_error("no room for this layer");
  }

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    if (mistake == Mistake::throws_in_forward && context.rank(tp{}) == 1) throw ShapeError("these rows do not fit");
    if (mistake == Mistake::throws_different_things && context.size(tp{}) > 1) {
      if (context.rank(tp{}) == 0) throw std::runtime_error("text of rank 0");
      throw 1;
    }
    if constexpr (Context::has(tp{})) {
      std::vector<double> sum{1};
      if (mistake == Mistake::calls_alone && context.rank(tp{}) == 1) context.comm(tp{}).all_reduce(sum);
    }
    auto y = times_row(x, gain.for_operand(x));
    const auto offset = shift.for_operand(x);
    for (std::size_t i = 0; i < y.size(); ++i) y.data()[i] += offset.data()[i % width];
    if (mistake == Mistake::writes_value) gain.for_operand(x).data()[0] += 0.25;
    if (mistake == Mistake::writes_input) x.data()[1] = 0;
    if (mistake == Mistake::counts) y.data()[0] += ++calls;
    if (mistake == Mistake::reads_beyond) y.data()[0] += 0.5 * x.data()[x.size()];
    Saved<X> saved{x, nullptr, x.shape(), nullptr};
    if (mistake == Mistake::last_input) held = x.buffer(), last = x.data(), saved.x = X();
    if (mistake == Mistake::points_to_input) saved.pointer = x.data(), saved.x = X();
    if (mistake == Mistake::refers_to_input) saved.reference = &x, saved.x = X();
    if (mistake == Mistake::points_to_output) saved.pointer = y.data();
    return Result{y, saved};
  }

  template <class X, class G>
  struct Deferred {
    X x;
    G g;
    const double* pointer = nullptr;
  };
  template <class Like>
  static Like over(const Like& like, const Shape& shape, const double* data) {
    return Like(like.device(), shape, detail::Buffer(const_cast<double*>(data), [](void*) {}));
  }
  template <class Context, class X, class G>
  auto backward_input(const Context&, Saved<X> saved, const G& g) {
    const X here(g.device(), {1});
    if (mistake == Mistake::last_input) saved.x = over(here, saved.shape, last);
    if (mistake == Mistake::points_to_input) saved.x = over(here, saved.shape, saved.pointer);
    if (mistake == Mistake::refers_to_input) saved.x = *saved.reference;
    if (mistake == Mistake::points_to_output) {
      X x(g.device(), saved.shape);
      const auto scale = gain.for_operand(x), offset = shift.for_operand(x);
      for (std::size_t i = 0; i < x.size(); ++i)
        x.data()[i] = (saved.pointer[i] - offset.data()[i % width]) / scale.data()[i % width];
      saved.x = x;
    }
    auto dx = times_row(g, gain.for_operand(g));
    if (mistake == Mistake::writes_gradient) g.data()[0] = 0;
    if (mistake == Mistake::writes_saved_input) saved.x.data()[0] = 0;
    if (mistake == Mistake::other_shape) dx = decltype(dx)(g.device(), {g.size()}, dx.buffer());
    Deferred<X, G> deferred{saved.x, g};
    if (mistake == Mistake::keeps_gradient) held = g.buffer(), last = g.data(), deferred.g = G();
    if (mistake == Mistake::points_to_gradient) deferred.pointer = g.data(), deferred.g = G();
    return InputGradient{dx, deferred};
  }
  template <class Context, class X, class G>
  void backward_weight(const Context& context, Deferred<X, G> deferred) {
    if (mistake == Mistake::keeps_gradient) deferred.g = over(G(deferred.x.device(), {1}), deferred.x.shape(), last);
    if (mistake == Mistake::points_to_gradient)
      deferred.g = over(G(deferred.x.device(), {1}), deferred.x.shape(), deferred.pointer);
    const auto sum = sum_rows(times(deferred.g, deferred.x));
    if (mistake == Mistake::overwrites || mistake == Mistake::adds_to_nothing) {
      const auto open = gain.template open_gradient<std::remove_const_t<decltype(sum)>>(sum.device());
      for (std::size_t i = 0; i < sum.size(); ++i)
        open.data[i] = sum.data()[i] + (mistake == Mistake::adds_to_nothing ? open.data[i] : 0);
    } else if (mistake != Mistake::owes_on_one_rank || context.rank(tp{}) == 0) {
      gain.accumulate(context, sum);
    }
    if (mistake == Mistake::writes_gradient_late) deferred.g.data()[0] = 0;
    if (mistake != Mistake::untouched) shift.accumulate(context, sum_rows(deferred.g));
  }
};

// The same with a backward in addition to the halves.
struct Both : Affine {
  using Affine::Affine;
  template <class Context, class Saved, class G>
  auto backward(const Context& context, Saved saved, const G& g) {
    gain.accumulate(context, sum_rows(times(g, saved.x)));
    if (mistake != Mistake::disagrees) shift.accumulate(context, sum_rows(g));
    return times_row(g, gain.for_operand(g));
  }
};

struct ReturnsNothing : Affine {
  using Affine::Affine;
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    return InputGradient{Nothing{}, Affine::backward_input(context, std::move(saved), g).deferred};
  }
};

// The text of check_layer's error; empty if it passes.
std::string text_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

template <class Layer = Affine>
std::string on_one(Mistake mistake) {
  return text_of([&] { check_layer([&](const auto& context) { return Layer(context / "affine", mistake); }, shape); });
}
// Wrong on several ranks only, so that the one rank that they are compared with passes.
template <class Layer = Affine>
std::string on_ranks(Mistake mistake, int ranks) {
  return text_of([&] {
    check_layer_on<tp>(
        ranks, [&](const auto& context) { return Layer(context / "affine", context.size(tp{}) > 1 ? mistake : Mistake::none); },
        shape);
  });
}

const std::pair<Mistake, const char*> everywhere[] = {
    {Mistake::overwrites, "backward does not add: after two micro-batches the gradient of affine.gain"},
    {Mistake::last_input, "two forwards before their backwards give something else than one after the other"},
    {Mistake::counts, "forward gives other bits for the same input the second time"},
    {Mistake::writes_input, "forward writes into the layer's input"},
    {Mistake::writes_saved_input, "backward_input writes into the layer's input"},
    {Mistake::writes_gradient, "backward_input writes into the gradient that it is given"},
    {Mistake::writes_gradient_late, "backward_weight writes into the gradient that it is given"},
    {Mistake::writes_value, "forward gives other bits"},
    {Mistake::points_to_input, "backward reads forward's input when it is gone: "},
    {Mistake::refers_to_input, "backward reads forward's input when it is gone: "},
    {Mistake::points_to_output, "backward reads forward's output when it is gone: "},
    {Mistake::points_to_gradient,
     "backward_weight reads the gradient that backward_input was given, or the one that it returned, when both are gone: "},
    {Mistake::keeps_gradient,
     "backward_weight after another micro-batch's backward_input gives something else than right after its own: the gradient of "
     "affine."},
    {Mistake::one_name, "two parameters of this layer are called affine.gain"},
    {Mistake::other_shape, "the input gradient is [48], the input [8, 6]"},
    {Mistake::reads_beyond, "forward reads beyond the 8 rows of its input"},
};
}  // namespace

TEST_CASE("each mistake is refused by name, and without it the layer passes") {
  CHECK(on_one(Mistake::none) == "");
  CHECK(on_one<Both>(Mistake::none) == "");
  for (const auto& one : everywhere) {
    const Mistake mistake = one.first;
    const std::string text = one.second;
    CAPTURE(text);
    CHECK(on_one(mistake).find(text) != std::string::npos);
    CHECK(on_one(mistake).starts_with("weft: check_layer: "));
    for (const int ranks : {2, 4}) CHECK(on_ranks(mistake, ranks).find(text) != std::string::npos);
  }
  CHECK(on_one(Mistake::adds_to_nothing).find("backward adds to the gradient of affine.gain when it is the first to write it") !=
        std::string::npos);
  CHECK(on_one<ReturnsNothing>(Mistake::none).find("backward_input returns Nothing, but the input is of real numbers") !=
        std::string::npos);
  CHECK(on_one<Both>(Mistake::disagrees)
            .find("backward and its halves backward_input and backward_weight disagree about the gradient of affine.shift") !=
        std::string::npos);
  CHECK(on_one(Mistake::untouched)
            .find("backward adds nothing to the gradient of affine.shift, on which forward's output depends") !=
        std::string::npos);
}

TEST_CASE("errors on several ranks are one error with the text of the first") {
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const std::string where = "weft: check_layer_on: tp(" + std::to_string(ranks) + ") as Invariant<tp>, rank ";
    CHECK(on_ranks(Mistake::none, ranks) == "");
    CHECK(on_ranks<Both>(Mistake::none, ranks) == "");
    CHECK(on_ranks(Mistake::throws_when_made, ranks) == where + "1: no room for this layer");
    CHECK(on_ranks(Mistake::throws_in_forward, ranks) == where + "1: affine: these rows do not fit");
    CHECK(on_ranks(Mistake::throws_different_things, ranks) == where + "0: affine: text of rank 0");
    CHECK(on_ranks(Mistake::calls_alone, ranks).find("ranks ") != std::string::npos);
    CHECK(on_ranks(Mistake::adds_to_nothing, ranks)
              .find(": backward leaves elements of the gradient of affine.gain that are not numbers") != std::string::npos);
    CHECK(on_ranks(Mistake::owes_on_one_rank, ranks)
              .find("weft: check_layer_on: tp(" + std::to_string(ranks) +
                    ") as Shard<tp, 0>: ranks disagree over which axes the gradient of affine.gain is unreduced: on rank 0 a sum "
                    "over the axis, on "
                    "rank 1 nothing") != std::string::npos);
  }
}

namespace {
// y[i] = x[i - 1] within a sequence of `length`. The layers differ in the rows that a rank requests.
template <class X>
X shifted(const X& x, std::size_t length, bool back) {
  X y(x.device(), x.shape());
  for (std::size_t row = 0; row < x.rows(); ++row)
    for (std::size_t i = 0; i < x.columns(); ++i) {
      const bool inside = back ? (row + 1) % length != 0 : row % length != 0;
      y.data()[row * x.columns() + i] = inside ? x.data()[(back ? row + 1 : row - 1) * x.columns() + i] : 0;
    }
  return y;
}

// As if all rows were there.
struct LocalShift {
  std::size_t length;
  auto forward(const auto&, const auto& x) const { return Result{shifted(x, length, false), Nothing{}}; }
  auto backward(const auto&, Nothing, const auto& g) { return shifted(g, length, true); }
};

// With the right positions, but from the memory before its own rows.
struct ShiftByPosition {
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    const auto positions = positions_of(context, x);
    X y(x.device(), x.shape());
    for (std::size_t i = 0; i < x.size(); ++i)
      y.data()[i] = positions.data()[i / x.columns()] == 0 ? 0 : x.data()[std::ptrdiff_t(i) - std::ptrdiff_t(x.columns())];
    return Result{y, positions};
  }
  template <class Positions>
  auto backward(const auto&, Positions positions, const auto& g) {
    std::remove_cvref_t<decltype(g)> dx(g.device(), g.shape());
    const std::size_t columns = g.columns();
    for (std::size_t i = 0; i < g.size(); ++i)
      dx.data()[i] = i + columns >= g.size() || positions.data()[i / columns + 1] == 0 ? 0 : g.data()[i + columns];
    return dx;
  }
};

// Brings the whole sequence here first.
template <detail::Axis A>
struct Shift {
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    const auto whole = to<Invariant<A>>(context, x);
    return Result{to_layout_of<X>(context, shifted(whole, sequence_length(context, whole), false)), Nothing{}};
  }
  template <class Context, class G>
  auto backward(const Context& context, Nothing, const G& g) {
    const auto whole = to<Invariant<A>>(context, g);
    return to_layout_of<G>(context, shifted(whole, sequence_length(context, whole), true));
  }
};
}  // namespace

TEST_CASE("rows that an axis cuts are not there to be indexed") {
  const testing::CheckOptions options{.length = 8};
  const auto local = [](const auto&) { return LocalShift{8}; };
  const auto by_position = [](const auto&) { return ShiftByPosition{}; };
  const auto whole = [](const auto&) { return Shift<tp>{}; };
  CHECK_NOTHROW(check_layer(local, {16, width}, options));
  CHECK_NOTHROW(check_layer(by_position, {16, width}, options));
  CHECK_NOTHROW(check_layer(whole, {16, width}, options));
  for (const int ranks : {2, 4}) {
    CHECK_NOTHROW(check_layer_on<dp>(ranks, local, {32, width}, options));
    CHECK_NOTHROW(check_layer_on<tp>(ranks, whole, {16, width}, options));
    CHECK_THROWS_WITH_AS(check_layer_on<cp>(ranks, by_position, {16, width}, options),
                         doctest::Contains("forward reads beyond the"), Error);
    CHECK_NOTHROW((check_layer_on<tp, Invariant<tp>>(ranks, by_position, {16, width}, options)));
  }
  CHECK_THROWS_WITH_AS(check_layer_on<cp>(2, local, {16, width}, options),
                       doctest::Contains("cp(2) against one rank: the output is off by"), Error);
  CHECK_THROWS_WITH_AS(check_layer_on<cp>(4, local, {16, width}, options),
                       doctest::Contains("backward reads beyond the rows of the gradient"), Error);
  CHECK_THROWS_WITH_AS(check_layer_on<tp>(4, by_position, {16, width}, options),
                       doctest::Contains("tp(4) as Shard<tp, 0>, rank 1: forward reads beyond the 4 rows of its input"), Error);
}

TEST_CASE("rows that cannot be cut are refused before anything runs") {
  const auto layer = [](const auto& context) { return Linear(context / "linear", width, width); };
  CHECK_THROWS_WITH_AS(check_layer_on<tp>(4, layer, {6, width}),
                       "weft: check_layer_on: rows(6) of [6, 6] cannot be cut over tp(4) as Shard<tp, 0>: take a shape of 4 or 8 "
                       "rows, or only streams that do not cut them: check_layer_on<tp, Invariant<tp>>",
                       UsageError);
  CHECK_NOTHROW((check_layer_on<tp, Invariant<tp>>(4, layer, {6, width})));
  CHECK_THROWS_WITH_AS(
      check_layer_on<dp>(4, layer, {6, width}),
      "weft: check_layer_on: rows(6) of [6, 6] cannot be cut over dp(4) as Shard<dp, 0>: take a shape of 4 or 8 rows",
      UsageError);
  CHECK_THROWS_WITH_AS(check_layer_on<cp>(4, layer, {6, width}),
                       "weft: check_layer_on: rows(6) of [6, 6] cannot be cut over cp(4) as Shard<cp, 0>: take a shape of 8 rows",
                       UsageError);
  CHECK_THROWS_WITH_AS(check_layer_on<cp>(4, layer, {6, width}, {.length = 6}),
                       "weft: check_layer_on: length(6) % (2 * cp(4)) != 0: every rank of cp has two chunks of each sequence; "
                       "take a CheckOptions::length of 8",
                       UsageError);
  CHECK_THROWS_WITH_AS(check_layer(layer, {6, width}, {.length = 4}),
                       "weft: check_layer: rows(6) % length(4) != 0: rows are whole sequences; take 8 rows", UsageError);
  CHECK_THROWS_WITH_AS(check_layer(layer, {0, width}), doctest::Contains("an input of [0, 6] has no elements"), UsageError);
  for (const int ranks : {2, 4}) {
    CHECK_NOTHROW(check_layer_on<dp>(ranks, layer, shape));
    CHECK_NOTHROW(check_layer_on<cp>(ranks, layer, shape));
  }
}

TEST_CASE("degrees that a layer refuses are one error") {
  const auto layer = [](const auto& context) { return Linear<Column>(context / "linear", width, 6); };
  CHECK_NOTHROW(check_layer_on<tp>(2, layer, shape));
  CHECK_THROWS_WITH_AS(check_layer_on<tp>(4, layer, shape),
                       doctest::Contains("check_layer_on: tp(4) as Invariant<tp>, rank 0: parameter linear.weight"), Error);
}

TEST_CASE("outputs that are tuples, and attention over cp") {
  const auto fork = [](const auto& context) {
    return weft_test::Branch(LayerNorm(context / "norm", width), Linear(context / "linear", width, 4));
  };
  CHECK_NOTHROW(check_layer(fork, shape));
  CHECK_NOTHROW(check_layer_on<tp>(2, fork, shape));
  CHECK_NOTHROW(check_layer_on<dp>(4, fork, shape));
  const auto attention = [](const auto& context) {
    return Sequential(Linear(context / "in", width, 3 * width), CausalAttention(context, AttentionHeads{2, 2, 3}),
                      Linear(context / "out", width, width));
  };
  CHECK_NOTHROW(check_layer(attention, {16, width}, {.length = 8}));
  for (const int ranks : {2, 4}) CHECK_NOTHROW(check_layer_on<cp>(ranks, attention, {16, width}, {.length = 8}));
}

TEST_CASE("two dropouts under one path") {
  const auto layer = [](bool apart) {
    return [=](const auto& context) {
      return Sequential(Dropout(context / "dropout", 0.5), Gelu{}, Dropout(context / (apart ? "after" : "dropout"), 0.5));
    };
  };
  CHECK_NOTHROW(check_layer(layer(true), shape));
  CHECK_THROWS_WITH_AS(check_layer(layer(false), shape),
                       doctest::Contains("two Dropouts under one path, dropout (the layer, twice)"), Error);
}
