// SPDX-License-Identifier: Apache-2.0
#pragma once
// A stack of units of examples/fields over the domain axes dx and dy and its comparison with one rank: losses, gradients and
// three steps of AdamW, on any backend.
//
//   weft_test::check_cut_stack<Fno<double>, comm::Threads>({.ranks = 4, .degrees = {.dx = 2, .dy = 2}}, config, batch_of);

#include <mutex>

#include <doctest/doctest.h>

#include <weft/parallel/domain_parallel.hpp>

#include "unet.hpp"

namespace weft_test {

/// A mesh that cuts nothing.
struct WholeSpace {
  static constexpr bool has(auto) { return false; }
  static int rank(auto) { return 0; }
  static int size(auto) { return 1; }
};
/// batch_of(first, count, mesh): a rank's pieces of these samples, of four.
template <class Model, comm::Backend Backend>
void check_cut_stack(const UNetLayout& layout, const typename Model::Config& config, const auto& batch_of) {
  const auto share_of_batch = [&](const data::Share& share, const auto& mesh) {
    const std::size_t here = 4 / std::size_t(share.size), first = here * std::size_t(share.rank);
    auto batch = batch_of(first, here, mesh);
    batch.samples = here, batch.first_sample = first;
    return batch;
  };
  std::mutex mutex;
  std::size_t compared = 0;
  const int code = runtime::run<Backend>(runtime::RunOptions{.ranks = layout.ranks}, [&](World& world) {
    SingleDevice<Model> one(world.device(), config);
    const UNetSteps reference = unet_steps(one, share_of_batch({0, 1}, WholeSpace()));
    const Mesh mesh(world, axes<dp, tp, pp, dx, dy>, layout.degrees);
    FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<Model>, dx, dy>>> model(mesh, config, layout.options);
    auto batch = share_of_batch(data::share_of(mesh), mesh);
    batch.micro_batches = layout.micro_batches;
    const double worst = unet_difference(unet_steps(model, batch), reference);
    const std::lock_guard lock(mutex);
    INFO(mesh.text(), ": ", worst);
    CHECK(worst < 1e-13);
    ++compared;
  });
  CHECK(code == 0);
  CHECK(compared > 0);
}
/// check(layout) between 2 or 4 processes or threads: cut along one dim and two, beside tp, dp with ZeRO and pp.
void check_cut_ranks(int world, const auto& check) {
  if (world == 2) {
    check(UNetLayout{world, {.dx = 2}});
    check(UNetLayout{world, {.dy = 2}});
  } else {
    check(UNetLayout{world, {.dx = 2, .dy = 2}});
    check(UNetLayout{world, {.tp = 2, .dx = 2}});
    check(UNetLayout{world, {.dp = 2, .dy = 2}, {.shard = {.stage = 3}}});
    check(UNetLayout{world, {.pp = 2, .dx = 2}});
  }
}

}  // namespace weft_test
