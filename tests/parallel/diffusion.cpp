// SPDX-License-Identifier: Apache-2.0
// The diffusion model of examples/fields over domain axes, in uneven pieces: losses, gradients and steps are those of one rank,
// and the noise of a stack is bitwise that of one rank.

#include "support/cut_diffusion.hpp"

#include <weft/comm/threads.hpp>

using namespace weft_test;

namespace {

/// Predicts its noise, which travels through a pipeline.
struct Drawn {
  using scalar = double;
  using Batch = ::fields::Pictures;
  struct Config {};
  struct First : Module<First> {
    Noise noise;
    explicit First(const auto& context) : noise(context / "noise") {}
    auto forward(const auto& batch) const {
      const auto x = to<Invariant<tp>>(batch[::fields::picture]);
      return noise.normal(x) + noise.uniform(x);
    }
  };
  struct Last : Module<Last> {
    Conv2d<> out;
    explicit Last(const auto& context) : out(context / "out", 1, 1, 1) {}
    auto predict(const auto& x) const { return x; }
    auto forward(const auto& x, const auto& batch) const { return mse(out(x), to<Invariant<tp>>(batch[::fields::picture])); }
  };
  static auto stack(const auto& context, const Config&) {
    return Stack([=] { return First(context / "first"); }, [=] { return Last(context / "last"); });
  }
};
std::vector<double> noise_of(World& world, const Degrees& degrees, std::size_t micro_batches) {
  const Mesh mesh(world, axes<dp, tp, pp, dx, dy>, degrees);
  FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<Drawn>, dx, dy>>> model(mesh, {});
  const data::Share share = data::share_of(mesh);
  const std::size_t here = 4 / std::size_t(share.size), first = here * std::size_t(share.rank);
  auto batch = pictures_of(first, here, mesh);  // equal pieces, which predict gathers
  batch.samples = here, batch.first_sample = first, batch.micro_batches = micro_batches, batch.step = 5;
  return model.predict(batch, Gather::whole).values;
}
std::vector<double> noise_in(int ranks, const Degrees& degrees, std::size_t micro_batches = 1) {
  std::vector<double> drawn;
  CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
          auto values = noise_of(world, degrees, micro_batches);
          if (world.rank() == 0) drawn = std::move(values);
        }) == 0);
  return drawn;
}

}  // namespace

TEST_CASE("a diffusion model over domain axes equals one rank") {
  check_diffusion_ranks<comm::Threads>(2);
  check_diffusion_ranks<comm::Threads>(4);
  check_diffusion<comm::Threads>({8, {.tp = 2, .dx = 2, .dy = 2}});
  check_diffusion<comm::Threads>({8, {.dp = 2, .dx = 2, .dy = 2}, {.shard = {.stage = 3, .over_domain = true}}});
  check_diffusion<comm::Threads>({6, {.pp = 2, .dx = 3}, {}, 2});
  check_diffusion<comm::Threads>({7, {.dx = 7}});  // pieces of one row, of which a kernel takes two
  check_diffusion<comm::Threads>({8, {.dx = 2, .dy = 4}});
}
TEST_CASE("the noise of a model is bitwise that of one rank") {
  const std::vector<double> one = noise_in(1, {});
  REQUIRE(one.size() == 4 * 6 * 6);
  CHECK(noise_in(2, {.dx = 2}) == one);
  CHECK(noise_in(4, {.dx = 2, .dy = 2}) == one);
  CHECK(noise_in(6, {.tp = 2, .dy = 3}) == one);
  CHECK(noise_in(8, {.dp = 2, .dx = 2, .dy = 2}, 2) == one);
  CHECK(noise_in(8, {.tp = 2, .pp = 2, .dx = 2}, 4) == one);
}
