// SPDX-License-Identifier: Apache-2.0
// Checks and plans layouts before anything runs:
//
//   plan groups --world 16 --tp 2 --pp 4
//   plan validate --nodes 2 --ranks-per-node 8 --tp 2 --pp 2 --layers 12 --heads 12 --global-batch 32
//   plan schedule --kind 1f1b --stages 4 --micro-batches 8 --svg 1f1b.svg
//   plan memory --model llama --layers 32 --width 4096 --heads 32 --dp 8 --tp 4 --zero 3
//   plan estimate --model llama --layers 32 --width 4096 --heads 32 --dp 8 --tp 4 --zero 1 --machine h100
//   plan choose --model llama --layers 32 --width 4096 --heads 32 --machine h100 --world 64 --global-batch 256 --memory 80GB
//
// Prints tables, or JSON with --json. An impossible layout is refused with one line on standard error and exit code 2. Nothing
// runs: `memory`, `estimate` and `choose` rehearse the trainer's compositions, which are linked in.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/runtime/ending.hpp>

#include "../command_line.hpp"
#include "choose.hpp"
#include "estimate.hpp"
#include "groups.hpp"
#include "memory.hpp"
#include "schedule.hpp"
#include "validate.hpp"

int main(int argc, char** argv) {
  return weft::runtime::run_alone([&] {
    CLI::App app("Plan a layout before it runs", "plan");
    app.require_subcommand(1);
    app.footer(
        "These commands lay out language models. Any other program, also on fields, lists its own layouts:\n"
        "  WEFT_REHEARSE=64 WEFT_MACHINE=h100 WEFT_REHEARSE_MEMORY=80GB WEFT_REHEARSE_LAYOUTS=10 ./program");
    plan::add_groups(app);
    plan::add_validate(app);
    plan::add_schedule(app);
    plan::add_memory(app);
    plan::add_estimate(app);
    plan::add_choose(app);
    const auto known = [&](const std::string& name) {
      for (const CLI::App* command : app.get_subcommands({}))
        if (command->get_name() == name) return true;
      return false;
    };
    if (argc < 2 || (argv[1][0] != '-' && !known(argv[1])))
      throw weft::UsageError(
          "plan: " + (argc < 2 ? std::string("no command") : "unknown command '" + std::string(argv[1]) + "'") +
          "; the commands are groups, validate, schedule, memory, estimate and choose (plan --help)");
    for (const std::string& word : std::vector<std::string>(argv + 1, argv + argc))
      if (word.starts_with("--dx") || word.starts_with("--dy") || word.starts_with("--dz"))
        throw weft::UsageError("plan: " + word.substr(0, 4) +
                               " cuts fields, and plan lays out language models; a program on fields " +
                               "lists its layouts itself, with WEFT_REHEARSE_LAYOUTS=10 (docs/planning.md)");
    command_line::parse(app, argc, argv);
  });
}
