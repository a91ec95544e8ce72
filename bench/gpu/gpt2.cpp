// SPDX-License-Identifier: Apache-2.0
// Training steps of GPT-2 124M on one GPU, in bfloat16: 12 layers, width 768, sequence 1024, vocabulary 50304 (50257 padded to a
// multiple of 64, as in the PyTorch program in this folder). Prints JSON, or that memory is too small.
//
//   bench_gpu_gpt2 MICRO_BATCH [steps] [graph] [timed]      graph: forward and backward as one CUDA graph, whose memory is not
//                                                            in "bytes"; timed: the fastest of 8 algorithms per product
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <weft/kernels/cudnn/use.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/cuda/graphed_step.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

int main(int argc, char** argv) {
  const std::size_t sequences = argc > 1 ? std::size_t(std::max(1, std::atoi(argv[1]))) : 16, length = 1024;
  const int steps = argc > 2 ? std::max(1, std::atoi(argv[2])) : 20;
  const auto said = [&](std::string_view word) { return std::find(argv + std::min(argc, 3), argv + argc, word) != argv + argc; };
  const bool graph = said("graph"), timed = said("timed");
  return run<comm::Threads>(RunOptions{.ranks = 1}, [&](World& world) {
    cudnn::use_for_attention(world.device(), cudnn::Bits::vary);
    kernels::time_products(world.device(), timed);
    const models::GptConfig config{.vocabulary = 50304, .layers = 12, .width = 768, .heads = 12, .sequence = length};
    SingleDevice<models::BasicGpt<bfloat16>> model(world.device(), config);
    gpu::GraphedStep graphed_step(model);
    optim::AdamW optimizer(model, {.learning_rate = 3e-4, .clip = 1.0});
    Batch batch;
    batch.sequences = sequences;
    batch.length = length;
    batch.micro_batches = 1;
    for (std::size_t i = 0; i < sequences * length; ++i) {
      batch.tokens.push_back(std::int32_t((i * 2654435761u >> 8) % 50257));
      batch.targets.push_back(std::int32_t(((i + 1) * 2654435761u >> 8) % 50257));
    }
    std::vector<double> seconds;
    double loss = 0;
    for (int step = -5; step < steps; ++step) {  // the first steps choose algorithms, compile attention and fill the arena
      const auto started = std::chrono::steady_clock::now();
      loss = graph ? graphed_step(batch) : model.train_step(batch);
      optimizer.step();
      world.device().exec().fence("bench: end of a step");
      if (step >= 0) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + std::ptrdiff_t(seconds.size() / 2), seconds.end());
    const double tokens = double(sequences * length), median = seconds[seconds.size() / 2];
    // 6 operations per parameter of a matrix product and token, and the products of attention, half of which a causal mask
    // removes.
    const double parameters = 12.0 * 12 * 768 * 768 + 50304.0 * 768,
                 operations = tokens * (6 * parameters + 6.0 * 12 * 768 * double(length));
    std::printf(
        "{\"framework\": \"weft\", \"graph\": %s, \"timed\": %s, \"micro_batch\": %zu, \"tokens_per_s\": %.0f, \"ms\": %.3f, "
        "\"tflops\": %.1f, "
        "\"loss\": %.4f, \"bytes\": %zu}\n",
        graph ? "true" : "false", timed ? "true" : "false", sequences, tokens / median, 1e3 * median, operations / median / 1e12,
        loss, world.device().arena().use().reserved);
  });
}
