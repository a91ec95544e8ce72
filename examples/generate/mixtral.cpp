// SPDX-License-Identifier: Apache-2.0
// Mixtral and Qwen3-MoE: the ranks of tp divide the experts if possible; otherwise each rank has all of them.

#include <weft/models/mixtral.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/expert_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>

#include "model.hpp"

namespace generate_text {

std::unique_ptr<LoadedModel> load_mixtral(weft::World& world, const std::string& folder, const Layout& layout) {
  using namespace weft;
  using Model = DataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::Mixtral>>>>;
  const auto config = hugging_face::read_config<models::MixtralConfig>(folder);
  const std::size_t parts = config.experts % layout.tp == 0 ? layout.tp : 1;
  return std::make_unique<Loaded<Model, Mesh<dp, tp, pp, weft::ep, etp, edp>>>(world, folder, config, layout, parts);
}

}  // namespace generate_text
