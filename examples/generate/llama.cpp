// SPDX-License-Identifier: Apache-2.0
// Llama and similar models: Qwen2 and Qwen3.

#include <weft/models/llama.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>

#include "model.hpp"

namespace generate_text {

std::unique_ptr<LoadedModel> load_llama(weft::World& world, const std::string& folder, const Layout& layout) {
  using Model = weft::TensorParallel<weft::PipelineParallel<weft::models::Llama>>;
  return std::make_unique<Loaded<Model, weft::Mesh<weft::tp, weft::pp>>>(
      world, folder, weft::hugging_face::read_config<weft::models::LlamaConfig>(folder), layout);
}

}  // namespace generate_text
