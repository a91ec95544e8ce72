// SPDX-License-Identifier: Apache-2.0
// The compositions in bf16, of models whose linear layers take adapters.
#include "../04_train_gpt/composition.hpp"

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

std::unique_ptr<TrainedModel> make_gpt_fp16(weft::World&, const Options&) {
  throw weft::UsageError("finetune: --precision is fp32 or bf16");  // the options refuse it
}

}  // namespace train_gpt
