// SPDX-License-Identifier: Apache-2.0
#pragma once
// A step over tp = 2 whose every message takes a time of its own, on any backend. Each block is Llama's MLP. Over tensor ranks a
// sum in forward follows one product, and the sum in backward follows two, of which it is the sum. Under sequence parallelism
// they are reduce-scatters, a gather in forward comes before two products, and one in backward before one. Products take
// simulated time for each row, so that figures are exact on any computer.

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <weft/nn/summed_product.hpp>
#include <weft/parallel/sequence_parallel.hpp>
#include <weft/tensor/add.hpp>
#include <weft/testing/delay_messages.hpp>

#include "support/field_models.hpp"

namespace weft_test::hidden {

constexpr std::size_t rows = 1024, width = 8, blocks = 1;
constexpr double product_s = 0.15, message_s = 0.12;  // of all rows, which may go in 8 pieces

using Clock = std::shared_ptr<testing::RankClock>;

inline void rest(testing::RankClock& clock, std::size_t count) { clock.pass(product_s * double(count) / rows); }

/// The product y of x, each of whose rows takes a part of `product_s` more to compute. Rows of x that arrive are waited for in
/// the blocks of a product.
template <class X>
bool slowed_by_blocks(testing::RankClock& clock, const X& x) {
  if (x.arriving() == nullptr) return false;
  detail::for_each_block_of_rows(x, [&](const auto*, std::size_t, std::size_t count) { rest(clock, count); });
  return true;
}
template <class Y>
Y slowed(const Clock& clock, Y y) {
  if (y.pending() == nullptr) return rest(*clock, y.rows()), y;
  auto& device = y.device();
  return Y(device, y.shape(),
           std::make_shared<detail::PendingRows>(
               y.pending()->pieces(), y.rows(),
               [&device, bytes = y.size() * sizeof(typename Y::value_type)] { return device.allocate(bytes); },
               [clock, y](std::size_t first, std::size_t count, void* out) {
                 rest(*clock, count);
                 y.pending()->compute(first, count, out);
               }));
}

/// A linear layer with slow products.
template <class L>
struct Slow : Primitive<Slow<L>> {
  static constexpr bool saves_input = true;
  L inner;
  Clock clock;
  Slow(L l, Clock c) : inner(std::move(l)), clock(std::move(c)) {}
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    const bool slow = slowed_by_blocks(*clock, x);
    auto result = inner.forward(context, x);
    return Result{slow ? std::move(result.output) : slowed(clock, std::move(result.output)), std::move(result.saved)};
  }
  template <class Context, class X, class G>
  auto backward_input(const Context& context, X x, const G& g) {
    const bool slow = slowed_by_blocks(*clock, g);
    auto split = inner.backward_input(context, std::move(x), g);
    return InputGradient{slow ? std::move(split.input_gradient) : slowed(clock, std::move(split.input_gradient)),
                         std::move(split.deferred)};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    inner.backward_weight(context, std::move(deferred));
  }
};

struct Config {
  Clock clock;
};

struct SlowMlp {
  using scalar = double;
  using Config = hidden::Config;
  using Batch = FieldBatch<input_field, wanted_field>;

  struct First : Module<First> {
    Linear<> in;
    explicit First(const auto& context) : in(context / "in", width, width) {}
    auto forward(const auto& batch) const { return in(to_hidden(batch[input_field])); }
  };
  struct Middle : Module<Middle> {
    Slow<Linear<Column>> gate, up;
    Slow<Linear<Row>> down;
    Middle(const auto& context, const Clock& clock)
        : gate(Linear<Column>(context / "gate", width, width), clock),
          up(Linear<Column>(context / "up", width, width), clock),
          down(Linear<Row>(context / "down", width, width), clock) {}
    auto forward(const auto& x) const {
      const auto inside = to<Replicated<tp>>(x);
      return x + to_layout_of(x, down(SwiGlu{}(std::tuple(gate(inside), up(inside)))));
    }
  };
  struct Last : Module<Last> {
    Linear<> out;
    explicit Last(const auto& context) : out(context / "out", width, width) {}
    auto forward(const auto& x, const auto& batch) const {
      return sum_losses(HalfSquares()(out(x) - to_hidden(batch[wanted_field])));
    }
  };

  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return First(context / "first"); },
                 repeated(blocks, [=](std::size_t i) { return Middle(context / "middle" / std::to_string(i), config.clock); }),
                 [=] { return Last(context / "last"); });
  }
};

using Tensors = DataParallel<TensorParallel<SlowMlp>>;
using Sequences = DataParallel<SequenceParallel<SlowMlp>>;

/// Seconds of a step: without delays, with delays, and with delays and pieces.
struct Seconds {
  double fast = 0, whole = 0, pieces = 0, in_transit = 0;
  double hidden(double slow) const { return 1 - (slow - fast) / in_transit; }
};

/// Steps of this rank. `delay(communicator, clock)` is the communicator with delays; each rank's `network` has them.
template <class Model, class Delay>
Seconds measured(World& world, Delay delay, testing::SlowNetwork& network) {
  const auto clock = std::make_shared<testing::SimulatedClock>();
  World slow(delay(world.communicator(), clock), world.device());
  const Mesh<dp, tp> mesh(slow, {.tp = 2});
  Model whole(mesh, {clock}, {}), pieces(mesh, {clock}, {.tensor = {.piece_bytes = 1024}});
  SlowMlp::Batch batch;
  batch.samples = rows;
  batch.micro_batches = 1;
  fill_field(batch, input_field, 1, {width});
  fill_field(batch, wanted_field, 2, {width});
  double in_transit = 0;
  const auto once = [&](Model& model, double delay_s) {
    world.communicator().barrier();
    network.set({});
    world.communicator().barrier();
    slow.communicator().barrier();  // the clocks of all ranks have one time
    network.set({.seconds_per_byte = delay_s / double(rows * width * sizeof(double) /
                                                      (std::is_same_v<Model, Sequences> ? 2 : 1))});  // of a rank's part
    world.communicator().barrier();
    const double before = testing::delayed(mesh.comm(tp{})).seconds, begin = clock->now();
    model.train_step(batch);
    in_transit = testing::delayed(mesh.comm(tp{})).seconds - before;
    return clock->now() - begin;
  };
  once(whole, 0), once(pieces, 0);
  const double fast = once(whole, 0), slowly = once(whole, message_s);
  return {fast, slowly, once(pieces, message_s), in_transit};
}

/// The check of a step with `messages` messages over tp.
inline void check_hidden(const std::string& what, int messages, const Seconds& seconds) {
  const double hidden = seconds.hidden(seconds.pieces), without = seconds.hidden(seconds.whole);
  MESSAGE(what << ": a step of " << seconds.fast << " s with " << seconds.in_transit << " s of messages: hidden " << hidden
               << ", without pieces " << without);
  CHECK(seconds.in_transit >= messages * blocks * message_s);
  CHECK(seconds.in_transit <= messages * blocks * message_s * 1.02);  // and gradients of biases, the loss and checks
  CHECK(hidden >= 0.8);
  CHECK(without <= 0.2);
}

}  // namespace weft_test::hidden
