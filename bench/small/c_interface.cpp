// SPDX-License-Identifier: Apache-2.0
// The C interface as a solver calls it: steps and predictions of the model "mlp" on arrays of the program, one rank. Prints lines
// "NAME MICROSECONDS", the median of windows. bench/small/torchfort/solver.cpp does the same in libtorch.
//
//   bench_small_c_interface

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include <weft/c_interface/define.hpp>
#include <weft/c_interface/mlp.hpp>

namespace {

void check(int code) {
  if (code == 0) return;
  std::fprintf(stderr, "%s\n", weft_error());
  std::exit(1);
}

template <class F>
void report(const char* name, F&& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> windows;
  for (int window = 0; window < 21; ++window) {
    const auto start = Clock::now();
    for (int i = 0; i < 100; ++i) call();
    windows.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / 100);
  }
  std::nth_element(windows.begin() + 1, windows.begin() + 11, windows.end());  // the first one warms up
  std::printf("%s %.2f\n", name, windows[11]);
}

}  // namespace

int main() {
  constexpr std::size_t width = 32, samples = 256, shape[] = {width};
  std::vector<float> x(samples * width), y(samples * width);
  std::vector<double> guess(samples * width);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(std::sin(0.37 * double(i))), y[i] = float(std::cos(0.11 * double(i)));
  weft_world* world = nullptr;
  weft_model* model = nullptr;
  double loss = 0;
  check(weft_begin(1));
  check(weft_world_single(&world));
  check(weft_model_new(world, "mlp", "inputs=32 hidden=128,128 outputs=32 activation=relu", &model));
  check(weft_optimizer(model, "adamw", "learning_rate=1e-3"));
  report("step", [&] {
    check(weft_field(model, "input", x.data(), WEFT_FLOAT32, samples, 1, shape));
    check(weft_field(model, "target", y.data(), WEFT_FLOAT32, samples, 1, shape));
    check(weft_train(model, &loss));
  });
  report("prediction", [&] {
    check(weft_field(model, "input", x.data(), WEFT_FLOAT32, samples, 1, shape));
    check(weft_predict(model, guess.data(), guess.size()));
  });
  report("one_sample", [&] {
    check(weft_field(model, "input", x.data(), WEFT_FLOAT32, 1, 1, shape));
    check(weft_predict(model, guess.data(), width));
  });
  std::fprintf(stderr, "loss %.4f\n", loss);
  check(weft_model_free(model));
  check(weft_world_free(world));
  check(weft_end());
}
