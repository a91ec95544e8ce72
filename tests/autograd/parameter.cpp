// SPDX-License-Identifier: Apache-2.0
// covers: weft/engine/parameter_info.hpp weft/engine/parameter_sharding.hpp weft/engine/parameter_state.hpp
// covers: weft/engine/parameter_storage.hpp weft/engine/parameter_values.hpp weft/engine/hooks.hpp
// Parameters: which elements of the whole a rank holds, that their first values are those of one rank, gradients as layers add
// them, the part that a sharder keeps.
#include <weft/autograd/parameter.hpp>

#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/engine/hooks.hpp>
#include <weft/engine/parameter_info.hpp>
#include <weft/engine/parameter_sharding.hpp>
#include <weft/engine/parameter_state.hpp>
#include <weft/engine/parameter_storage.hpp>
#include <weft/engine/parameter_values.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, float>>;

ParameterInfo info_of(const Shape& shape, std::size_t dim, const ParameterSharding& sharding, std::size_t ranks,
                      std::size_t rank) {
  ParameterInfo info{.name = "weight", .global = shape, .local = shape};
  detail::shard_parameter(info, dim, sharding, "tp", ranks, rank);
  return info;
}

// The number of ranks that hold each element of the whole, and that own it.
struct Held {
  std::vector<int> held, owned;
};
Held held_by_all(const Shape& shape, std::size_t dim, const ParameterSharding& sharding, std::size_t ranks) {
  Held all{std::vector<int>(shape.size()), std::vector<int>(shape.size())};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const ParameterInfo info = info_of(shape, dim, sharding, ranks, rank);
    std::vector<int> here(info.local.size());
    for (const detail::Run& run : info.runs) {
      if (run.shared) CHECK(info.replicas > 1);
      if (!run.owned) CHECK(run.shared);
      for (std::size_t i = 0; i < run.length; ++i) {
        ++here.at(run.local + i);
        ++all.held.at(run.global + i);
        all.owned[run.global + i] += run.owned;
      }
    }
    for (const int times : here) CHECK(times <= 1);
  }
  return all;
}

template <class Error, class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<float> floats(DefaultDevice& device, const ParameterState& state) {
  const detail::Buffer value = detail::value_of(device, state);
  device.exec().fence("test");
  const float* data = static_cast<const float*>(value.get());
  return {data, data + state.kept()};
}

}  // namespace

TEST_CASE("ranks hold every element once, whatever the dim, and own it once") {
  for (const std::size_t dim : {0u, 1u, 2u})
    for (const std::size_t ranks : {1u, 2u, 4u}) {
      const Held all = held_by_all({4, 8, 12}, dim, {}, ranks);
      CHECK(all.held == std::vector<int>(4 * 8 * 12, 1));
      CHECK(all.owned == all.held);
    }
}

TEST_CASE("segments are cut one by one; one of fewer heads than ranks is held alike and owned once") {
  const ParameterSharding sharding{.segments = {{8, 4}, {4, 2}, {4, 2}}};  // query, key and value of heads of width 2
  const ParameterInfo info = info_of({16, 3}, 0, sharding, 2, 1);
  CHECK(info.local == Shape{8, 3});
  REQUIRE(info.runs.size() == 3);
  CHECK(info.runs[0].global == 4 * 3);
  CHECK(info.runs[1].global == 10 * 3);
  CHECK(info.runs[2].global == 14 * 3);
  CHECK(info.local.sharding(0) == DimSharding::segments);
  const Held all = held_by_all({16, 3}, 0, sharding, 4);
  CHECK(all.owned == std::vector<int>(48, 1));
  CHECK(std::accumulate(all.held.begin(), all.held.end(), 0) == 8 * 3 + 2 * 8 * 3);
  CHECK(info_of({16, 3}, 0, sharding, 4, 3).replicas == 2);
}

TEST_CASE("a padded dim leaves room on the last ranks that belongs to no run") {
  const ParameterSharding padded{.segments = {}, .padded = true};
  CHECK(held_by_all({10, 2}, 0, padded, 4).held == std::vector<int>(20, 1));
  const ParameterInfo last = info_of({10, 2}, 0, padded, 4, 3);
  CHECK(last.local == Shape{3, 2});
  CHECK(last.runs.front().length == 1 * 2);
  CHECK(last.local.sharding(0) == DimSharding::padded);
  CHECK(info_of({8, 2}, 0, padded, 4, 3).local.sharding(0) == DimSharding::even);
  CHECK(held_by_all({3, 2}, 0, padded, 4).held == std::vector<int>(6, 1));
}

TEST_CASE("a parameter that cannot be cut is refused with the numbers") {
  CHECK(refusal<LayoutError>([] {
          info_of({6, 2}, 0, {}, 4, 0);
        }) == "weft: parameter weight [6, 2]: 6 elements cannot be cut by tp(4)");
  CHECK(refusal<LayoutError>([] {
          info_of({6, 2}, 0, {.segments = {{6, 3}}}, 4, 0);
        }) == "weft: parameter weight [6, 2]: 3 heads cannot be cut by tp(4)");
  CHECK(refusal<LayoutError>([] { info_of({6, 2}, 2, {}, 2, 0); }).starts_with("weft: parameter weight [6, 2] has no dim 2"));
  CHECK(refusal<ShapeError>([] {
          info_of({6, 2}, 0, {.segments = {{2, 0}, {2, 0}}}, 2, 0);
        }).starts_with("weft: parameter weight [6, 2]: its segments along dim 0 add up to 4"));
}

