// SPDX-License-Identifier: Apache-2.0
// Launches and bytes of one block and of one training step on a GPU, as declared by the kernels. The programs are rehearsed, so
// this needs no GPU, no memory and no time. Prints tables in Markdown.
//
//   bench_gpu_traffic
//
// The host's space is declared not to be a host, so the loops and launches are those of GPUs. Attention counts as one launch of a
// library that writes no scores, and epilogues of products (bias, GELU, sums of a bias' gradient) as part of the product.
#include <Kokkos_Core.hpp>

#include <weft/device/parallel_for.hpp>

template <>
inline constexpr bool weft::detail::on_host<Kokkos::DefaultExecutionSpace> = false;

#include <cstdio>
#include <string>
#include <vector>

#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/rehearse.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

constexpr std::size_t tokens = 16384;

Batch batch_of(std::size_t length) {
  Batch batch{.sequences = tokens / length, .length = length, .micro_batches = 1};
  batch.tokens.assign(tokens, 1);
  batch.targets.assign(tokens, 2);
  return batch;
}

/// The notes since `before`.
Rehearsal less(Rehearsal notes, const Rehearsal& before) {
  notes.launches -= before.launches;
  notes.kernel_bytes -= before.kernel_bytes;
  notes.product_flops -= before.product_flops;
  notes.attention_flops -= before.attention_flops;
  for (Rehearsal::Kernels& one : notes.kernels) {
    const Rehearsal::Kernels was = before.of(one.kind);
    one.launches -= was.launches;
    one.bytes -= was.bytes;
  }
  for (Rehearsal::Messages& one : notes.messages) {
    const Rehearsal::Messages was = before.of(one.axis, one.operation);
    one.calls -= was.calls;
    one.bytes -= was.bytes;
  }
  return notes;
}

/// The second step of a model with `layers` layers, which, like later steps, finds all buffers allocated.
Rehearsal gpt(std::size_t vocabulary, std::size_t layers, bool update) {
  Rehearsal step;
  runtime::rehearse({}, [&](World& world) {
    const models::GptConfig config{.vocabulary = vocabulary, .layers = layers, .width = 768, .heads = 12, .sequence = 1024};
    SingleDevice<models::BasicGpt<bfloat16>> model(world.device(), config);
    optim::AdamW optimizer(model, {.clip = 1.0});
    for (int i = 0; i < 2; ++i) {
      const Rehearsal before = *world.device().rehearsal();
      model.train_step(batch_of(1024));
      if (update) optimizer.step();
      else model.discard_gradients();
      step = less(*world.device().rehearsal(), before);
    }
  });
  return step;
}

Rehearsal llama(std::size_t layers, int ranks, bool update) {
  Rehearsal step;
  runtime::rehearse({.ranks = ranks}, [&](World& world) {
    const Mesh<tp> mesh(world, {.tp = std::size_t(ranks)});
    const models::LlamaConfig config{
        .vocabulary = 32000, .layers = layers, .width = 4096, .heads = 32, .intermediate = 11008, .sequence = 4096};
    TensorParallel<models::BasicLlama<bfloat16>> model(mesh, config);
    optim::AdamW optimizer(model, {.clip = 1.0});
    for (int i = 0; i < 2; ++i) {
      const Rehearsal before = *world.device().rehearsal();
      model.train_step(batch_of(4096));
      if (update) optimizer.step();
      else model.discard_gradients();
      step = less(*world.device().rehearsal(), before);
    }
  });
  return step;
}

void print(const char* title, const Rehearsal& block, const Rehearsal& step) {
  std::printf(
      "\n## %s\n\n| | block: launches | MB | step: launches | MB | share of the bytes, %% | fewest threads "
      "|\n|---|---|---|---|---|---|---|\n",
      title);
  for (const Rehearsal::Kernels& one : step.kernels) {
    if (one.launches == 0) continue;
    const Rehearsal::Kernels of_block = block.of(one.kind);
    const std::string threads = one.least_threads == 0 ? "a library's" : std::to_string(one.least_threads);
    std::printf("| %s | %.0f | %.1f | %.0f | %.1f | %.1f | %s |\n", std::string(one.kind).c_str(), double(of_block.launches),
                of_block.bytes / 1e6, double(one.launches), one.bytes / 1e6, 100 * one.bytes / step.kernel_bytes,
                threads.c_str());
  }
  std::printf("| all | %.0f | %.1f | %.0f | %.1f | 100 | |\n", double(block.launches), block.kernel_bytes / 1e6,
              double(step.launches), step.kernel_bytes / 1e6);
  for (const Rehearsal::Messages& one : step.messages)
    if (one.calls != 0) {
      const Rehearsal::Messages of_block = block.of(one.axis, one.operation);
      std::printf("| messages: %s, %s | %.0f | %.1f | %.0f | %.1f | | |\n", one.axis.c_str(), std::string(one.operation).c_str(),
                  double(of_block.calls), of_block.bytes / 1e6, double(one.calls), one.bytes / 1e6);
    }
  std::printf("\nOne step: %.1f TFLOP in products, %.1f TFLOP in attention.\n", step.product_flops / 1e12,
              step.attention_flops / 1e12);
}

}  // namespace

int main() {
  const runtime::detail::KokkosGuard kokkos(1);
  for (const std::size_t vocabulary : {50257, 50304})
    print(("GPT-2 124M, vocabulary " + std::to_string(vocabulary) + ", 16 sequences of 1024, bfloat16").c_str(),
          less(gpt(vocabulary, 2, false), gpt(vocabulary, 1, false)), gpt(vocabulary, 12, true));
  for (const int ranks : {1, 8})
    print(("One rank of Llama 7B with tp " + std::to_string(ranks) + ", 4 sequences of 4096, bfloat16").c_str(),
          less(llama(2, ranks, false), llama(1, ranks, false)), llama(32, ranks, true));
}
