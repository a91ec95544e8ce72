// SPDX-License-Identifier: Apache-2.0
// bench/small/c_interface.cpp as TorchFort does it on a CPU: its MLP, tensors over the caller's arrays by from_blob, libtorch's
// optimizer; a prediction is copied into the caller's array (TorchFort 0.3: src/csrc, torchfort_train and torchfort_inference).
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

template <class F>
void report(const char* name, F&& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> windows;
  for (int window = 0; window < 21; ++window) {
    const auto start = Clock::now();
    for (int i = 0; i < 100; ++i) call();
    windows.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / 100);
  }
  std::nth_element(windows.begin() + 1, windows.begin() + 11, windows.end());
  std::printf("%s %.2f\n", name, windows[11]);
}

}  // namespace

int main() {
  constexpr std::int64_t width = 32, samples = 256;
  torch::set_num_threads(1);
  std::vector<float> x(samples * width), y(samples * width), guess(samples * width);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(std::sin(0.37 * double(i))), y[i] = float(std::cos(0.11 * double(i)));
  torch::nn::Sequential model(torch::nn::Linear(width, 128), torch::nn::ReLU(), torch::nn::Linear(128, 128), torch::nn::ReLU(),
                              torch::nn::Linear(128, width));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  double loss = 0;
  report("step", [&] {
    model->train();
    optimizer.zero_grad();
    const auto input = torch::from_blob(x.data(), {samples, width}), label = torch::from_blob(y.data(), {samples, width});
    const auto mean = torch::nn::functional::mse_loss(model->forward(input), label);
    loss = mean.item<double>();
    mean.backward();
    optimizer.step();
  });
  const auto predict = [&](std::int64_t count) {
    const torch::NoGradGuard no_gradient;
    model->eval();
    torch::from_blob(guess.data(), {count, width}).copy_(model->forward(torch::from_blob(x.data(), {count, width})));
  };
  report("prediction", [&] { predict(samples); });
  report("one_sample", [&] { predict(1); });
  std::fprintf(stderr, "loss %.4f\n", loss);
}
