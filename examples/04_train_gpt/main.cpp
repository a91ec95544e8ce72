// SPDX-License-Identifier: Apache-2.0
// Trains a GPT, Llama or Mixtral, byte-level or on tokens, over a mesh of ranks: every axis and wrapper of weft, fp32 or bf16.
//
//   ./examples/run train_gpt                                  two thread ranks, weft's own text
//   ./examples/run train_gpt --tp 2 --pp 2 --data novel.txt   four thread ranks
//   ./examples/run train_gpt --data train.bin --vocabulary 50257        tokens, as nanoGPT and llm.c write them
//   mpirun -np 4 ./examples/run train_gpt --tp 2              the ranks that the launcher started
//   torchrun --no-python --nproc-per-node 4 ./examples/run train_gpt --tp 2      the same over Gloo
//
// The options are in options.cpp, the loop in loop.hpp, the model's type in composition.hpp.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include <Kokkos_Core.hpp>
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
#include <weft/comm/mpi.hpp>
#define TRAIN_GPT_MPI
#endif
#if __has_include(<gloo/common/memory.h>) && __has_include(<gloo/transport/tcp/device.h>) && __has_include(<weft/comm/gloo.hpp>)
#include <weft/comm/gloo.hpp>
#define TRAIN_GPT_GLOO
#endif
#ifdef KOKKOS_ENABLE_CUDA
#include <weft/comm/nccl.hpp>
#include <weft/kernels/cudnn/use.hpp>
#endif
#include <weft/runtime/run.hpp>
#include <weft/trace/peak.hpp>

#include "data.hpp"
#include "loop.hpp"
#include "options.hpp"
#include "report.hpp"
#include "setup.hpp"
#include "trained_model.hpp"

namespace {

using namespace train_gpt;

/// Ranks of a backend of the host; with a Kokkos for CUDA each has a GPU, over NCCL.
#ifdef KOKKOS_ENABLE_CUDA
template <class Host>
using On = weft::comm::NcclOver<Host>;
#else
template <class Host>
using On = Host;
#endif

/// The backends of this program, and whether a launcher has started its ranks. MPI and Gloo are there where their headers are.
template <class... Backends>
struct Started {
  static bool launched() { return (Backends::detected() || ...); }
  template <class F>
  static int start(const weft::RunOptions& options, F&& f) {
    return weft::run<Backends...>(options, f);
  }
};
using Ranks = Started<On<weft::comm::Threads>
#ifdef TRAIN_GPT_MPI
                      ,
                      On<weft::comm::Mpi>
#endif
#ifdef TRAIN_GPT_GLOO
                      ,
                      On<weft::comm::Gloo>
#endif
                      >;

int rank_main(weft::World& world, Options options, const Data& data) {
#ifdef KOKKOS_ENABLE_CUDA
  weft::cudnn::use_for_attention(world.device(), options.reproducible ? weft::cudnn::Bits::same : weft::cudnn::Bits::vary);
#endif
  const weft::mesh_layout::ResolvedLayout layout = resolve_layout(options, std::size_t(world.size()));
  const std::unique_ptr<TrainedModel> model = make_model(world, options);
  RankData batches(model->share(), data, options);
  Report report(world.rank() == 0, options);
  report.open();
  const double peak = options.precision == "bf16" ? weft::trace::matmul_peak<weft::bfloat16>(world.device(), world.communicator())
                                                  : weft::trace::matmul_peak<float>(world.device(), world.communicator());
  report.start({.layout = layout,
                .backend = std::string(world.backend()),
                .parameters = model->parameters(),
                .flops_per_token = model->flops_per_token(),
                .peak_flops = peak},
               data);
  return train(world, options, *model, batches, report);
}

}  // namespace

int main(int argc, char** argv) {
  // What the command line and the files say is known before there are ranks. It is reported by `run`, so that under a launcher
  // all ranks end with it and one prints it.
  std::optional<Options> options;
  Data data;
  std::exception_ptr refused;
  try {
    options = parse(argc, argv);
    if (!options) return 0;
    data = read_data(*options);
  } catch (...) {
    refused = std::current_exception();
  }
  weft::RunOptions how{.argc = argc, .argv = argv};
  if (!Ranks::launched()) how.ranks = refused ? 1 : int(std::min<std::int64_t>(options->ranks_to_start(), 1 << 30));
  else if (!refused && options->ranks) how.ranks = int(*options->ranks);
  return Ranks::start(how, [&](weft::World& world) {
    if (refused) std::rethrow_exception(refused);
    return rank_main(world, *options, data);
  });
}
