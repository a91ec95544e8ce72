// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts in bf16.
#include "composition.hpp"

namespace train_gpt {

std::unique_ptr<TrainedModel> make_mixtral_bf16(weft::World& world, const Options& options) {
  return compose<weft::nn::BasicMixtral<weft::bfloat16>>(world, options);
}

}  // namespace train_gpt
