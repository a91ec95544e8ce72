// SPDX-License-Identifier: Apache-2.0
// The weft side of test_finetune.py: loads a folder, trains on given tokens with AdamW, all parameters or only adapters, and
// writes the losses and the result.
//
//   program_finetune RANKS TP FOLDER TOKENS STEPS SEQUENCES LENGTH LORA_RANK OUT     tokens: int32 [steps, sequences, length + 1]

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/nn/lora.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

namespace {

using namespace weft;

struct Arguments {
  std::string folder, out;
  std::vector<std::int32_t> tokens;
  std::size_t tp, steps, sequences, length, rank;
};

template <class Model>
void train(World& world, const Arguments& a) {
  Mesh<dp, tp, pp> mesh(world, {.tp = a.tp});
  FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>> model(
      mesh, hugging_face::read_config<typename Model::Config>(a.folder),
      {.shard = {.stage = 2}, .lora = {.rank = a.rank, .alpha = 16}});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3, .weight_decay = 0.01});
  hugging_face::load(a.folder, model, optimizer);
  if (a.rank > 0) hugging_face::save_adapters(a.out + "/first", model, {.base = a.folder});
  std::ofstream losses(world.rank() == 0 ? a.out + "/losses" : "/dev/null");
  losses.precision(9);
  Batch batch;
  batch.sequences = a.sequences / std::size_t(mesh.size(dp{}));
  batch.length = a.length;
  batch.first_sequence = std::size_t(mesh.rank(dp{})) * batch.sequences;
  for (std::size_t step = 0; step < a.steps; ++step) {
    batch.step = step;
    batch.tokens.clear();
    batch.targets.clear();
    for (std::size_t s = 0; s < batch.sequences; ++s) {
      const std::size_t first = (step * a.sequences + batch.first_sequence + s) * (a.length + 1);
      for (std::size_t i = 0; i < a.length; ++i) {
        batch.tokens.push_back(a.tokens.at(first + i));
        batch.targets.push_back(a.tokens.at(first + i + 1));
      }
    }
    losses << model.train_step(batch) << '\n';
    optimizer.step();
  }
  if (a.rank > 0) hugging_face::save_adapters(a.out + "/last", model, {.base = a.folder});
  hugging_face::save(a.out + "/model", model);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10)
    return std::fprintf(stderr, "program_finetune RANKS TP FOLDER TOKENS STEPS SEQUENCES LENGTH LORA_RANK OUT\n"), 2;
  const auto number = [&](int i) { return std::size_t(std::stoi(argv[i])); };
  Arguments a{argv[3], argv[9], {}, number(2), number(5), number(6), number(7), number(8)};
  std::ifstream in(argv[4], std::ios::binary);
  for (std::int32_t token; in.read(reinterpret_cast<char*>(&token), sizeof token);) a.tokens.push_back(token);
  return runtime::run(runtime::RunOptions{.ranks = int(number(1))}, [&](World& world) {
    if (hugging_face::model_type(a.folder) == "gpt2") train<models::BasicGpt<float, Lora>>(world, a);
    else train<models::BasicLlama<float, Lora>>(world, a);
  });
}
