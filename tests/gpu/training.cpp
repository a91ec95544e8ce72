// SPDX-License-Identifier: Apache-2.0
// A small GPT, Llama and mixture of experts trained on one GPU (./tests/run --gpu). Double, float and bfloat16 agree, although
// they use different kernels; wrappers over axes of degree 1 and a step as a CUDA graph change nothing; the loss decreases.
#include <cmath>
#include <cstdio>
#include <vector>

#include <weft/kernels/cudnn/use.hpp>
#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/models/mixtral.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/cuda/graphed_step.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

int failures = 0;
void check(bool good, const char* what, double value, double limit) {
  std::printf("%-6s %s: %.3e, at most %.3e\n", good ? "ok" : "FAILED", what, value, limit);
  failures += !good;
}

Batch batch_of(std::size_t length) {
  Batch batch;
  batch.sequences = 8;
  batch.length = length;
  batch.micro_batches = 2;
  for (std::size_t i = 0; i < batch.sequences * length; ++i) {
    batch.tokens.push_back(std::int32_t((i * i + i / 3) % 61));
    batch.targets.push_back(std::int32_t(((i + 1) * (i + 1) + (i + 1) / 3) % 61));
  }
  return batch;
}

std::size_t grown =
    0;  // bytes that steps of dense models after the third took from CUDA; rows of experts differ from step to step

template <class Model, class Step>
std::vector<double> train(Model& model, int steps, Step&& train_step) {
  optim::AdamW optimizer(model, {.learning_rate = 1e-3, .clip = 1.0});
  Batch batch = batch_of(64);
  std::vector<double> losses;
  std::size_t reserved = 0;
  for (int step = 0; step < steps; ++step) {
    if (step == 3) reserved = model.device().arena().use().reserved;
    batch.step = std::uint64_t(step);
    losses.push_back(train_step(batch));
    optimizer.step();
  }
  if (constexpr bool mixture = requires(const typename Model::Config& config) { Model::model_type::experts(config); };
      !mixture && steps > 3)
    grown += model.device().arena().use().reserved - reserved;
  return losses;
}

template <class Model>
std::vector<double> train(Model& model, int steps) {
  return train(model, steps, [&](const Batch& batch) { return model.train_step(batch); });
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    worst = d >= 0 ? std::max(worst, d) : INFINITY;
  }
  return worst;
}

template <template <class> class Model, class Config>
void precisions(World& world, const char* name, const Config& config) {
  constexpr int steps = 20;
  SingleDevice<Model<double>> exact(world.device(), config);
  SingleDevice<Model<float>> single(world.device(), config);
  SingleDevice<Model<bfloat16>> half(world.device(), config);
  const auto a = train(exact, steps), b = train(single, steps), c = train(half, steps);
  std::printf("%s: losses %.4f to %.4f\n", name, a.front(), a.back());
  check(a.back() < 0.9 * a.front(), "the loss goes down", a.back(), 0.9 * a.front());
  check(largest_difference(a, b) < 2e-3, "float beside double", largest_difference(a, b), 2e-3);
  check(largest_difference(a, c) < 0.1, "bfloat16 beside double", largest_difference(a, c), 0.1);
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run<comm::Threads>(RunOptions{.ranks = 1, .argc = argc, .argv = argv}, [](World& world) {
    cudnn::use_for_attention(world.device(), cudnn::Bits::same);
    const models::GptConfig gpt{.vocabulary = 61, .layers = 2, .width = 128, .heads = 2, .sequence = 64, .dropout = 0.1};
    precisions<models::BasicGpt>(world, "GPT", gpt);
    precisions<models::BasicLlama>(
        world, "Llama",
        models::LlamaConfig{.vocabulary = 61, .layers = 2, .width = 128, .heads = 2, .kv_heads = 1, .sequence = 64});
    SingleDevice<models::BasicGpt<bfloat16>> bare(world.device(), gpt), again(world.device(), gpt);
    const auto losses = train(bare, 10);
    check(losses == train(again, 10), "two runs give the same bits", 0, 0);
    // The graph is recorded in the third step.
    models::GptConfig without_dropout = gpt;
    without_dropout.dropout = 0;
    SingleDevice<models::BasicGpt<bfloat16>> plain(world.device(), without_dropout), recorded(world.device(), without_dropout);
    gpu::GraphedStep train_step(recorded);
    check(train(plain, 10) == train(recorded, 10, train_step), "a step as a CUDA graph gives the same bits", 0, 0);
    const models::MixtralConfig mixtral{.vocabulary = 61,
                                        .layers = 2,
                                        .width = 64,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .intermediate = 96,
                                        .sequence = 64,
                                        .experts = 8,
                                        .top_k = 2};
    SingleDevice<models::BasicMixtral<bfloat16>> experts(world.device(), mixtral), twins(world.device(), mixtral);
    const auto mixed = train(experts, 20);
    check(mixed.back() < 0.9 * mixed.front(), "the loss of a mixture goes down", mixed.back(), 0.9 * mixed.front());
    check(mixed == train(twins, 20), "two runs of a mixture give the same bits", 0, 0);
    Mesh<dp, tp, pp> mesh(world);
    DataParallel<TensorParallel<PipelineParallel<models::BasicGpt<bfloat16>, schedule::OneForwardOneBackward>>> wrapped(mesh,
                                                                                                                        gpt);
    const double difference = largest_difference(losses, train(wrapped, 10));
    check(difference <= 1e-2, "wrappers of degree 1", difference, 1e-2);
    check(grown == 0, "bytes that dense steps after the third took", double(grown), 0);
    return failures == 0 ? 0 : 1;
  });
  std::printf("%s\n", code == 0 ? "passed" : "failed");
  return code;
}
