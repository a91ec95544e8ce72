// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Fourier neural operator of examples/fields over domain axes and its comparison with one rank: losses, gradients and three
// steps of AdamW, on any backend.
//
//   weft_test::check_fno<comm::Threads>({.ranks = 4, .degrees = {.dx = 2, .dy = 2}});

#include <mutex>

#include <doctest/doctest.h>

#include <weft/parallel/domain_parallel.hpp>

#include "examples/fields/fno.hpp"
#include "flow_golden.hpp"
#include "unet.hpp"

namespace weft_test {

/// A mesh that cuts nothing.
struct WholeSpace {
  static constexpr bool has(auto) { return false; }
  static int rank(auto) { return 0; }
  static int size(auto) { return 1; }
};
inline ::fields::Flow fno_batch(const data::Share& share, const auto& mesh) {
  const std::size_t here = 4 / std::size_t(share.size), first = here * std::size_t(share.rank);
  auto batch = flow_of<2>(first, here, mesh);
  batch.samples = here, batch.first_sample = first;
  return batch;
}
template <comm::Backend Backend>
void check_fno(const UNetLayout& layout) {
  using Fno = ::fields::Fno<double>;
  constexpr ::fields::FnoConfig config{.width = 8, .modes = 2, .layers = 2};
  std::mutex mutex;
  std::size_t compared = 0;
  const int code = runtime::run<Backend>(runtime::RunOptions{.ranks = layout.ranks}, [&](World& world) {
    SingleDevice<Fno> one(world.device(), config);
    const UNetSteps reference = unet_steps(one, fno_batch({0, 1}, WholeSpace()));
    const Mesh mesh(world, axes<dp, tp, pp, dx, dy>, layout.degrees);
    FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<Fno>, dx, dy>>> model(mesh, config, layout.options);
    const double worst = unet_difference(unet_steps(model, fno_batch(data::share_of(mesh), mesh)), reference);
    const std::lock_guard lock(mutex);
    INFO(mesh.text(), ": ", worst);
    CHECK(worst < 1e-13);
    ++compared;
  });
  CHECK(code == 0);
  CHECK(compared > 0);
}
/// Between 2 or 4 processes or threads: cut along one dim and two, beside tp, dp with ZeRO and pp.
template <comm::Backend Backend>
void check_fno_ranks(int world) {
  if (world == 2) {
    check_fno<Backend>({world, {.dx = 2}});
    check_fno<Backend>({world, {.dy = 2}});
  } else {
    check_fno<Backend>({world, {.dx = 2, .dy = 2}});
    check_fno<Backend>({world, {.tp = 2, .dx = 2}});
    check_fno<Backend>({world, {.dp = 2, .dy = 2}, {.shard = {.stage = 3}}});
    check_fno<Backend>({world, {.pp = 2, .dx = 2}});
  }
}

}  // namespace weft_test
