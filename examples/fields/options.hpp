// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command line of fields, and the options that each model takes.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/optim/trainable.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

#include "../command_line.hpp"

namespace fields {

struct Options {
  std::string model = "unet", schedule, partition = "blocks", output = "runs/fields";
  std::optional<std::size_t> dp, batch;
  std::size_t dims = 2, tp = 1, pp = 1, dx = 1, dy = 1, dz = 1, micro_batches = 1;
  std::optional<std::uint64_t> steps;
  std::uint64_t seed = 1, print_every = 1;
  int zero = 0;
  std::optional<double> learning_rate, ema;
};

/// The parts into which METIS cuts each mesh, one for each of `ranks`, or 0.
inline std::size_t metis_parts(const Options& o, std::size_t ranks) { return o.partition == "metis" ? ranks : 0; }

/// The name of a schedule.
inline CLI::Validator schedule_name() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        try {
          weft::schedule::choose(text);
          return "";
        } catch (const weft::UsageError&) {
          return "'" + text + "' is not one of " + std::string(weft::schedule::names);
        }
      },
      "NAME");
}

/// Nothing if help was requested. Throws UsageError. `models`: the names of all, `stacks`: those that a pipeline takes.
inline std::optional<Options> parse(int argc, char** argv, const std::vector<std::string>& models,
                                    const std::vector<std::string>& stacks) {
  Options o;
  CLI::App app("Trains a model of physics on samples that it generates, over a mesh of ranks.", "fields");
  using command_line::number;
  using command_line::whole;
  constexpr std::int64_t most_ranks = 4096, most_of_dim = 64, most = 1 << 30;

  app.add_option("--model", o.model)->check(CLI::IsMember(models))->capture_default_str();
  app.add_option("--dims", o.dims, "Dims of space of the U-Net")->check(whole(2, 3))->capture_default_str();
  app.add_option("--dp", o.dp, "Data parallel degree (default: 2, or the remaining ranks if their number is given)")
      ->check(whole(1, most_ranks));
  app.add_option("--tp", o.tp, "Tensor parallel degree")->check(whole(1, most_ranks))->capture_default_str();
  app.add_option("--pp", o.pp, "Pipeline parallel degree of the models that are stacks")
      ->check(whole(1, most_ranks))
      ->capture_default_str();
  app.add_option("--schedule", o.schedule, "Schedule of the pipeline: " + std::string(weft::schedule::names) + " (default: 1f1b)")
      ->check(schedule_name());
  app.add_option("--dx", o.dx, "Ranks that cut dim x of space")->check(whole(1, most_of_dim))->capture_default_str();
  app.add_option("--dy", o.dy, "Ranks that cut dim y of space")->check(whole(1, most_of_dim))->capture_default_str();
  app.add_option("--dz", o.dz, "Ranks that cut dim z of space")->check(whole(1, most_of_dim))->capture_default_str();
  app.add_option("--partition", o.partition, "Parts of a mesh: blocks of its nodes along x, or METIS's")
      ->check(CLI::IsMember({"blocks", "metis"}))
      ->capture_default_str();
  app.add_option("--zero", o.zero, "Stage of ZeRO")->check(whole(0, 3))->capture_default_str();
  app.add_option("--micro-batches", o.micro_batches, "Micro-batches of a step")->check(whole(1, most))->capture_default_str();
  app.add_option("--steps", o.steps, "Number of steps (default: the model's)")->check(whole(1));
  app.add_option("--batch", o.batch,
                 "Samples of a step, over all ranks (default: the model's, or the next number that the ranks can share)")
      ->check(whole(1, most));
  app.add_option("--learning-rate", o.learning_rate, "Peak learning rate (default: the model's)")
      ->check(number(0, weft::optim::largest_rate, true));
  app.add_option("--ema", o.ema,
                 "Decay of a moving average of the parameters, which is then used (default: the model's); 0: none")
      ->check(number(0, 1, true));
  app.add_option("--seed", o.seed)->check(whole(0))->capture_default_str();
  app.add_option("--print-every", o.print_every, "Steps between two printed losses")->check(whole(1))->capture_default_str();
  app.add_option("--output", o.output, "Folder for layout.json, metrics.jsonl, loss.svg and result.svg")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.footer("--rehearse N[:rank] prints the memory and messages of a rank of N (docs/planning.md).");
  if (!command_line::parse(app, argc, argv)) return std::nullopt;

  const auto refuse = [](const std::string& why) { throw weft::UsageError("fields: " + why); };
  if (o.dims != 2 && o.model != "unet") refuse("--dims 3 is of the U-Net, --model unet");
  if (o.pp > 1 && std::find(stacks.begin(), stacks.end(), o.model) == stacks.end())
    refuse("--pp " + std::to_string(o.pp) + ": --model " + o.model + " is one Module, which no pipeline cuts into stages");
  if (!o.schedule.empty() && std::find(stacks.begin(), stacks.end(), o.model) == stacks.end())
    refuse("--schedule " + o.schedule + ": --model " + o.model + " is one Module, which no pipeline cuts into stages");
  for (const auto& [name, degree] : {std::pair("--dx", o.dx), std::pair("--dy", o.dy), std::pair("--dz", o.dz)}) {
    const bool graph = o.model == "mesh" || o.model == "potential", points = o.model == "pinn";
    if (degree > 1 && (points || (graph && std::string(name) != "--dx")))
      refuse(std::string(name) + " " + std::to_string(degree) + ": --model " + o.model +
             (graph ? " cuts its nodes by --dx" : " trains on points, which have no space to cut: --dp cuts the samples"));
  }
  if (o.dz > 1 && o.dims == 2) refuse("--dz " + std::to_string(o.dz) + " is of three dims, --dims 3");
  if (o.partition != "blocks" && o.model != "mesh") refuse("--partition " + o.partition + " is of meshes, --model mesh");
#ifndef FIELDS_WITH_METIS
  if (o.partition == "metis") refuse("--partition metis: this program was built without METIS (Debian: libmetis-dev)");
#endif
  if (o.output.empty()) refuse("--output is empty: it needs a name");
  std::error_code unseen;
  const auto status = std::filesystem::status(o.output, unseen);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status))
    refuse("--output " + weft::detail::shown(o.output, 300) + ": is there, and is no folder");
  return o;
}

}  // namespace fields
