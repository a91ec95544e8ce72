// SPDX-License-Identifier: Apache-2.0
// covers: weft/engine/layer_error.hpp weft/engine/live_parameters.hpp weft/engine/parameter_names.hpp weft/engine/operand.hpp
// The message of an error in a forward or backward: the path of the layer, the operation, the shapes of the operands and the
// names of parameters among them. The exception keeps its type.

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include <weft/autograd/recompute.hpp>
#include <weft/engine/layer_error.hpp>
#include <weft/engine/live_parameters.hpp>
#include <weft/engine/operand.hpp>
#include <weft/engine/parameter_names.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/weft.hpp>

#include "support/formula.hpp"
#include "support/layers.hpp"

using namespace weft;
using weft_test::refusal_of;

namespace {

using Exec = DefaultDevice::execution_space;
using Alone = Context<Compute<Exec, double>>;
using X = Tensor<double, Exec>;

struct Here {
  DefaultDevice device;
  Alone context{device, {}};
  X x(const Shape& shape) {
    X x(device, shape);
    detail::fill_zero(device, x.data(), x.size());
    return x;
  }
};

struct Mlp : Module<Mlp> {
  Parameter<> up, down;
  Mlp(const auto& context, std::size_t width, std::size_t in)
      : up(context, "up", {2, in}, zeros), down(context, "down", {width, 2}, zeros) {}
  auto forward(const auto& x) const { return matmul(relu(matmul(x, up)), down); }
};
struct Block : Module<Block> {
  LayerNorm norm;
  Mlp mlp;
  Block(const auto& context, std::size_t width, std::size_t in)
      : norm(context / "norm", width), mlp(context / "mlp", width, in) {}
  auto forward(const auto& x) const { return x + mlp(norm(x)); }
};
struct Blocks : Module<Blocks> {
  std::vector<Block> blocks;
  bool again;
  explicit Blocks(const auto& context, bool recomputed = false) : again(recomputed) {
    for (int i = 0; i < 5; ++i) blocks.emplace_back(context / "blocks" / std::to_string(i), 6, i == 3 ? 7 : 6);
  }
  auto forward(auto x) const {
    for (const Block& block : blocks) {
      if (again) x = recompute([&block](const auto& y) { return block(y); }, x);
      else x = block(x);
    }
    return x;
  }
};

// One operation in the forward of a layer "part" with a parameter "w".
template <class F>
struct Part : Module<Part<F>> {
  Parameter<> w;
  F f;
  Part(const auto& context, const Shape& shape, F function) : w(context, "w", shape, zeros), f(function) {}
  auto forward(const auto& x) const { return f(x, w); }
};
template <class E = ShapeError, class F>
std::string error_of(const Shape& x, const Shape& w, F f) {
  Here here;
  const Part<F> part(here.context / "model" / "part", w, f);
  return refusal_of<E>([&] { forward(part, here.context, here.x(x)); });
}

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
  int number = 7;
};
/// An operation whose gradient throws.
struct NoGradient : Primitive<NoGradient> {
  auto forward(const auto& x) const { return x; }
  auto gradient(const auto& g, const auto&) const {
    throw Thrown("no gradient here");
    return g;
  }
};
/// A layer whose gradient has another shape than its input.
struct WrongGradient : Primitive<WrongGradient> {
  Parameter<> scale;
  explicit WrongGradient(const auto& context) : scale(context, "scale", {1}, ones) {}
  auto forward(const auto&, const auto& x) const { return Result{add(x, x), Nothing()}; }
  auto backward(const auto& context, Nothing, const auto& g) {
    scale.accumulate(context, g);
    return g;
  }
};
struct Bad : Module<Bad> {
  Parameter<> gain;
  WrongGradient wrong;
  bool throws;
  Bad(const auto& context, bool throwing) : gain(context, "gain", {6}, ones), wrong(context / "wrong"), throws(throwing) {}
  auto forward(const auto& x) const {
    const auto y = x * gain;
    return throws ? NoGradient()(y) : wrong(y);
  }
};
struct Around : Module<Around> {
  Parameter<> gain;
  Bad bad;
  Around(const auto& context, bool throwing) : gain(context, "gain", {6}, ones), bad(context / "bad", throwing) {}
  auto forward(const auto& x) const { return bad(x * gain) * gain; }
};

}  // namespace

