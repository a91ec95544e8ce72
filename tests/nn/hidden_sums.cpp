// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/summed_product.hpp weft/tensor/add.hpp weft/testing/delay_messages.hpp
// A step over tp = 2 whose sums go in pieces hides at least 80 % of the time that its messages are in transit. Each block is
// Llama's MLP: a sum in forward follows one product, the sum in backward follows two, of which it is the sum. Products sleep for
// each row, so that they take the same time on any computer, and every message takes a time of its own.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <weft/nn/summed_product.hpp>
#include <weft/tensor/add.hpp>
#include <weft/testing/delay_messages.hpp>

#include "support/field_models.hpp"

using namespace weft_test;

namespace {

constexpr std::size_t rows = 512, width = 8, blocks = 1;
constexpr double product_s = 0.15, sum_s = 0.12;  // of all rows; a sum may have 8 pieces

/// y, each of whose rows takes a part of `product_s` more to compute.
template <class Y>
Y slowed(Y y) {
  const auto rest = [](std::size_t count) {
    std::this_thread::sleep_for(std::chrono::duration<double>(product_s * double(count) / rows));
  };
  if (y.pending() == nullptr) return rest(y.rows()), y;
  auto& device = y.device();
  return Y(device, y.shape(),
           std::make_shared<detail::PendingRows>(
               y.pending()->pieces(), y.rows(),
               [&device, bytes = y.size() * sizeof(typename Y::value_type)] { return device.allocate(bytes); },
               [y, rest](std::size_t first, std::size_t count, void* out) {
                 rest(count);
                 y.pending()->compute(first, count, out);
               }));
}

/// A linear layer with slow products.
template <class L>
struct Slow : Primitive<Slow<L>> {
  static constexpr bool saves_input = true;
  L inner;
  explicit Slow(L l) : inner(std::move(l)) {}
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    auto result = inner.forward(context, x);
    return Result{slowed(std::move(result.output)), std::move(result.saved)};
  }
  template <class Context, class X, class G>
  auto backward_input(const Context& context, X x, const G& g) {
    auto split = inner.backward_input(context, std::move(x), g);
    return InputGradient{slowed(std::move(split.input_gradient)), std::move(split.deferred)};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    inner.backward_weight(context, std::move(deferred));
  }
};

struct Config {};

struct SlowMlp {
  using scalar = double;
  using Config = ::Config;
  using Batch = FieldBatch<input_field, wanted_field>;

  struct First : Module<First> {
    Linear<> in;
    explicit First(const auto& context) : in(context / "in", width, width) {}
    auto forward(const auto& batch) const { return to_hidden(in(batch[input_field])); }
  };
  struct Middle : Module<Middle> {
    Slow<Linear<Column>> gate, up;
    Slow<Linear<Row>> down;
    explicit Middle(const auto& context)
        : gate(Linear<Column>(context / "gate", width, width)),
          up(Linear<Column>(context / "up", width, width)),
          down(Linear<Row>(context / "down", width, width)) {}
    auto forward(const auto& x) const {
      const auto inside = to<Replicated<tp>>(x);
      return x + to_layout_of(x, down(SwiGlu{}(std::tuple(gate(inside), up(inside)))));
    }
  };
  struct Last : Module<Last> {
    Linear<> out;
    explicit Last(const auto& context) : out(context / "out", width, width) {}
    auto forward(const auto& x, const auto& batch) const {
      return sum_losses(HalfSquares()(out(x) - to<Invariant<tp>>(batch[wanted_field])));
    }
  };

  static auto stack(const auto& context, const Config&) {
    return Stack([=] { return First(context / "first"); },
                 repeated(blocks, [=](std::size_t i) { return Middle(context / "middle" / std::to_string(i)); }),
                 [=] { return Last(context / "last"); });
  }
};

/// Seconds of a step: without delays, with delays, and with delays and sums in pieces.
struct Seconds {
  double fast = 0, whole = 0, pieces = 0, in_transit = 0;
  double hidden(double slow) const { return 1 - (slow - fast) / in_transit; }
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Medians of alternating steps on rank 0.
Seconds measured() {
  constexpr int rounds = 5;
  Seconds result;
  const auto network = std::make_shared<testing::SlowNetwork>();
  const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
    World slow(testing::delay_messages(world.communicator(), network), world.device());
    const Mesh<dp, tp> mesh(slow, {.tp = 2});
    using Model = DataParallel<TensorParallel<SlowMlp>>;
    Model whole(mesh, {}, {}), pieces(mesh, {}, {.tensor = {.piece_bytes = 1024}});
    SlowMlp::Batch batch;
    batch.samples = rows;
    batch.micro_batches = 1;
    fill_field(batch, input_field, 1, {width});
    fill_field(batch, wanted_field, 2, {width});
    double in_transit = 0;
    const auto once = [&](Model& model, double delay_s) {
      world.communicator().barrier();
      if (world.rank() == 0) network->set({.seconds_per_byte = delay_s / double(rows * width * sizeof(double))});
      world.communicator().barrier();
      const double before = testing::delayed(mesh.comm(tp{})).seconds, begin = testing::SlowNetwork::now();
      model.train_step(batch);
      in_transit = testing::delayed(mesh.comm(tp{})).seconds - before;
      return testing::SlowNetwork::now() - begin;
    };
    std::array<std::vector<double>, 3> times;
    once(whole, 0), once(pieces, 0);
    for (int round = 0; round < rounds; ++round) {
      times[0].push_back(once(whole, 0));
      times[1].push_back(once(whole, sum_s));
      times[2].push_back(once(pieces, sum_s));
    }
    if (world.rank() == 0) result = {median(times[0]), median(times[1]), median(times[2]), in_transit};
  });
  CHECK(code == 0);
  return result;
}

}  // namespace

TEST_CASE("sums in pieces hide 80 % of the delays of a step's messages") {
  Seconds seconds;
  for (int attempt = 0; attempt < 3 && !(seconds.hidden(seconds.pieces) >= 0.8); ++attempt) seconds = measured();
  const double hidden = seconds.hidden(seconds.pieces), without = seconds.hidden(seconds.whole);
  MESSAGE("a step of " << seconds.fast << " s with " << seconds.in_transit << " s of messages: hidden " << hidden
                       << ", without pieces " << without);
  CHECK(seconds.in_transit >= 2 * blocks * sum_s);         // a forward and a backward sum of each block
  CHECK(seconds.in_transit <= 2 * blocks * sum_s * 1.02);  // and gradients of biases, the loss and checks
  CHECK(hidden >= 0.8);
  CHECK(without <= 0.2);
}
