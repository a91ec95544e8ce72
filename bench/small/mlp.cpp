// SPDX-License-Identifier: Apache-2.0
// A step of a model that is too small to fill a processor: an MLP 16-64-64-1 on a batch of 64, with AdamW and clipping, on one
// rank and on two data-parallel ranks (32 examples each) of one thread. Its products take a few microseconds, so the time is a
// framework's overhead. Prints JSON: microseconds per step, medians over windows of steps, and the best window.
//
//   bench_small_mlp [all|one|dp2 [windows [steps]]]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/autograd/loss_sum.hpp>
#include <weft/comm/threads.hpp>
#include <weft/nn/activation.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/sequential.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

constexpr std::size_t inputs = 16, width = 64, batch_size = 64;

/// An example's features by its number, [examples] -> [examples, inputs].
struct Features {
  template <class Context, class Ids>
  auto forward(const Context&, const Ids& ids) const {
    with_scalar_t<Ids, typename Context::scalar> x(ids.device(), {ids.size(), inputs});
    const auto* id = ids.data();
    auto* out = x.data();
    weft::detail::for_each_index(
        ids.device(), {"features", ids.size() * inputs * sizeof(*out)}, ids.size(), KOKKOS_LAMBDA(const std::size_t row) {
          for (std::size_t i = 0; i < inputs; ++i)
            out[row * inputs + i] = float((std::size_t(id[row]) * 37 + i * 11) % 101) / 101 - 0.5f;
        });
    return Result{std::move(x), Nothing{}};
  }
  Nothing backward(const auto&, Nothing, const auto&) const { return {}; }
  void for_each_parameter(auto&&) {}
};

/// The squared error of one output per example.
struct SquaredError {
  Linear<> project;

  template <class Context, class X, class Ids>
  auto forward(const Context& context, const X& x, const Ids& targets) const {
    auto z = project.forward(context, x);
    using Z = decltype(z.output);
    Z off(x.device(), z.output.shape()), losses(x.device(), {x.rows()});
    const auto* out = z.output.data();
    const auto* target = targets.data();
    auto *difference = off.data(), *loss = losses.data();
    weft::detail::for_each_index(
        x.device(), {"loss", x.rows() * (3 * sizeof(*out) + sizeof(*target))}, x.rows(), KOKKOS_LAMBDA(const std::size_t row) {
          difference[row] = out[row] - float(target[row]) / 100;
          loss[row] = difference[row] * difference[row];
        });
    return Result{sum_losses(context, losses, targets), std::pair{std::move(z.saved), std::move(off)}};
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    auto& [input, off] = saved;
    auto d = map(off, [scale = 2 * float(g.data()[0])](auto x) { return scale * x; });
    return weft::backward_input(project, context, std::move(input), relabel<gradient_t<std::remove_cvref_t<decltype(off)>>>(d));
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    weft::backward_weight(project, context, std::move(deferred));
  }
};

struct Mlp {
  struct Config {
    std::size_t hidden = 1;
  };
  using scalar = float;
  using Front = Sequential<Features, Linear<>, Gelu>;
  using Block = Sequential<Linear<>, Gelu>;
  using Back = SquaredError;
  static std::size_t blocks(const Config& config) { return config.hidden; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config&) {
    return Front(Features{}, Linear<>(context / "in", inputs, width, {.standard_deviation = 0.25}), Gelu{});
  }
  static Block make_block(const auto& context, const Config&, std::size_t index) {
    return Block(Linear<>(context / "hidden" / std::to_string(index), width, width, {.standard_deviation = 0.125}), Gelu{});
  }
  static Back make_back(const auto& context, const Config&, Front*) {
    return {Linear<>(context / "out", width, 1, {.standard_deviation = 0.125})};
  }
};

Batch make_batch(std::size_t rank, std::size_t ranks) {
  Batch batch{.sequences = batch_size / ranks, .length = 1, .first_sequence = rank * (batch_size / ranks)};
  for (std::size_t i = 0; i < batch.sequences; ++i) {
    batch.tokens.push_back(std::int32_t(batch.first_sequence + i));
    batch.targets.push_back(std::int32_t((batch.first_sequence + i) * 7 % 50));
  }
  return batch;
}

struct Times {
  double step = 0, best = 0, train = 0, optimizer = 0, loss = 0;
};

template <class Model>
Times measure(const Communicator& ranks, Model& model, Batch batch, int windows, int steps) {
  using Clock = std::chrono::steady_clock;
  optim::AdamW optimizer(model, {.clip = 1.0});
  std::vector<double> window, train, update;
  Times times;
  for (int w = -1; w < windows; ++w) {  // the first one warms up
    ranks.barrier();
    double forward_backward = 0;
    const auto started = Clock::now();
    for (int step = 0; step < steps; ++step) {
      const auto begin = Clock::now();
      times.loss = model.train_step(batch);
      forward_backward += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
      optimizer.step();
      ++batch.step;
    }
    if (w < 0) continue;
    window.push_back(std::chrono::duration<double, std::micro>(Clock::now() - started).count() / steps);
    train.push_back(forward_backward / steps);
    update.push_back(window.back() - train.back());
  }
  const auto median = [](std::vector<double>& of) {
    std::nth_element(of.begin(), of.begin() + std::ptrdiff_t(of.size() / 2), of.end());
    return of[of.size() / 2];
  };
  times.best = *std::min_element(window.begin(), window.end());
  times.step = median(window), times.train = median(train), times.optimizer = median(update);
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view only = argc > 1 ? argv[1] : "all";
  const int windows = argc > 2 ? std::max(1, std::atoi(argv[2])) : 41, steps = argc > 3 ? std::max(1, std::atoi(argv[3])) : 200;
  const auto print = [](const char* name, const Times& t) {
    std::printf(
        "{\"layout\": \"%s\", \"step_us\": %.1f, \"best_us\": %.1f, \"train_us\": %.1f, \"optimizer_us\": %.1f, \"loss\": "
        "%.17g}\n",
        name, t.step, t.best, t.train, t.optimizer, t.loss);
  };
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(2).set_disable_warnings(true));
  int code = 0;
  if (only != "dp2")
    code = run<comm::Threads>(RunOptions{.ranks = 1, .threads_per_rank = 1}, [&](World& world) {
      SingleDevice<Mlp> model(world.device(), {});
      print("one rank", measure(world.communicator(), model, make_batch(0, 1), windows, steps));
    });
  if (code != 0 || only == "one") return code;
  return run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp> mesh(world, {.dp = 2});
    DataParallel<Mlp> model(mesh, {});
    const Times times = measure(world.communicator(), model, make_batch(std::size_t(mesh.rank(dp{})), 2), windows, steps);
    if (world.rank() == 0) print("dp 2", times);
  });
}