TEST_CASE("a stack of blocks, one with a wrong shape") {
  Here here;
  for (const bool again : {false, true}) {
    const Blocks blocks(here.context, again);
    CHECK(refusal_of<ShapeError>([&] {
            forward(blocks, here.context, here.x({4, 6}));
          }) == "weft: blocks.3.mlp: matmul([4, 6], up [2, 7]): the summed dims differ, 6 and 7");
    CHECK(refusal_of<ShapeError>([&] {
            forward(blocks, here.context, here.x({4, 5}));
          }) == "weft: blocks.0.norm: layer_norm([4, 5], weight [6]): the extents differ, 5 and 6");
  }
  weft_test::Recompute<Mlp> recomputed(Mlp(here.context / "block" / "mlp", 6, 7));
  CHECK(refusal_of<ShapeError>([&] {
          forward(recomputed, here.context, here.x({4, 6}));
        }) == "weft: block.mlp: matmul([4, 6], up [2, 7]): the summed dims differ, 6 and 7");
}

TEST_CASE("operations name their operands") {
  CHECK(error_of({4, 6}, {7}, [](const auto& x, const auto& w) { return x + w; }) ==
        "weft: model.part: add_row([4, 6], w [7]): the extents differ, 6 and 7");
  CHECK(error_of({4, 6}, {4, 5}, [](const auto& x, const auto& w) { return x + beside(x, w); }) ==
        "weft: model.part: add([4, 6], w [4, 5]): the shapes differ");
  CHECK(error_of({4, 6}, {4, 5}, [](const auto& x, const auto& w) { return where(greater(x, 0), x, beside(x, w)); }) ==
        "weft: model.part: where([4, 6], w [4, 5]): the shapes differ");
  CHECK(error_of({4, 6}, {4, 5}, [](const auto& x, const auto& w) { return concat<0>(x, beside(x, w)); }) ==
        "weft: model.part: concat([4, 6], w [4, 5]): the extents beside dim 0 differ");
  const auto select = [](const auto& x, const auto& w) {
    Tensor<std::int32_t, Exec> ids(x.value().device(), {2});
    ids.data()[0] = 0, ids.data()[1] = 4;
    return index_select(beside(x, w), Variable<Alone, decltype(ids)>(ids, x.tape()));
  };
  CHECK(error_of<UsageError>({4, 6}, {3, 6}, select) == "weft: model.part: index_select: id 4 at 1 is not one of 3 rows, 0 to 2");
  CHECK(error_of({2, 3, 8, 8}, {4, 2, 3, 3}, [](const auto& x, const auto& w) { return conv2d(x, w); }) ==
        "weft: model.part: conv2d([2, 3, 8, 8], w [4, 2, 3, 3]): 3 channels, and the weights take 2");
  CHECK(
      error_of({2, 5, 4}, {2, 7, 3},
               [](const auto& x, const auto& w) { return attention(x, beside(x, w), x, {.causal = false}); }) ==
      "weft: model.part: attention([2, 5, 4], w [2, 7, 3], [2, 5, 4]): expected query [heads, tokens, width], key [heads, keys, "
      "width] and a value like the key");
}

TEST_CASE("layers of weft name their path") {
  Here here;
  const Linear<> linear(here.context / "blocks" / "2" / "head", 6, 3);
  CHECK(refusal_of<ShapeError>([&] {
          forward(linear, here.context, here.x({4, 5}));
        }) == "weft: blocks.2.head: matmul([4, 5], weight [3, 6]): the summed dims differ, 5 and 6");
  const RmsNorm norm(here.context / "blocks" / "2" / "norm", 6);
  CHECK(refusal_of<ShapeError>([&] {
          forward(norm, here.context, here.x({4, 5}));
        }) == "weft: blocks.2.norm: rms_norm([4, 5], weight [6]): the extents differ, 5 and 6");
  const Sequential after(Linear<>(here.context / "blocks" / "2" / "up", 5, 5), norm);
  CHECK(refusal_of<ShapeError>([&] {
          forward(after, here.context, here.x({4, 5}));
        }) == "weft: blocks.2.norm: rms_norm([4, 5], weight [6]): the extents differ, 5 and 6");
  detail::Environment whole;
  whole.length = 4;
  const Alone sequences(here.device, whole);
  const LearnedPositions positions(sequences / "positions", 8, 6);
  CHECK(refusal_of<ShapeError>([&] {
          forward(positions, sequences, here.x({4, 5}));
        }) == "weft: positions: learned positions([4, 5], weight [8, 6]): the columns differ, 5 and 6");
}

