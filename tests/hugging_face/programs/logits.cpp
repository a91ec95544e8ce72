// SPDX-License-Identifier: Apache-2.0
// The weft side of test_transformers.py: loads a folder into weft's model, and writes the logits of a sequence of tokens, and a
// folder.
//
//   program_hugging_face RANKS TP FOLDER TOKENS LOGITS NEW_FOLDER      tokens: "3,1,4"; logits: float64, one row after the other

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/parallel/expert_parallel.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

namespace {

using namespace weft;

template <class Composition, class Grid>
void compare(World& world, Degrees degrees, char** argv) {
  Grid mesh(world, degrees);
  Composition model(mesh, hugging_face::read_config<typename Composition::Config>(argv[3]), {});
  hugging_face::load(argv[3], model);
  std::vector<std::int32_t> tokens;
  std::istringstream text(argv[4]);
  for (std::string token; std::getline(text, token, ',');) tokens.push_back(std::stoi(token));
  const std::vector<double> logits = model.logits(tokens);
  if (world.rank() == 0) {
    std::ofstream out(argv[5], std::ios::binary);
    out.write(reinterpret_cast<const char*>(logits.data()), std::streamsize(logits.size() * sizeof(double)));
  }
  hugging_face::save(argv[6], model);
}

template <class Model>
using Dense = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
template <class Model>
using Experts = FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<Model>>>>;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return std::fprintf(stderr, "program_hugging_face RANKS TP FOLDER TOKENS LOGITS NEW_FOLDER\n"), 2;
  const Degrees degrees{.tp = std::size_t(std::stoi(argv[2]))};
  return runtime::run(runtime::RunOptions{.ranks = std::stoi(argv[1])}, [&](World& world) {
    const std::string type = hugging_face::model_type(argv[3]);
    if (type == "gpt2") compare<Dense<models::Gpt>, Mesh<dp, tp, pp>>(world, degrees, argv);
    else if (type == "llama") compare<Dense<models::Llama>, Mesh<dp, tp, pp>>(world, degrees, argv);
    else compare<Experts<models::Mixtral>, Mesh<dp, tp, pp, ep, etp, edp>>(world, {.tp = degrees.tp, .ep = 2}, argv);
  });
}
