// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's work in a rehearsal of the trainer: a model, its optimizer, two steps and an evaluation, on tokens that are all zero.
// ZeRO-3 needs three steps, since it gathers ahead only from the third on. `plan` rehearses this, too.

#include <cstddef>
#include <memory>

#include <weft/mesh/world.hpp>

#if __has_include(<xxhash.h>) && __has_include(<nlohmann/json.hpp>) && __has_include(<weft/elastic/member.hpp>)
#include <weft/elastic/member.hpp>
#define TRAIN_GPT_COPIES
#endif

#include "options.hpp"
#include "setup.hpp"
#include "trained_model.hpp"

namespace train_gpt {

/// Throws LayoutError for an impossible layout.
inline void rehearse_steps(weft::World& world, Options o, bool evaluates = true) {
  resolve_layout(o, std::size_t(world.size()));
  const std::unique_ptr<TrainedModel> model = make_model(world, o);
  const weft::data::Share share = model->share();
  weft::Batch batch{.sequences = std::size_t(*o.global_batch) / share.size, .length = std::size_t(o.sequence)};
  batch.micro_batches = batch.sequences / std::size_t(*o.micro_batch);
  batch.first_sequence = share.rank * batch.sequences;
  batch.tokens.assign(batch.sequences * batch.length, 0);
  batch.targets = batch.tokens;
  for (int step = 0; step < (o.zero == 3 ? 3 : 2); ++step) {
    model->train_step(batch);
    model->optimize(o.learning_rate);
  }
#ifdef TRAIN_GPT_COPIES
  if (!o.elastic.empty()) {
    weft::elastic::Member member;
    model->keep(member, 2);  // notes the bytes of the copies
  }
#endif
  if (evaluates) model->evaluate(batch);
}

}  // namespace train_gpt
