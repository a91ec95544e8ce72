// SPDX-License-Identifier: Apache-2.0
#pragma once
// `--restarts`: this program as the parent of the ranks. It restarts them from the last checkpoint.
//
//   train_gpt --restarts 5 --checkpoint runs/a --every 100                                        thread ranks
//   train_gpt --restarts 5 --checkpoint runs/a --every 100 --launch tcp --ranks 4                processes on this computer
//   train_gpt --restarts 5 --checkpoint runs/a --every 100 --launch "mpirun -np {ranks}" --ranks 4

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/run_options.hpp>
#include <weft/core/error.hpp>
#include <weft/mesh/layout.hpp>
#include <weft/runtime/supervisor.hpp>

#include "loop.hpp"
#include "options.hpp"
#include "setup.hpp"
#ifdef TRAIN_GPT_CHECKPOINTS
#include <weft/checkpoint/saved_step.hpp>
#endif

namespace train_gpt {

/// The ranks of a run under `--restarts`, and the command that starts them.
class RestartedRanks {
 public:
  RestartedRanks(const Options& o, int argc, char** argv)
      : options_(o), words_(weft::runtime::this_program(argc, argv, {"--restarts", "--launch", "--ranks"})) {
    std::optional<int> given;
    if (o.ranks) given = int(*o.ranks);
    else given = weft::runtime::detail::whole_number_from_environment("WEFT_RANKS", 1, 1 << 20);
    ranks_ = given ? *given : o.ranks_to_start();
  }

  /// Sets the command to start.
  void describe(weft::runtime::Supervision& what) const {
    const bool tcp = options_.launch == "tcp";
    what.command.clear();
    bool placed = options_.launch.empty() || tcp;
    if (!placed) {
      std::istringstream words(options_.launch);
      for (std::string word; words >> word;) {
        const std::size_t at = word.find("{ranks}");
        if (at != word.npos) word.replace(at, 7, std::to_string(ranks_));
        placed = placed || at != word.npos;
        what.command.push_back(word);
      }
    }
    what.command.insert(what.command.end(), words_.begin(), words_.end());
    if (placed)
      what.command.insert(what.command.end(), {"--ranks", std::to_string(ranks_)});  // otherwise the launcher sets the
                                                                                     // number
    if (global_batch_) what.command.insert(what.command.end(), {"--global-batch", std::to_string(global_batch_)});
    what.processes = tcp ? int(ranks_) : 0;
  }

  /// Chooses the next smaller number of ranks that the layout allows with the same global batch, if the user has not set dp.
  bool take_fewer() {
    const bool fixed =
        !options_.launch.empty() && options_.launch != "tcp" && options_.launch.find("{ranks}") == std::string::npos;
    if (options_.dp || fixed) return false;
    const std::optional<Options> all = resolved(options_, ranks_);
    if (!all) return false;
    Options fewer = options_;
    fewer.global_batch = all->global_batch;
    for (std::int64_t ranks = ranks_ - 1; ranks > 0; --ranks)
      if (resolved(fewer, ranks)) {
        ranks_ = ranks;
        if (!options_.global_batch) global_batch_ = *all->global_batch;
        return true;
      }
    return false;
  }

 private:
  static std::optional<Options> resolved(Options o, std::int64_t ranks) {
    try {
      resolve_layout(o, std::size_t(ranks));
      return o;
    } catch (const weft::Error&) {
      return std::nullopt;
    }
  }

  Options options_;
  std::vector<std::string> words_;
  std::int64_t ranks_ = 0, global_batch_ = 0;
};

/// Runs the program as a child repeatedly, and returns its exit code. Throws UsageError.
inline int supervise(const Options& o, int argc, char** argv, bool launched) {
  if (launched)
    throw weft::UsageError(
        o.program + ": --restarts beside a launcher: each of its processes would start ranks; let " + o.program +
        " start the launcher, as "
        "--restarts 5 --launch \"mpirun -np 4\", or use torchrun --max-restarts or srun's requeue with --resume");
  weft::runtime::Supervision what{.restarts = int(*o.restarts)};
  if (!o.resume) what.after_restart = {"--resume"};
#ifdef TRAIN_GPT_CHECKPOINTS
  what.saved_step = [folder = o.checkpoint] { return weft::checkpoint::saved_step(folder); };
  if (const auto step = what.saved_step(); step && !o.resume)
    throw weft::UsageError(
        o.program + ": --restarts: " + o.checkpoint + " holds a checkpoint of step " + std::to_string(*step) +
        " of an earlier run, which a restart would take for its own: give --resume to go on from it, or another "
        "--checkpoint");
#endif
  RestartedRanks ranks(o, argc, argv);
  ranks.describe(what);
  what.fewer = [&](weft::runtime::Supervision& again) {
    if (!ranks.take_fewer()) return false;
    ranks.describe(again);
    return true;
  };
  return weft::runtime::supervise(what);
}

}  // namespace train_gpt
