// SPDX-License-Identifier: Apache-2.0
#pragma once
// A step over tp = 2 whose every message takes a time of its own, on any backend. Each block is Llama's MLP. Over tensor ranks a
// sum in forward follows one product, and the sum in backward follows two, of which it is the sum. Under sequence parallelism
// they are reduce-scatters, a gather in forward comes before two products, and one in backward before one. Products sleep for
// each row, so that they take the same time on any computer.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/nn/summed_product.hpp>
#include <weft/parallel/sequence_parallel.hpp>
#include <weft/tensor/add.hpp>
#include <weft/testing/delay_messages.hpp>

#include "support/field_models.hpp"

namespace weft_test::hidden {

constexpr std::size_t rows = 1024, width = 8, blocks = 1;
constexpr double product_s = 0.15, message_s = 0.12;  // of all rows, which may go in 8 pieces

inline void rest(std::size_t count) {
  std::this_thread::sleep_for(std::chrono::duration<double>(product_s * double(count) / rows));
}

/// The product y of x, each of whose rows takes a part of `product_s` more to compute. Rows of x that arrive are waited for in
/// the blocks of a product.
template <class X>
bool slowed_by_blocks(const X& x) {
  if (x.arriving() == nullptr) return false;
  detail::for_each_block_of_rows(x, [](const auto*, std::size_t, std::size_t count) { rest(count); });
  return true;
}
template <class Y>
Y slowed(Y y) {
  if (y.pending() == nullptr) return rest(y.rows()), y;
  auto& device = y.device();
  return Y(device, y.shape(),
           std::make_shared<detail::PendingRows>(
               y.pending()->pieces(), y.rows(),
               [&device, bytes = y.size() * sizeof(typename Y::value_type)] { return device.allocate(bytes); },
               [y](std::size_t first, std::size_t count, void* out) {
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
    const bool slow = slowed_by_blocks(x);
    auto result = inner.forward(context, x);
    return Result{slow ? std::move(result.output) : slowed(std::move(result.output)), std::move(result.saved)};
  }
  template <class Context, class X, class G>
  auto backward_input(const Context& context, X x, const G& g) {
    const bool slow = slowed_by_blocks(g);
    auto split = inner.backward_input(context, std::move(x), g);
    return InputGradient{slow ? std::move(split.input_gradient) : slowed(std::move(split.input_gradient)),
                         std::move(split.deferred)};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    inner.backward_weight(context, std::move(deferred));
  }
};

struct Config {};

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
      return sum_losses(HalfSquares()(out(x) - to_hidden(batch[wanted_field])));
    }
  };

  static auto stack(const auto& context, const Config&) {
    return Stack([=] { return First(context / "first"); },
                 repeated(blocks, [=](std::size_t i) { return Middle(context / "middle" / std::to_string(i)); }),
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

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Medians of alternating steps of this rank. `delay(communicator)` is the communicator with delays; each rank's `network` has
/// them.
template <class Model, class Delay>
Seconds measured(World& world, Delay delay, testing::SlowNetwork& network) {
  constexpr int rounds = 5;
  World slow(delay(world.communicator()), world.device());
  const Mesh<dp, tp> mesh(slow, {.tp = 2});
  Model whole(mesh, {}, {}), pieces(mesh, {}, {.tensor = {.piece_bytes = 1024}});
  SlowMlp::Batch batch;
  batch.samples = rows;
  batch.micro_batches = 1;
  fill_field(batch, input_field, 1, {width});
  fill_field(batch, wanted_field, 2, {width});
  double in_transit = 0;
  const auto once = [&](Model& model, double delay_s) {
    world.communicator().barrier();
    network.set({.seconds_per_byte = delay_s / double(rows * width * sizeof(double) /
                                                      (std::is_same_v<Model, Sequences> ? 2 : 1))});  // of a rank's part
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
    times[1].push_back(once(whole, message_s));
    times[2].push_back(once(pieces, message_s));
  }
  network.set({});
  return {median(times[0]), median(times[1]), median(times[2]), in_transit};
}

/// The check of a step with `messages` messages over tp. `measure()`: Seconds of one measurement, on rank 0.
template <class Measure>
void check_hidden(const std::string& what, int messages, Measure measure) {
  Seconds seconds;
  for (int attempt = 0; attempt < 3 && !(seconds.hidden(seconds.pieces) >= 0.8); ++attempt) seconds = measure();
  const double hidden = seconds.hidden(seconds.pieces), without = seconds.hidden(seconds.whole);
  MESSAGE(what << ": a step of " << seconds.fast << " s with " << seconds.in_transit << " s of messages: hidden " << hidden
               << ", without pieces " << without);
  CHECK(seconds.in_transit >= messages * blocks * message_s);
  CHECK(seconds.in_transit <= messages * blocks * message_s * 1.02);  // and gradients of biases, the loss and checks
  CHECK(hidden >= 0.8);
  CHECK(without <= 0.2);
}

}  // namespace weft_test::hidden
