// SPDX-License-Identifier: Apache-2.0
// The compositions in 16 bits. fp16, with a loss scale that adapts during training, has only one: processors multiply bf16.
#include "composition.hpp"

namespace train_gpt {

std::unique_ptr<TrainedModel> make_gpt_bf16(weft::World& world, const Options& options) {
  return compose<weft::models::BasicGpt<weft::bfloat16, weft::Lora>>(world, options);
}

std::unique_ptr<TrainedModel> make_llama_bf16(weft::World& world, const Options& options) {
  return compose<weft::models::BasicLlama<weft::bfloat16, weft::Lora>>(world, options);
}

std::unique_ptr<TrainedModel> make_mixtral_bf16(weft::World& world, const Options& options) {
  return compose<weft::models::BasicMixtral<weft::bfloat16, weft::Lora>>(world, options);
}

std::unique_ptr<TrainedModel> make_gpt_fp16(weft::World& world, const Options& options) {
  return std::make_unique<Composition<weft::models::BasicGpt<weft::float16>, weft::Invariant<weft::tp>>>(world, options);
}

}  // namespace train_gpt
