// SPDX-License-Identifier: Apache-2.0
// The composition in fp16, with a loss scale that is sought while training: one, as bf16 is what processors multiply.
#include "composition.hpp"

namespace train_gpt {

std::unique_ptr<TrainedModel> make_gpt_fp16(weft::World& world, const Options& options) {
  return std::make_unique<Composition<weft::nn::BasicGpt<weft::float16>, weft::Invariant<weft::tp>>>(world, options);
}

}  // namespace train_gpt
