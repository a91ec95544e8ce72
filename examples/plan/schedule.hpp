// SPDX-License-Identifier: Apache-2.0
#pragma once
// `plan schedule`: the order of a pipeline schedule, its bubble and its memory, as numbers and as pictures.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include <weft/core/error.hpp>
#include <weft/core/input_file.hpp>
#include <weft/core/output_file.hpp>
#include <weft/mesh/rank_order.hpp>
#include <weft/pipeline/schedule/check.hpp>
#include <weft/pipeline/schedule/csv.hpp>
#include <weft/pipeline/schedule/named.hpp>
#include <weft/pipeline/schedule/visualise.hpp>

#include "options.hpp"
#include "print.hpp"

namespace plan {

struct ScheduleOptions {
  std::string kind, csv, svg, trace;
  std::int64_t stages = 0, micro_batches = 0;
  std::optional<std::int64_t> chunks;
  weft::schedule::Costs costs;
  bool json = false;
};

/// Whole numbers without a point.
inline nlohmann::ordered_json as_number(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? nlohmann::ordered_json(std::int64_t(value))
                                                              : nlohmann::ordered_json(value);
}

inline weft::schedule::Table table_of(const ScheduleOptions& o) {
  using weft::mesh_layout::number;
  using weft::mesh_layout::positive;
  if (!o.csv.empty())
    return weft::schedule::from_csv(weft::detail::InputFile("plan", o.csv, "CSV file", weft::schedule::most_csv_bytes).read(),
                                    o.csv);
  const std::size_t stages = positive("stages", o.stages), micro = positive("micro-batches", o.micro_batches);
  const std::size_t chunks = o.chunks ? positive("chunks", *o.chunks) : 0;
  constexpr std::size_t most = 1 << 18, most_stages = 1 << 12;
  if (stages > most_stages)
    throw weft::LayoutError(number("stages", stages) + ": a pipeline has at most " + std::to_string(most_stages) + " ranks");
  if (weft::mesh_layout::saturating_product({stages, micro, chunks == 0 ? 2 : chunks}) > most)
    throw weft::LayoutError(number("stages", stages) + " * " + number("micro-batches", micro) +
                            " * chunks: a table has at most " + std::to_string(most) + " entries");
  return weft::schedule::named_table(o.kind, int(stages), int(micro), int(chunks));
}

inline void print_schedule(const weft::schedule::Table& table, const weft::schedule::Proof& proof,
                           const weft::schedule::Timeline& timeline) {
  std::printf("%d ranks, %d stages, %d micro-batches\nmakespan %g, bubble %g (%.1f %% of the makespan)\n\n", table.ranks,
              table.stages(), table.micro_batches, proof.makespan, proof.bubble, 100 * proof.bubble / proof.makespan);
  Rows rows = {{"rank", "stages", "busy", "peak", "actions"}};
  constexpr std::size_t width = 100;
  for (int rank = 0; rank < table.ranks; ++rank) {
    std::string stages, actions;
    for (const int stage : table.stage_of[std::size_t(rank)])
      stages += std::string(stages.empty() ? "" : " ").append(std::to_string(stage));
    const auto texts = weft::schedule::to_strings(table, rank);
    std::size_t shown = 0;
    for (const std::string& text : texts) {
      if (actions.size() + text.size() > width) break;
      actions += (shown++ == 0 ? "" : " ") + text;
    }
    if (shown < texts.size()) actions += " and " + std::to_string(texts.size() - shown) + " more";
    char busy[32];
    std::snprintf(busy, sizeof busy, "%g", timeline.busy[std::size_t(rank)]);
    rows.push_back({std::to_string(rank), stages, busy, std::to_string(proof.peak[std::size_t(rank)]), actions});
  }
  print(rows);
}

inline void show_schedule(const ScheduleOptions& o) {
  for (const double cost : {o.costs.forward, o.costs.input, o.costs.weight})
    if (!(cost > 0) || !(cost < 1e12))
      throw weft::LayoutError("schedule: a cost of " + std::to_string(cost) + ": costs must be above 0 and below 1e12");
  const weft::schedule::Table table = table_of(o);
  const weft::schedule::Proof proof = weft::schedule::prove(table, o.costs);
  const weft::schedule::Timeline timeline = weft::schedule::simulate(table, o.costs);
  if (!o.svg.empty()) weft::detail::write_output("plan", o.svg, weft::schedule::to_svg(table, timeline));
  if (!o.trace.empty()) weft::detail::write_output("plan", o.trace, weft::schedule::to_trace(table, timeline));
  if (!o.json) return print_schedule(table, proof, timeline);
  nlohmann::ordered_json json = {
      {"makespan", as_number(proof.makespan)}, {"bubble", as_number(proof.bubble)}, {"peak_activations", proof.peak}};
  auto& actions = json["actions"] = nlohmann::ordered_json::array();
  for (int rank = 0; rank < table.ranks; ++rank) actions.push_back(weft::schedule::to_strings(table, rank));
  std::printf("%s\n", json.dump().c_str());
}

inline void add_schedule(CLI::App& app) {
  auto o = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand("schedule", "The order of a pipeline schedule, its bubble and memory");
  CLI::Option* kind = command->add_option("--kind", o->kind, "One of " + std::string(weft::schedule::names));
  CLI::Option* csv =
      command->add_option("--csv", o->csv, "A file with a schedule of your own: a line for each rank, cells such as 0F3");
  add_count(command, "--stages", o->stages, "Ranks of the pipeline");
  add_count(command, "--micro-batches", o->micro_batches, "Micro-batches a step");
  add_count(command, "--chunks", o->chunks, "Stages on each rank (interleaved, interleaved-zb; default: 2)");
  command->add_option("--forward", o->costs.forward, "Time of a stage's forward")->capture_default_str();
  command->add_option("--backward-input", o->costs.input, "Time of its input gradient")->capture_default_str();
  command->add_option("--backward-weight", o->costs.weight, "Time of its weight gradient")->capture_default_str();
  command->add_option("--svg", o->svg, "Draw the schedule into this file");
  command->add_option("--trace", o->trace, "Write a trace for Perfetto into this file");
  command->add_flag("--json", o->json, "JSON instead of a table");
  kind->excludes(csv);
  command->callback([o, command] {
    for (const auto& [option, file] : {std::pair("--csv", &o->csv), std::pair("--svg", &o->svg), std::pair("--trace", &o->trace)})
      if (command->count(option) > 0 && file->empty())
        throw weft::UsageError(std::string("plan: ") + option + " needs the name of a file");
    if (o->csv.empty()) {
      if (o->kind.empty())
        throw weft::UsageError("plan: schedule needs --kind, one of " + std::string(weft::schedule::names) + ", or --csv FILE");
      require_option(command, "--stages");
      require_option(command, "--micro-batches");
    }
    show_schedule(*o);
  });
}

}  // namespace plan
