// SPDX-License-Identifier: Apache-2.0
// covers: weft/optim/offload.hpp weft/optim/offloaded.hpp
// A program's changes of parameters between two steps count in every stage of ZeRO, with and without offload: the next update of
// a 16-bit model starts from written values, and a step does not change parameters that took no part in it.

#include <string>
#include <vector>

#include "support/parity.hpp"

#include <weft/optim/offload.hpp>
#include <weft/optim/offloaded.hpp>

using namespace weft_test;

namespace {

const models::GptConfig config{.vocabulary = batch_vocabulary, .layers = 2, .width = 16, .heads = 2, .sequence = batch_length};

/// Calls f(value) for this rank's elements, in the stored type, and stores the changed values.
template <class F>
void change(DefaultDevice& device, ParameterState& state, F&& f) {
  if (state.kept() == 0) return;
  detail::dispatch_real(state.kept_type(), [&]<class T>(T) {
    const std::size_t bytes = state.kept() * sizeof(T);
    const detail::Buffer value = state.storage().store() ? device.allocate(bytes) : state.value();
    if (state.storage().store())
      detail::read_record(device, *state.storage().store(), state.storage().record(), value.get(), bytes);
    T* data = static_cast<T*>(value.get());
    for (std::size_t i = 0; i < state.kept(); ++i) {
      double element = double(accumulate_t<T>(data[i]));
      f(i, element);
      data[i] = T(accumulate_t<T>(element));
    }
    if (!state.storage().store()) return;
    detail::write_record(device, *state.storage().store(), state.storage().record(), value.get(), bytes);
    state.storage().store()->commit();
  });
}
template <class M>
std::vector<std::vector<double>> values_of(M& model) {
  std::vector<std::vector<double>> all;
  model.for_each_state([&](ParameterState& state) {
    auto& values = all.emplace_back();
    change(model.device(), state, [&](std::size_t, const double& value) { values.push_back(value); });
  });
  return all;
}

/// Steps until one is not skipped: a loss scale adapts first.
template <class M, class Optimizer>
void step(M& model, Optimizer& optimizer, const Batch& batch, double learning_rate, auto&& before) {
  do {
    model.train_step(batch);
    before();
  } while (optimizer.step(learning_rate).skipped);
}

template <class M, class Optimizer>
void check_writes(World& world, const ModelOptions& options) {
  Mesh<dp> mesh(world);
  M model(mesh, config, options);
  Optimizer optimizer(model);
  const Batch batch = make_batch(0, world.rank(), world.size(), 1);
  const auto nothing = [] {};
  step(model, optimizer, batch, 1e-3, nothing);
  model.for_each_state([&](ParameterState& state) {
    change(model.device(), state, [](std::size_t i, double& value) {
      if (i % 3 == 0 || i < 40) value = 0.5 * value + 0x1p-6;
    });
  });
  const auto written = values_of(model);
  step(model, optimizer, batch, 0, nothing);  // changes nothing by itself
  if (values_of(model) != written) throw Error("a step undid the write");
  step(model, optimizer, batch, 1e-3, nothing);
  const auto after = values_of(model);
  if (after == written) throw Error("a step changed nothing");
  for (std::size_t k = 0; k < after.size(); ++k)
    for (std::size_t i = 0; i < after[k].size(); ++i)
      if (std::abs(after[k][i] - written[k][i]) > 0.01 * (1 + std::abs(written[k][i])))
        throw Error("a step did not start from the written values");
}

template <class M>
void check_left_alone(World& world, const ModelOptions& options) {
  Mesh<dp> mesh(world);
  M model(mesh, config, options);
  optim::AdamW optimizer(model, {.weight_decay = 0.5});
  const Batch batch = make_batch(0, world.rank(), world.size(), 1);
  step(model, optimizer, batch, 1e-2, [] {});
  const auto before = values_of(model);
  const auto idle = [](const ParameterState& state) { return state.name().find("transformer.h.1") != std::string::npos; };
  const auto touch = [&](bool all) {
    model.for_each_state([&](ParameterState& state) { state.gradients().set_touched(all || !idle(state)); });
  };
  const auto changed_where_due = [&](bool all) {
    const auto after = values_of(model);
    std::size_t k = 0, left = 0;
    model.for_each_state([&](ParameterState& state) {
      const bool due = all || !idle(state);
      left += std::size_t(!due);
      if (state.kept() != 0 && (after[k] != before[k]) != due)
        throw Error(state.name() + (due ? " took no part in a step" : " was not left alone"));
      ++k;
    });
    if (all != (left == 0)) throw Error("no parameter of that name");
  };
  step(model, optimizer, batch, 1e-2, [&] { touch(false); });
  changed_where_due(false);
  step(model, optimizer, batch, 1e-2, [&] { touch(true); });
  changed_where_due(true);
}

template <class F>
void with_every_stage(F&& f) {
  for (const int stage : {0, 1, 2, 3})
    for (const bool offload : {false, true}) {
      ModelOptions options;
      options.shard.stage = stage;
      if (offload) options.shard.offload = Offload::host();
      INFO("stage " << stage << ", offload " << offload);
      CHECK(run(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) { f(world, options); }) == 0);
    }
}
template <class S>
using Model = FullyShardedDataParallel<models::BasicGpt<S>>;

}  // namespace

TEST_CASE_TEMPLATE("the next step starts from values written to a parameter of 16 bits", S, bfloat16, float16) {
  with_every_stage([](World& world, const ModelOptions& options) {
    check_writes<Model<S>, optim::AdamW>(world, options);
    check_writes<Model<S>, optim::Sgd>(world, options);
  });
}

TEST_CASE("refresh takes masters from the values as they are") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<bfloat16>> model(device, config);
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  const auto differing = [&] {
    std::size_t count = 0;
    for (const auto& slot : optimizer.slots())
      for (std::size_t i = 0; i < slot.state->kept(); ++i)
        count +=
            static_cast<const float*>(slot.master.get())[i] != float(static_cast<const bfloat16*>(slot.state->value().get())[i]);
    return count;
  };
  model.train_step(make_batch(0, 0, 1, 1));
  optimizer.step();
  CHECK(differing() > 0);
  optimizer.refresh();
  CHECK(differing() == 0);
  SingleDevice<models::BasicGpt<double>> wide(device, config);
  optim::AdamW plain(wide);
  plain.refresh();  // nothing to do
}

TEST_CASE("parameters that took no part in a step are left alone in every stage of ZeRO") {
  with_every_stage([](World& world, const ModelOptions& options) { check_left_alone<Model<bfloat16>>(world, options); });
}
