// SPDX-License-Identifier: Apache-2.0
// The auxiliary losses of routers count all tokens: their part of the gradient is the same for any masked targets, in every
// layout.

#include "support/matrix.hpp"

using namespace weft_test;

namespace {

/// `masked` of 100 targets are ignored, a different number on each rank; `silent`: also all targets of the first data-parallel
/// rank.
struct Masks {
  std::size_t masked = 0;
  bool silent = false;
};
Batch masked_batch(std::size_t rank, std::size_t ranks, std::size_t micro_batches, const Masks& masks) {
  Batch batch = make_batch(0, rank, ranks, micro_batches);
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    const std::size_t index = batch.first_sequence * batch.length + i;
    const bool counts = (key_of(5, index) % 100 >= masks.masked || index + 1 == batch_sequences * batch_length) &&
                        !(masks.silent && index < batch_sequences * batch_length / ranks);
    batch.targets[i] = counts ? std::int32_t(key_of(6, index) % batch_vocabulary) : -1;
  }
  return batch;
}

models::MixtralConfig config_of(double auxiliary_loss, double z_loss) {
  models::MixtralConfig config = mixtral_config();
  config.layers = 2;
  config.dropout = 0;
  config.auxiliary_loss = auxiliary_loss;
  config.z_loss = z_loss;
  return config;
}

using Parts = std::map<std::string, std::map<std::size_t, double>>;

template <class M>
Parts gradients_of_routers(M& model, double factor, Parts sum = {}) {
  model.for_each_state([&](ParameterState& state) {
    if (state.name().find(".gate.") == std::string::npos) return;
    for_each_gradient(state, [&](std::size_t index, double value) { sum[state.name()][index] += factor * value; });
  });
  return sum;
}

/// The part of the two losses in the gradients of this rank's routers.
template <class Make>
Parts auxiliary_part(Make&& make, const Batch& batch, double auxiliary_loss, double z_loss) {
  auto with = make(config_of(auxiliary_loss, z_loss)), without = make(config_of(0, 0));
  if (std::abs(with->train_step(batch) - without->train_step(batch)) > 1e-14)
    throw Error("an auxiliary loss is in the loss that a step returns");
  return gradients_of_routers(*without, -1, gradients_of_routers(*with, 1));
}

double largest_difference(const Parts& mine, const Parts& expected) {
  double worst = 0;
  for (const auto& [name, values] : mine) {
    double scale = 0;
    for (const auto& [index, value] : expected.at(name)) scale = std::max(scale, std::abs(value));
    if (!(scale > 1e-4)) throw Error("nothing to compare: " + name);
    for (const auto& [index, value] : values) worst = std::max(worst, std::abs(value - expected.at(name).at(index)) / scale);
  }
  return worst;
}

const Masks all_masks[] = {{0, false}, {50, false}, {97, false}, {50, true}};

template <class Composition, class Grid>
void check_layout(const MatrixEntry& entry, const Parts& expected, double auxiliary_loss, double z_loss) {
  ModelOptions options;
  options.shard.stage = entry.zero;
  options.pipeline.schedule = schedule::choose(entry.schedule);
  const Degrees& d = entry.degrees;
  const std::size_t data_ranks = entry.world / (d.tp * d.cp * d.pp);
  for (const Masks& masks : all_masks) {
    if (masks.silent && data_ranks == 1) continue;
    std::mutex mutex;
    double worst = 0;
    const int code = run(RunOptions{.ranks = int(entry.world)}, [&](World& world) {
      Grid mesh(world, d);
      const auto make = [&](const models::MixtralConfig& config) { return std::make_unique<Composition>(mesh, config, options); };
      const Parts mine = auxiliary_part(make, masked_batch(std::size_t(mesh.rank(dp{})), data_ranks, entry.micro_batches, masks),
                                        auxiliary_loss, z_loss);
      std::lock_guard lock(mutex);
      worst = std::max(worst, largest_difference(mine, expected));
    });
    INFO("world " << entry.world << ", tp(" << d.tp << ") cp(" << d.cp << ") pp(" << d.pp << ") ep(" << d.ep << "), masked "
                  << masks.masked << std::string(masks.silent ? ", a rank without targets" : ""));
    CHECK(code == 0);
    CHECK(worst <= 1e-12);
  }
}

Parts on_one_rank(double auxiliary_loss, double z_loss, const Masks& masks = {}) {
  DefaultDevice device;
  const auto make = [&](const models::MixtralConfig& config) {
    return std::make_unique<SingleDevice<models::BasicMixtral<double>>>(device, config);
  };
  return auxiliary_part(make, masked_batch(0, 1, 1, masks), auxiliary_loss, z_loss);
}

}  // namespace

TEST_CASE("on one rank masks change nothing") {
  for (const auto& [auxiliary_loss, z_loss] : {std::pair{0.5, 0.0}, std::pair{0.0, 0.5}}) {
    const Parts expected = on_one_rank(auxiliary_loss, z_loss);
    for (const Masks& masks : all_masks)
      if (!masks.silent) CHECK(largest_difference(on_one_rank(auxiliary_loss, z_loss, masks), expected) <= 1e-12);
  }
}

TEST_CASE("over every axis masks change nothing") {
  const Parts expected = on_one_rank(0.5, 0.25);
  for (const MatrixEntry& entry : std::vector<MatrixEntry>{{2, {}, 2, "1f1b", 1},
                                                           {2, {.tp = 2}, 2},
                                                           {2, {.cp = 2}, 2},
                                                           {2, {.ep = 2}, 2, "1f1b", 3},
                                                           {4, {.ep = 2, .pp = 2}, 4, "gpipe"},
                                                           {8, {.tp = 2, .cp = 2, .ep = 4}, 2, "1f1b", 2}})
    check_layout<RingExperts, FoldedMesh>(entry, expected, 0.5, 0.25);
  for (const MatrixEntry& entry :
       std::vector<MatrixEntry>{{4, {.tp = 2, .ep = 2}, 2, "1f1b", 1}, {4, {.tp = 2, .ep = 2, .pp = 2}, 4}})
    check_layout<SequenceExperts, ExpertMesh>(entry, expected, 0.5, 0.25);
}
