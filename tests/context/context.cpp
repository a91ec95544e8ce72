// SPDX-License-Identifier: Apache-2.0
// covers: weft/context/expert_mesh.hpp weft/engine/engine_state.hpp
// A context's bound and unbound axes, its paths, the method of context parallelism; tensors on the dense and the expert mesh.
#include <weft/context/context.hpp>

#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <weft/context/expert_mesh.hpp>
#include <weft/engine/engine_state.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, float>>;
using WithTp = Context<Compute<Exec, float>, Bind<tp, Shard<tp, 0>>>;

static_assert(!Root::has(tp{}) && WithTp::has(tp{}) && !WithTp::has(dp{}));
static_assert(Root::placed == 0 && WithTp::placed == axis_bit<tp>);
static_assert(std::is_same_v<detail::hidden_placement_t<WithTp, tp>, Shard<tp, 0>>);
// The length of sequences must not be readable if rows are divided inside sequences.
static_assert(std::is_same_v<decltype(Root::env), detail::Environment> &&
              std::is_same_v<decltype(WithTp::env), detail::CutEnvironment>);

}  // namespace

TEST_CASE("without axes: rank 0 of 1 on each") {
  DefaultDevice device;
  const Root root(device, {});
  CHECK(root.rank(tp{}) == 0);
  CHECK(root.size(pp{}) == 1);
  CHECK(&root.device() == &device);
  int axes = 0;
  Root::for_each_axis([&](auto) { ++axes; });
  CHECK(axes == 0);
}

TEST_CASE("paths grow by names, and the outer context keeps its own") {
  DefaultDevice device;
  const Root root(device, {});
  const Root inner = root / "block" / "0" / "weight";
  CHECK(inner.construction.path == "block.0.weight");
  CHECK(root.construction.path.empty());
}

TEST_CASE("the engine's part goes to the contexts that are made of one, as it was then") {
  DefaultDevice device;
  detail::Hooks hooks;
  detail::EngineState engine;
  engine.loss_scale = 8;
  const Root root(device, {}, engine);
  const auto inner = (root / "block").with<Invariant<tp>>(tp{}, Communicator(), &hooks);
  CHECK(inner.engine.loss_scale == 8);
  CHECK(inner.engine.hooks.size() == 1);
  CHECK(root.engine.hooks.empty());
}

TEST_CASE("axes in force have their communicator, in the order of the wrappers") {
  CHECK(run(RunOptions{.ranks = 2}, [](World& world) {
          detail::Hooks outer, inner;
          const auto data = Root(world.device(), {}).with<Shard<dp, 0>>(dp{}, world.communicator(), &outer);
          const auto both = data.with<Invariant<tp>>(tp{}, Communicator(), &inner);
          CHECK(both.rank(dp{}) == std::size_t(world.rank()));
          CHECK(both.size(dp{}) == 2);
          CHECK(both.size(tp{}) == 1);
          CHECK(both.engine.hooks.size() == 2);
          CHECK(both.engine.hooks[0] == &outer);
          CHECK(data.engine.hooks.size() == 1);
          std::string axes;
          both.for_each_axis([&]<class A>(A) { axes += A::name; });
          CHECK(axes == "dptp");
        }) == 0);
}

TEST_CASE("rows go to the expert mesh and back without a copy") {
  DefaultDevice device;
  using Rows = Tensor<float, Exec, Shard<dp, 0>, Shard<tp, 0>>;
  const Rows rows(device, {4, 2});
  const auto there = to_expert_mesh(rows);
  static_assert(
      std::is_same_v<std::remove_const_t<decltype(there)>, Tensor<float, Exec, Shard<edp, 0>, Shard<ep, 0>, Shard<etp, 0>>>);
  CHECK(there.data() == rows.data());
  CHECK(there.shape() == rows.shape());
  const Rows back = to_dense_mesh<Rows>(there);
  CHECK(back.data() == rows.data());
}

TEST_CASE("the expert mesh places tensors on edp and etp; ep is in force there and places none") {
  DefaultDevice device;
  using detail::ExpertMeshAxis;
  const auto context = Root(device, {})
                           .with<Shard<dp, 0>>(dp{}, Communicator())
                           .with<ExpertMeshAxis>(edp{}, Communicator())
                           .with<ExpertMeshAxis>(ep{}, Communicator())
                           .with<ExpertMeshAxis>(etp{}, Communicator());
  using Dense = std::remove_const_t<decltype(context)>;
  static_assert(Dense::has(ep{}) && !Dense::places(ep{}) && Dense::places(dp{}) && Dense::placed == axis_bit<dp>);
  const auto experts = context.expert_mesh();
  using Experts = std::remove_const_t<decltype(experts)>;
  static_assert(Experts::has(ep{}) && !Experts::places(ep{}) && Experts::places(edp{}) && Experts::places(etp{}) &&
                !Experts::has(dp{}));
  CHECK(experts.size(ep{}) == 1);
}
