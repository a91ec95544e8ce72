// SPDX-License-Identifier: Apache-2.0
// A training program of two layers in libtorch, for a comparison of compile times.
#include <torch/torch.h>

#include <cstdio>

struct Mlp : torch::nn::Module {
  torch::nn::Linear up, down;
  Mlp(int pixels, int width, int classes) : up(pixels, width), down(width, classes) {
    register_module("up", up);
    register_module("down", down);
  }
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::relu(up(x))); }
};

int main() {
  Mlp model(784, 256, 10);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
  for (int step = 0; step < 10; ++step) {
    const auto images = torch::rand({32, 784}), labels = torch::randint(10, {32}, torch::kLong);
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(model.forward(images), labels);
    loss.backward();
    optimizer.step();
    std::printf("loss %.3f\n", loss.item<double>());
  }
}
