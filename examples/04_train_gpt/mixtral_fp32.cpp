// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts in fp32.
#include "composition.hpp"

namespace train_gpt {

std::unique_ptr<TrainedModel> make_mixtral_fp32(weft::World& world, const Options& options) {
  return compose<weft::nn::BasicMixtral<float>>(world, options);
}

}  // namespace train_gpt
