// SPDX-License-Identifier: Apache-2.0
// One sample through an MLP 3-64-64-1 in float, as a solver calls a surrogate at each point: inference::Model and model.predict.
// Prints JSON: microseconds per call, the median and the best of windows.
//
//   bench_small_inference [windows [calls]]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <weft/inference/model.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"in", float> in;
inline constexpr data::Field<"out", float> out;

struct Mlp : Module<Mlp> {
  using scalar = float;
  using Batch = FieldBatch<in, out>;
  struct Config {};
  Linear<> first, hidden, last;
  Mlp(const auto& context, const Config&)
      : first(context / "first", 3, 64), hidden(context / "hidden", 64, 64), last(context / "last", 64, 1) {}
  auto forward(const auto& x) const { return last(silu(hidden(silu(first(x))))); }
  auto loss(const auto& batch) const { return mse(forward(batch[in]), batch[out]); }
};

struct Times {
  double median, best;
};

template <class F>
Times measure(int windows, int calls, F&& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> all;
  for (int window = 0; window < windows; ++window) {
    const auto started = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - started).count() / calls);
  }
  std::sort(all.begin(), all.end());
  return {all[all.size() / 2], all[0]};
}

}  // namespace

int main(int argc, char** argv) {
  const int windows = argc > 1 ? std::max(1, std::atoi(argv[1])) : 11, calls = argc > 2 ? std::max(1, std::atoi(argv[2])) : 20000;
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(1).set_disable_warnings(true));
  DefaultDevice device;
  SingleDevice<Mlp> model(device, {});
  inference::Model<Mlp> net(model);
  float x[3] = {0.1f, 0.2f, 0.3f}, y[1];
  Mlp::Batch batch{.samples = 1};
  batch[in].view(std::span<const float>(x), {3});
  const Times call = measure(windows, calls, [&] { net(x, y); });
  const Times predict = measure(windows, calls, [&] { y[0] = float(model.predict(batch).values[0]); });
  std::printf("{\"call_us\": %.3f, \"call_best_us\": %.3f, \"predict_us\": %.3f, \"predict_best_us\": %.3f}\n", call.median,
              call.best, predict.median, predict.best);
  return 0;
}