TEST_CASE("first values are those of one rank, element by element") {
  DefaultDevice device;
  const Root root(device, {});
  const Parameter<> alone(root / "layer", "weight", {6, 4}, normal(0.5));
  CHECK(alone.state().name() == "layer.weight");
  const auto whole = floats(device, alone.state());
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          const auto context = Root(world.device(), {}).with<Invariant<tp>>(tp{}, world.communicator());
          const Parameter<Shard<tp, 1>> cut(context / "layer", "weight", {6, 4}, normal(0.5));
          const Parameter<> both(context / "layer", "weight", {6, 4}, normal(0.5));
          const auto mine = floats(world.device(), cut.state()), all = floats(world.device(), both.state());
          std::lock_guard lock(mutex);
          CHECK(cut.state().local() == Shape{6, 2});
          for (const detail::Run& run : cut.state().runs())
            for (std::size_t i = 0; i < run.length; ++i) CHECK(mine[run.local + i] == whole[run.global + i]);
          CHECK(all == whole);
          // One rank counts elements that both hold; each rank counts elements that only it holds.
          CHECK(both.state().counted() == (world.rank() == 0));
          CHECK(cut.state().counted());
        }) == 0);
  const Parameter<> gain(root, "gain", {3}, ones), bias(root, "bias", {3}, zeros);
  CHECK(floats(device, gain.state()) == std::vector<float>{1, 1, 1});
  CHECK(floats(device, bias.state()) == std::vector<float>{0, 0, 0});
}

TEST_CASE("gradients: the first overwrites, the next adds, one of another size is refused") {
  DefaultDevice device;
  const Root root(device, {});
  Parameter<> weight(root, "weight", {3}, zeros);
  Tensor<float, Exec> g(device, {3});
  copy_from_host(g, std::vector<float>{1, 2, 3});
  weight.state().gradients().begin_step();
  weight.accumulate(root, g);
  weight.accumulate(root, g);
  std::vector<float> sum;
  weight.state().gradient_span([&](auto span) {
    device.exec().fence("test");
    sum.assign(span.begin(), span.end());
  });
  CHECK(sum == std::vector<float>{2, 4, 6});
  weight.state().gradients().begin_step();
  weight.accumulate(root, g);
  device.exec().fence("test");
  CHECK(static_cast<const float*>(detail::gradient_of(device, weight.state()).get())[2] == 3);
  CHECK(refusal<ShapeError>([&] { weight.accumulate(root, Tensor<float, Exec>(device, {4})); }) ==
        "weft: gradient [4] of parameter weight [3]");
}

TEST_CASE("a hook may take the room of a parameter over") {
  DefaultDevice device;
  struct Takes : detail::Hooks {
    bool allocate(ParameterState& state) override { return taken = state.name() == "mine"; }
    bool taken = false;
  } takes;
  detail::EngineState with_hook;
  with_hook.add(&takes);
  const Root root(device, {}, with_hook);
  const Parameter<> mine(root, "mine", {3}, zeros), other(root, "other", {3}, zeros);
  CHECK_FALSE(mine.state().value());
  CHECK(other.state().value());
  CHECK(refusal<Error>([&] {
          mine.for_operand(Tensor<float, Exec>(device, {2, 3}));
        }) ==
        "weft: parameter mine is used while it is released, or by a unit that has no copy of it: copy a layer that "
        "units share into each of them, not a pointer to it");
}

TEST_CASE("of a sharded parameter the rank keeps a part of its own size and type") {
  detail::Hooks sharder;
  ParameterState state(
      ParameterInfo{.name = "weight", .global = {4}, .local = {4}, .type = DataType::bfloat16, .runs = {{0, 0, 4}}});
  CHECK(state.kept() == 4);
  CHECK(state.sharded() == 0);
  state.shard(sharder);
  state.storage().keep({.size = 2, .type = DataType::float32, .runs = {{0, 2, 2}}});
  CHECK(state.kept() == 2);
  CHECK(state.kept_type() == DataType::float32);
  CHECK(state.type() == DataType::bfloat16);
  CHECK(state.runs().front().global == 2);
  CHECK(state.sharded() == axis_bit<dp>);
  CHECK_FALSE(state.storage().layer_value());
  state.gradients().mark_unreduced(axis_bit<tp>);
  CHECK(refusal<UnreducedGradientError>([&] {
          state.take_unreduced_over_data();
        }).starts_with("weft: the gradient of weight is to be summed over dp"));
  CHECK(state.take_unreduced(tp{}));
  state.take_unreduced_over_data();
  detail::Unit unit{.name = "block", .parameters = {&state}};
  CHECK(unit.uses(&state));
  CHECK_FALSE(unit.uses(nullptr));
}
