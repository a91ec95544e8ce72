// SPDX-License-Identifier: Apache-2.0
// covers: weft/engine/step_buffer.hpp
// Buffers that a step renews from the sums over all ranks that had tokens, in one message, once a step.
#include <weft/context/step_buffers.hpp>
#include <weft/engine/step_buffer.hpp>

#include <memory>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

#include <weft/context/axes_in_force.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {
using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, float>>;
}  // namespace

TEST_CASE("the model that is being built gets the buffer, zeros under its path") {
  DefaultDevice device;
  std::vector<std::shared_ptr<detail::StepBuffer>> buffers;
  Root context(device, {});
  context.construction.buffers = &buffers;
  const auto buffer = detail::make_step_buffer(
      context / "router", "load", 2, 3, [](detail::StepBuffer&) {}, 0.5);
  REQUIRE(buffers.size() == 1);
  CHECK(buffers[0] == buffer);
  CHECK(buffer->name == "router.load");
  CHECK(buffer->value == std::vector<double>(2));
  CHECK(buffer->sum == std::vector<double>(3));
  CHECK(buffer->rate == 0.5);
  CHECK(detail::make_step_buffer(Root(device, {}), "alone", 1, 1, nullptr));  // a layer without a model
}

TEST_CASE("renewed from the sums over data, context and tensor ranks; stages of a pipeline have their own") {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          const auto update = [](detail::StepBuffer& buffer) {
            for (std::size_t i = 0; i < buffer.value.size(); ++i) buffer.value[i] += buffer.rate * buffer.sum[i];
          };
          const auto renewed = [&](const auto& context) {
            std::vector<std::shared_ptr<detail::StepBuffer>> buffers;
            buffers.push_back(detail::make_step_buffer(context, "a", 1, 1, update, 1.0));
            buffers.push_back(detail::make_step_buffer(context, "b", 2, 2, update, 0.5));
            buffers[0]->value = {100};
            buffers[0]->sum = {double(1 + world.rank())};
            buffers[1]->sum = {2, double(10 * world.rank())};
            detail::renew(detail::AxesInForce(context), buffers);
            CHECK(buffers[0]->sum == std::vector<double>{0});
            return std::vector{buffers[0]->value[0], buffers[1]->value[0], buffers[1]->value[1]};
          };
          const Root root(world.device(), {});
          const auto over_data = renewed(root.with<Shard<dp, 0>>(dp{}, world.communicator()));
          const auto over_stages = renewed(root.with<Invariant<pp>>(pp{}, world.communicator()));
          std::vector<std::shared_ptr<detail::StepBuffer>> none;
          detail::renew(detail::AxesInForce(root), none);
          std::lock_guard lock(mutex);
          CHECK(over_data == std::vector<double>{103, 2, 5});
          CHECK(over_stages == std::vector<double>{double(101 + world.rank()), 1, double(5 * world.rank())});
        }) == 0);
}
