// SPDX-License-Identifier: Apache-2.0
#include "composition.hpp"

namespace train_gpt {
std::unique_ptr<TrainedModel> make_gpt_fp32(weft::World& world, const Options& options) {
  return compose<weft::nn::BasicGpt<float>>(world, options);
}
}  // namespace train_gpt
