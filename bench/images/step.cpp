// SPDX-License-Identifier: Apache-2.0
// Steps of the image classifiers of examples/06_classify on two data-parallel ranks of one thread: 100 images of 28 x 28 over
// both ranks, AdamW. Prints JSON: milliseconds of each step, processor time of a step over both ranks, and the losses. compare.py
// runs it.
//
//   bench_images_step cnn|vit [steps [warm-up]]

#include <cstdlib>
#include <string_view>
#include <vector>

#include <weft/weft.hpp>

#include "../../examples/06_classify/models.hpp"
#include "../timed_steps.hpp"

namespace {

using namespace classify;

constexpr std::size_t global_batch = 100, batches = 8;

// Pixels and labels are a function of the image's number, the same as in pytorch_images.py.
std::vector<Images> make_batches(std::size_t rank, std::size_t ranks) {
  std::vector<Images> made(batches);
  for (std::size_t b = 0; b < batches; ++b) {
    Images& batch = made[b];
    batch.samples = global_batch / ranks;
    batch.first_sample = rank * batch.samples;
    const auto pixels = batch[image].resize(batch.samples, {1, 28, 28});
    const auto labels = batch[label].resize(batch.samples, {});
    for (std::size_t i = 0; i < batch.samples; ++i) {
      const std::size_t number = b * global_batch + rank * batch.samples + i;
      labels[i] = std::int32_t(number * 7 % 10);
      for (std::size_t p = 0; p < 784; ++p) pixels[i * 784 + p] = float((number * 37 + p * (1 + number * 7 % 10)) % 101) / 50 - 1;
    }
  }
  return made;
}

template <class Model>
void measure(World& world, int steps, int warm_up) {
  Mesh<dp> mesh(world, {.dp = 2});
  DataParallel<Model> model(mesh, {});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3, .weight_decay = 0.05, .decay_vectors = false});
  auto made = make_batches(std::size_t(mesh.rank(dp{})), 2);
  weft_bench::time_steps(world, {"images", global_batch}, steps, warm_up, [&](int step) {
    Images& batch = made[std::size_t(step) % batches];
    batch.step = std::uint64_t(step);
    const double loss = model.train_step(batch);
    optimizer.step();
    return loss;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "cnn";
  const int steps = argc > 2 ? std::max(1, std::atoi(argv[2])) : 40, warm_up = argc > 3 ? std::max(0, std::atoi(argv[3])) : 5;
  return run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    if (name == "vit") measure<VisionTransformer<float>>(world, steps, warm_up);
    else measure<Cnn<float>>(world, steps, warm_up);
  });
}
