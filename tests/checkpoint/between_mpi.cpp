// SPDX-License-Identifier: Apache-2.0
// Checkpoints between backends: MPI processes load the checkpoints of thread ranks, and the reverse, in other layouts, and
// training continues with the same bits on both.

#include <weft/comm/mpi.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/weft.hpp>

#include "support/batches.hpp"
#include "support/checkpoint_tensors.hpp"
#include "support/figure.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;

namespace {

using Model = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::Gpt>>>;
struct Layout {
  int world;
  Degrees degrees;
  int zero = 0;
};

/// Loads if `from` is set, trains until step `last`, and saves. Ranks are MPI's processes or threads of this one.
template <class Backend>
void train(const Layout& layout, const std::string& from, int last, const std::string& to) {
  CHECK(runtime::run<Backend>(RunOptions{.ranks = layout.world, .deadline_s = 60, .threads_per_rank = 1}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, layout.degrees);
          Model model(mesh,
                      {.vocabulary = weft_test::batch_vocabulary,
                       .layers = 4,
                       .width = 16,
                       .heads = 4,
                       .sequence = weft_test::batch_length,
                       .dropout = 0.1},
                      {.shard = {.stage = layout.zero}});
          optim::AdamW optimizer(model, {.learning_rate = 0.01, .clip = 1.0});
          int step = from.empty() ? 0 : int(checkpoint::load(from, model, optimizer));
          for (; step < last; ++step) {
            model.train_step(weft_test::make_batch(step, mesh.rank(dp{}), mesh.size(dp{}), 2));
            optimizer.step();
          }
          checkpoint::save(to, model, optimizer, std::uint64_t(step));
        }) == 0);
}

}  // namespace

TEST_CASE("checkpoints between thread ranks and MPI processes") {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto alone = [&](const auto& f) {  // on rank 0, while the other processes wait
    if (rank == 0) f();
    MPI_Barrier(MPI_COMM_WORLD);
  };
  const weft_test::TemporaryFolder scratch;
  std::array<char, 4096> shared{};
  std::snprintf(shared.data(), shared.size(), "%s", scratch.path.c_str());
  MPI_Bcast(shared.data(), int(shared.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  const std::string folder = std::string(shared.data()) + "/";

  const std::vector<Layout> processes = size == 2
                                            ? std::vector<Layout>{{2, {.tp = 2}}, {2, {.pp = 2}}, {2, {}, 3}}
                                            : std::vector<Layout>{{4, {.tp = 2}, 2}, {4, {.pp = 2}, 1}, {4, {.tp = 2, .pp = 2}}};
  const std::vector<Layout> threads = {{4, {.tp = 2}, 3}, {1, {}}, {2, {.pp = 2}}};
  unsigned long long compared = 0, apart = 0;
  const auto same = [&](const std::string& a, const std::string& b) {
    const auto tensors = weft_test::tensors_of(a);
    const bool equal = tensors.size() > 20 && tensors == weft_test::tensors_of(b);
    CHECK_MESSAGE(equal, a << " and " << b);
    compared += tensors.size();
    apart += !equal;
  };
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const std::string here = folder + std::to_string(i);
    CAPTURE(i);
    alone([&] { train<comm::Threads>(threads[i], "", 2, here + "threads"); });
    train<comm::Mpi>(processes[i], here + "threads", 2, here + "processes");
    train<comm::Mpi>(processes[i], here + "threads", 4, here + "further");
    alone([&] {
      same(here + "threads", here + "processes");
      train<comm::Threads>(processes[i], here + "processes", 4, here + "further in threads");
      same(here + "further", here + "further in threads");
      train<comm::Threads>(threads[i], here + "further", 4, here + "back");
      same(here + "further", here + "back");
    });
  }
  if (rank == 0)
    weft_test::figure(15, compared, "tensors between thread ranks and MPI processes", apart, "checkpoints with other bits");
}
