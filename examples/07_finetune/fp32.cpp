// SPDX-License-Identifier: Apache-2.0
// The compositions in fp32, of models whose linear layers take adapters; without --lora they are plain, with the same bits.
#include "../04_train_gpt/composition.hpp"

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
