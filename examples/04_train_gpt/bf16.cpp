// SPDX-License-Identifier: Apache-2.0
// The compositions in bf16, together because they share their kernels: that halves the work of the compiler.
#include "composition.hpp"

namespace train_gpt {

std::unique_ptr<TrainedModel> make_gpt_bf16(weft::World& world, const Options& options) {
  return compose<weft::nn::BasicGpt<weft::bfloat16>>(world, options);
}

std::unique_ptr<TrainedModel> make_llama_bf16(weft::World& world, const Options& options) {
  return compose<weft::nn::BasicLlama<weft::bfloat16>>(world, options);
}

}  // namespace train_gpt
