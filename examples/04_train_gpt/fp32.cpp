// SPDX-License-Identifier: Apache-2.0
// The compositions in fp32. They are in one file because they share their kernels, which halves the compile time. Linear layers
// have adapters for finetune; without --lora they are plain, with the same bits.
#include "composition.hpp"

namespace train_gpt {

std::unique_ptr<TrainedModel> make_gpt_fp32(weft::World& world, const Options& options) {
  return compose<weft::models::BasicGpt<float, weft::Lora>>(world, options);
}

std::unique_ptr<TrainedModel> make_llama_fp32(weft::World& world, const Options& options) {
  return compose<weft::models::BasicLlama<float, weft::Lora>>(world, options);
}

std::unique_ptr<TrainedModel> make_mixtral_fp32(weft::World& world, const Options& options) {
  return compose<weft::models::BasicMixtral<float, weft::Lora>>(world, options);
}

}  // namespace train_gpt