TEST_CASE("errors of a backward") {
  Here here;
  Around thrown(here.context / "block", true);
  const auto x = here.x({4, 6});
  try {
    auto step = forward(thrown, here.context, x);
    backward(thrown, here.context, std::move(step.saved), x);
    FAIL("nothing was thrown");
  } catch (const Thrown& error) {  // a user's type, with its members
    CHECK(std::string(error.what()) == "backward of block.bad: no gradient here");
    CHECK(error.number == 7);
  }
  Around wrong(here.context / "block", false);
  CHECK(refusal_of<ShapeError>([&] {
          auto step = forward(wrong, here.context, x);
          backward(wrong, here.context, std::move(step.saved), x);
        }) == "weft: backward of block.bad.wrong: gradient [4, 6] of parameter block.bad.wrong.scale [1]");
}

TEST_CASE("a path is added once, and to a layer's own errors only") {
  const auto text = [](auto error, std::string_view path) -> std::string {
    try {
      try {
        throw error;
      } catch (...) {
        detail::add_path(path, detail::Pass::forward);
        detail::add_path(path.substr(0, path.find('.')), detail::Pass::backward);
        throw;
      }
    } catch (const std::exception& thrown) {
      return thrown.what();
    }
  };
  CHECK(text(std::invalid_argument("odd"), "a.b") == "a.b: odd");
  CHECK(text(UsageError("odd(a.b.c [2], ab.c [3])"), "a.b") == "weft: a.b: odd(c [2], ab.c [3])");
  CHECK(text(TimeoutError(1, "tp", "all_reduce", 8, "late"), "a.b") == "weft: rank 1, axis tp, all_reduce #8: late");
  CHECK(text(UsageError("odd"), "") == "weft: odd");
}

TEST_CASE("the names of parameters that exist") {
  Here here;
  const void* data = nullptr;
  {
    const Mlp mlp(here.context / "a" / "b", 6, 6);
    data = mlp.up.state().value().get();
    CHECK(detail::name_of_values(data) == "a.b.up");
    CHECK(detail::path_of_holder(&mlp, sizeof(mlp)) == "a.b");
    const Block block(here.context / "a" / "c", 6, 6);
    CHECK(detail::path_of_holder(&block, sizeof(block)) == "a.c");
    const std::pair two(mlp.up, block.mlp.up);
    CHECK(detail::path_of_holder(&two, sizeof(two)) == "a");
    const std::pair alike(Linear<>(here.context / "ab", 2, 2), Linear<>(here.context / "a", 2, 2));
    CHECK(detail::path_of_holder(&alike, sizeof(alike)) == "");
  }
  CHECK(detail::name_of_values(data) == "");
  CHECK(detail::path_of_holder(&here, sizeof(here)) == "");
}

TEST_CASE("operands that tp cuts, on every rank") {
  std::vector<std::string> texts(2);
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<tp> mesh(world, {.tp = 2});
          Here here;
          const auto context = here.context.with<Invariant<tp>>(tp{}, mesh.comm(tp{}));
          const Linear<Column> linear(context / "blocks" / "1" / "up", 6, 4);
          Tensor<double, Exec, Invariant<tp>> x(here.device, {4, 5});
          texts[std::size_t(world.rank())] = refusal_of<ShapeError>([&] { forward(linear, context, x); });
        }) == 0);
  for (const std::string& text : texts)
    CHECK(text == "weft: blocks.1.up: matmul([4, 5], weight [2, 6]): the summed dims differ, 5 and 6");
}
