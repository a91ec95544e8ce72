// SPDX-License-Identifier: Apache-2.0
// A training step allocates no memory from Kokkos: the first ones fill the arena of each rank, and later ones reuse its blocks.
// On a GPU an allocation would wait for all running work. Counted by Kokkos' callbacks, over all ranks.

#include "support/field_models.hpp"
#include "support/parity.hpp"

#include <cstdlib>
#include <new>

static std::atomic<int> tape_blocks{0};

// A tape allocates blocks of one size from the host.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (size == weft::detail::TapeMemory::block_size) ++tape_blocks;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using namespace weft_test;

namespace {

std::atomic<int> taken{0};
std::atomic<int> given_back{0};

void count_kokkos() {
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](Kokkos_Profiling_SpaceHandle, const char*, const void*, std::uint64_t) { ++taken; });
  Kokkos::Tools::Experimental::set_deallocate_data_callback(
      [](Kokkos_Profiling_SpaceHandle, const char*, const void*, std::uint64_t) { ++given_back; });
}
void stop_counting() {
  Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
  Kokkos::Tools::Experimental::set_deallocate_data_callback(nullptr);
}

constexpr int steps = 12;

/// Allocations of each step, all ranks together.
template <class Composition, class Degree>
std::vector<int> allocations(int ranks, const Degree& degrees, int zero) {
  std::vector<int> counted;
  count_kokkos();
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    Mesh<dp, tp, pp> mesh(world, degrees);
    ModelOptions options;
    options.shard.stage = zero;
    models::GptConfig config = gpt_config();
    config.dropout = 0.1;
    Composition model(mesh, config, options);
    optim::AdamW optimizer(model, {.clip = 1.0});
    const auto data = mesh.comm(dp{});
    for (int step = 0; step < steps; ++step) {
      world.communicator().barrier();
      if (world.rank() == 0) taken = given_back = 0;
      world.communicator().barrier();
      model.train_step(make_batch(std::uint64_t(step), std::size_t(data.rank()), std::size_t(data.size()), 2));
      optimizer.step();
      world.communicator().barrier();
      if (world.rank() == 0) counted.push_back(taken + given_back);
      world.communicator().barrier();  // otherwise a rank that ends frees its memory while another counts
    }
  });
  stop_counting();
  CHECK(code == 0);
  return counted;
}

template <class Model>
using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;

}  // namespace

TEST_CASE("after a few steps nothing comes from Kokkos and nothing goes back") {
  struct Layout {
    int ranks;
    Degrees degrees;
    int zero;
  };
  for (const Layout& layout : {Layout{1, {}, 0}, {2, {}, 0}, {2, {}, 1}, {4, {.tp = 2}, 3}, {4, {.pp = 2}, 2}}) {
    CAPTURE(layout.ranks);
    CAPTURE(layout.zero);
    const auto counted = allocations<Composition<models::BasicGpt<bfloat16>>>(layout.ranks, layout.degrees, layout.zero);
    REQUIRE(counted.size() == std::size_t(steps));
    CHECK(counted[0] > 0);  // or the callbacks count nothing
    // The number of concurrent operations depends on the ranks' timing, so a later step may need a new block. But blocks are
    // kept, so this must end.
    std::size_t quiet = 0, longest = 0;
    for (const auto count : counted) longest = std::max(longest, quiet = count == 0 ? quiet + 1 : 0);
    CHECK(longest >= 4);
  }
}

TEST_CASE("a Module's tape finds its memory where the steps before left it") {
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    std::vector<int> counted;
    CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
            Mesh<dp> mesh(world);
            FullyShardedDataParallel<MlpModule> model(mesh, {}, {.shard = {.stage = 2}});
            optim::AdamW optimizer(model, {.clip = 1.0});
            for (int step = 0; step < steps; ++step) {
              const auto batch = MlpModule::make_batch({}, std::uint64_t(step), std::size_t(world.rank()), std::size_t(ranks), 2);
              world.communicator().barrier();
              if (world.rank() == 0) tape_blocks = 0;
              world.communicator().barrier();
              model.train_step(batch);
              optimizer.step();
              world.communicator().barrier();
              if (world.rank() == 0) counted.push_back(tape_blocks);
              world.communicator().barrier();
            }
          }) == 0);
    REQUIRE(counted.size() == std::size_t(steps));
    CHECK(counted[0] > 0);
    for (int step = 2; step < steps; ++step) CHECK(counted[std::size_t(step)] == 0);
  }
}
