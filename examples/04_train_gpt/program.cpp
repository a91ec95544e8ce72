// SPDX-License-Identifier: Apache-2.0
// The trainer without its main: options, data, ranks, the model, the loop. finetune is another main for it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>

#include <Kokkos_Core.hpp>
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
#include <weft/comm/mpi.hpp>
#define TRAIN_GPT_MPI
#endif
#ifdef KOKKOS_ENABLE_CUDA
#include <weft/comm/nccl.hpp>
#include <weft/kernels/cudnn/use.hpp>
#endif
#include <weft/comm/launcher.hpp>
#include <weft/comm/tcp.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/machine_file.hpp>
#include <weft/runtime/run.hpp>
#include <weft/trace/peak.hpp>

#include "../hardware.hpp"
#include "data.hpp"
#include "elastic.hpp"
#include "loop.hpp"
#include "options.hpp"
#include "program.hpp"
#include "rehearse.hpp"
#include "report.hpp"
#include "restarts.hpp"
#include "setup.hpp"
#include "stage_layers.hpp"
#include "trained_model.hpp"

namespace train_gpt {

namespace {

/// Ranks of a host backend. With a Kokkos for CUDA each rank has a GPU, over NCCL.
#ifdef KOKKOS_ENABLE_CUDA
template <class Host>
using On = weft::comm::NcclOver<Host>;
#else
template <class Host>
using On = Host;
#endif

/// The backends of this program, and whether a launcher has started its ranks. MPI is among them if its header exists.
template <class... Backends>
struct Started {
  static bool launched() { return (Backends::detected() || ...); }
  template <class F>
  static int start(const weft::RunOptions& options, F&& f) {
    return weft::run<Backends...>(options, f);
  }
#ifdef TRAIN_GPT_CHECKPOINTS
  template <class F>
  static int start_elastic(const weft::RunOptions& options, const weft::elastic::Options& elastic, F&& f) {
    return weft::elastic::run<Backends...>(options, elastic, f);
  }
#endif
};
using Ranks = Started<On<weft::comm::Threads>,
#ifdef TRAIN_GPT_MPI
                      On<weft::comm::Mpi>,
#endif
                      On<weft::comm::Tcp>>;

/// Operations per second of one rank; 0 in a process that joined an elastic run, whose ranks do not measure again.
std::atomic<double> peak_of_rank = 0;

double measured_peak(weft::World& world, const Options& options) {
  if (options.precision == "bf16") return weft::trace::matmul_peak<weft::bfloat16>(world.device(), world.communicator());
  return weft::trace::matmul_peak<float>(world.device(), world.communicator());
}

/// `member`: of an elastic run, or null.
int rank_main(weft::World& world, Options options, const Data& data, weft::elastic::Member* member) {
  if (world.communicator().rehearsed()) {
    choose_stage_layers(world, options);
    rehearse_steps(world, options);
    return 0;
  }
  (void)world.interrupted();  // from now on this program stops by itself after a step
#ifdef KOKKOS_ENABLE_CUDA
  // A micro-batch that is computed again must have the same bits.
  const bool same_bits = options.reproducible || options.recheck > 0;
  weft::cudnn::use_for_attention(world.device(), same_bits ? weft::cudnn::Bits::same : weft::cudnn::Bits::vary);
#endif
  require_same_run(world.communicator(), options);
  choose_stage_layers(world, options);
  const weft::mesh_layout::ResolvedLayout layout = resolve_layout(options, std::size_t(world.size()));
  const bool again = continues(member);  // earlier ranks have checked the data and measured the peak
  if (!again) require_vocabulary(world.communicator(), data);
  const std::unique_ptr<TrainedModel> model = make_model(world, options);
  const auto first = [&] {
    const std::uint64_t loaded = options.resume && has_checkpoint(world, options) ? model->load() : 0;
    if (loaded == 0 && !options.load.empty()) model->load_folder();
    return loaded;
  };
  const std::uint64_t done = member != nullptr ? model->restore(*member, first) : first();
  RankData batches(model->share(), data, options, done);
  Report report(world.rank() == 0, options);
  if (world.rank() == 0) make_folders(options);  // first: if one of them is refused, --output is not made
  if (!options.checkpoint.empty()) model->take_checkpoints();
  report.open(done);
  if (!again) peak_of_rank = measured_peak(world, options) / world.size();
  report.start({.layout = layout,
                .backend = std::string(world.backend()),
                .parameters = model->parameters(),
                .flops_per_token = model->flops_per_token(),
                .peak_flops = peak_of_rank * world.size(),
                .continues = again,
                .hardware = hardware_of(world)},
               data);
  return train(world, options, *model, batches, report, done, member);
}

}  // namespace

int run_program(const Options& defaults, int argc, char** argv) {
  // Errors in the command line or the files occur before there are ranks; `run` reports them.
  std::optional<Options> options;
  Data data;
  weft::RunOptions how{.argc = argc, .argv = argv};
  weft::runtime::open_standard_streams();
  try {
    options = parse(defaults, argc, argv);
    if (!options) return weft::runtime::written();  // help was requested
    if (options->restarts) return supervise(*options, argc, argv, Ranks::launched());
    const bool rehearsed = !options->rehearse.empty() || weft::runtime::detail::is_set("WEFT_REHEARSE");
    if (!rehearsed) data = read_data(*options, WEFT_SOURCE_FOLDER);  // a rehearsal's data may exist only on the cluster
  } catch (...) {
    how.refused = std::current_exception();
  }
  const bool by_environment = weft::runtime::detail::is_set("WEFT_RANKS");  // only without --ranks
  if (options && !options->rehearse.empty()) how.rehearse = options->rehearse.c_str();
  if (options && options->json) ::setenv("WEFT_REHEARSE_JSON", "-", 0);  // in a rehearsal, too
  if (options && options->ranks) how.ranks = int(*options->ranks);
  else if (options && !Ranks::launched() && !by_environment)
    how.ranks = int(std::min<std::int64_t>(options->ranks_to_start(), 1 << 30));
#ifdef TRAIN_GPT_CHECKPOINTS
  if (options && !options->elastic.empty()) {
    weft::elastic::Options elastic;
    try {
      elastic = elastic_options(*options);
    } catch (...) {
      how.refused = std::current_exception();
    }
    if (!how.refused)
      return Ranks::start_elastic(how, elastic, [&](weft::World& world, weft::elastic::Member& member) {
        return rank_main(world, *options, data, &member);
      });
  }
#endif
  return Ranks::start(how, [&](weft::World& world) { return rank_main(world, *options, data, nullptr); });
}

}  // namespace train_gpt
