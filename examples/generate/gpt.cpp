// SPDX-License-Identifier: Apache-2.0
// GPT-2.

#include <weft/models/gpt.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>

#include "model.hpp"

namespace generate_text {

std::unique_ptr<LoadedModel> load_gpt(weft::World& world, const std::string& folder, const Layout& layout) {
  using Model = weft::TensorParallel<weft::PipelineParallel<weft::models::Gpt>>;
  return std::make_unique<Loaded<Model, weft::Mesh<weft::tp, weft::pp>>>(
      world, folder, weft::hugging_face::read_config<weft::models::GptConfig>(folder), layout);
}

}  // namespace generate_text
