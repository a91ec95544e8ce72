// SPDX-License-Identifier: Apache-2.0
#pragma once
// `plan groups`: the ranks in the groups of each axis.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/mesh/layout.hpp>
#include <weft/mesh/rank_order.hpp>

#include "options.hpp"
#include "print.hpp"

namespace plan {

inline void print_groups(const weft::mesh_layout::RankOrder& order, const weft::mesh_layout::RankGrids& grids,
                         const std::vector<std::pair<std::string, weft::mesh_layout::RankGroups>>& all) {
  std::printf("%zu ranks, rank order %s (the first axis is the fastest)\ndense mesh   %s\nexpert mesh  %s\n\n",
              grids.dense.size(), order.text().c_str(), grids.dense.text().c_str(), grids.expert.text().c_str());
  Rows rows = {{"axis", "groups", "of", "ranks"}};
  constexpr std::size_t width = 88;
  for (const auto& [name, groups] : all) {
    std::string line;
    std::size_t shown = 0;
    for (const auto& group : groups) {
      std::string one = shown == 0 ? "[" : " [";
      for (std::size_t i = 0; i < group.size(); ++i) one += std::string(i == 0 ? "" : " ").append(std::to_string(group[i]));
      if (shown > 0 && line.size() + one.size() > width) break;
      line += one + "]";
      ++shown;
    }
    if (shown < groups.size()) line += " and " + std::to_string(groups.size() - shown) + " more";
    rows.push_back({name, std::to_string(groups.size()), std::to_string(groups.front().size()), line});
  }
  print(rows);
}

/// Adds the subcommand. It runs after the command line has been parsed.
inline void add_groups(CLI::App& app) {
  struct Options {
    std::int64_t world = 0, tp = 1, pp = 1, cp = 1, ep = 1;
    std::optional<std::int64_t> etp, dp, edp;
    std::string order{weft::mesh_layout::RankOrder::standard};
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("groups", "The ranks of each group of each axis");
  add_count(command, "--world", o->world, "Number of ranks, which must be given");
  add_count(command, "--tp", o->tp, "Tensor parallel degree")->capture_default_str();
  add_count(command, "--pp", o->pp, "Pipeline parallel degree")->capture_default_str();
  add_count(command, "--cp", o->cp, "Context parallel degree")->capture_default_str();
  add_count(command, "--ep", o->ep, "Expert parallel degree")->capture_default_str();
  add_count(command, "--etp", o->etp, "Tensor parallel degree of the experts (default: tp)");
  add_count(command, "--dp", o->dp, "Data parallel degree (default: the remaining ranks)");
  add_count(command, "--edp", o->edp, "Data parallel degree of the experts (default: the remaining ranks)");
  command->add_option("--order", o->order, "Order of the axes, fastest first")->capture_default_str();
  command->add_flag("--json", o->json, "JSON instead of a table");
  command->callback([o, command] {
    using weft::mesh_layout::positive;
    require_option(command, "--world");
    const std::size_t world = positive("world", o->world);
    constexpr std::size_t most = std::size_t(1) << 20;
    if (world > most)
      throw weft::LayoutError(weft::mesh_layout::number("world", world) + ": groups are listed for at most " +
                              std::to_string(most) + " ranks");
    const weft::mesh_layout::RankOrder order(o->order);
    const weft::mesh_layout::RankGrids grids = weft::mesh_layout::rank_grids(order, world,
                                                                             {.tp = positive("tp", o->tp),
                                                                              .cp = positive("cp", o->cp),
                                                                              .ep = positive("ep", o->ep),
                                                                              .etp = positive("etp", o->etp.value_or(o->tp)),
                                                                              .dp = o->dp ? positive("dp", *o->dp) : 0,
                                                                              .edp = o->edp ? positive("edp", *o->edp) : 0,
                                                                              .pp = positive("pp", o->pp)});
    const std::vector<std::pair<std::string, weft::mesh_layout::RankGroups>> all = {
        {"dp", grids.dense.groups({"dp"})},         {"tp", grids.dense.groups({"tp"})},
        {"pp", grids.dense.groups({"pp"})},         {"cp", grids.dense.groups({"cp"})},
        {"ep", grids.expert.groups({"ep"})},        {"etp", grids.expert.groups({"etp"})},
        {"edp", grids.expert.groups({"edp"})},      {"dp-cp", grids.dense.groups({"dp", "cp"})},
        {"tp-pp", grids.dense.groups({"tp", "pp"})}};
    if (!o->json) return print_groups(order, grids, all);
    nlohmann::ordered_json json;
    for (const auto& [name, groups] : all) json[name] = groups;
    std::printf("%s\n", json.dump().c_str());
  });
}

}  // namespace plan
