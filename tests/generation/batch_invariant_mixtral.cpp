// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/model_options.hpp
// ModelOptions::numerics.batch_invariant: experts train with the bits that they generate.

#include <string>

#include <weft/models/mixtral.hpp>
#include <weft/parallel/model_options.hpp>

#include "generation/invariance.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {
using Model = models::BasicMixtral<float>;
models::MixtralConfig config_of() {
  models::MixtralConfig config = mixtral_config();
  config.sequence = trained_length;
  config.dropout = 0;
  config.auxiliary_loss = config.z_loss = 0;
  config.standard_deviation = 0.3;
  return config;
}
}  // namespace

TEST_CASE("Mixtral on one rank") {
  CHECK(apart_on_one_rank<Model>(config_of(), true) == 0);
  CHECK(apart_on_one_rank<Model>(config_of(), false) > 0);
}

TEST_CASE("experts that drop tokens are refused") {
  models::MixtralConfig config = config_of();
  config.drop = nn::Drop::by_position;
  config.capacity_factor = 1;
  DefaultDevice device;
  SingleDevice<Model> model(device, config, {.numerics = {.batch_invariant = true}});
  const std::string said = message<UsageError>([&] { (void)model.logits(scored_prompts[0]); });
  INFO(said);
  CHECK(said.find("numerics.batch_invariant: experts that drop tokens") != std::string::npos);
}
