// SPDX-License-Identifier: Apache-2.0
#pragma once
// The search of a program's layouts. Definitions for plan/layouts.hpp.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/core/text.hpp>
#include <weft/plan/layouts.hpp>
#include <weft/runtime/proof/layouts.hpp>

namespace weft::plan::detail {

/// The layouts that a program leaves open on so many ranks, those that cut along fewest axes first.
WEFT_COLD WEFT_INLINE std::vector<weft::detail::ProofLayout> open_layouts(const RehearsedStages& of,
                                                                          const std::function<void(World&)>& f) {
  const weft::detail::ProofLayout one;
  const Rehearsal notes = rehearse({.ranks = 1, .threads = of.threads, .steps = 1, .layout = &one}, f);
  weft::detail::ProofNotes open;
  open.stage_is_open = notes.stage_is_open, open.schedule_is_open = notes.schedule_is_open;
  open.over_domain = notes.over_domain;
  for (const Rehearsal::Axis& axis : notes.axes)
    if (axis.name.find('-') == axis.name.npos)  // "dp-dx" are two axes
      open.axes.push_back({axis.name, axis.name == "ep" || axis.name == "etp" || axis.name == "edp"});
  auto all = runtime::detail::layouts_of(open, of.ranks, of.ranks);
  const auto cuts = [](const weft::detail::ProofLayout& layout) {
    return std::count_if(layout.degrees.begin(), layout.degrees.end(),
                         [](const auto& axis) { return axis.second > 1 && axis.first != "dp" && axis.first != "edp"; });
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return cuts(a) < cuts(b); });
  return all;
}

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE Layouts layouts(RehearsedStages of, const Machine& machine, const LayoutLimits& limits,
                                      const std::function<void(World&)>& f) {
  if (of.steps == 0) of.steps = 3;  // ZeRO-3 gathers ahead from the third on
  if (of.ranks_per_node == 0) of.ranks_per_node = machine.ranks_per_node;
  of.both = of.early = false;
  Layouts found;
  found.limits = limits;
  const auto all = detail::open_layouts(of, f);
  const auto begin = std::chrono::steady_clock::now();
  found.all = all.size();
  std::string refusal;
  double least = 0;
  for (const weft::detail::ProofLayout& layout : all) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > limits.seconds) {
      found.complete = false;
      break;
    }
    of.layout = &layout;
    try {
      ProgramLayout one{layout, 0, {}};
      for (const RehearsedStage& stage : rehearse_stages(of, f)) one.memory = std::max(one.memory, double(stage.notes.peak));
      if (limits.memory > 0 && one.memory > limits.memory) {
        ++found.too_large;
        if (least == 0 || one.memory < least) least = one.memory;
        continue;
      }
      one.step = estimate(of, machine, f);
      found.fitting.push_back(std::move(one));
    } catch (const Error& error) {
      ++found.refused;
      if (refusal.empty()) refusal = error.what();
    }
  }
  if (found.fitting.empty() && found.too_large > 0)
    throw_error<MemoryError>({"none of ", found.too_large, " layouts of ", of.ranks, " ranks fits ",
                              runtime::bytes_text(limits.memory), ": the smallest needs ", runtime::bytes_text(least),
                              found.complete ? "" : ", of those that the time allowed"});
  if (found.fitting.empty())
    throw_error<LayoutError>({"no layout of ", of.ranks, " ranks is possible",
                              found.complete ? "" : ", of those that the time allowed",
                              refusal.empty() ? "" : "; the first of them: ", refusal});
  const auto speed = [](const ProgramLayout& one) { return (one.step.tokens > 0 ? one.step.tokens : 1) / one.step.seconds; };
  std::stable_sort(found.fitting.begin(), found.fitting.end(),
                   [&](const ProgramLayout& a, const ProgramLayout& b) { return speed(a) > speed(b); });
  return found;
}

WEFT_COLD WEFT_INLINE std::string table_of(const Layouts& found) {
  const Estimate& first = found.fitting.front().step;
  std::string text = weft::detail::joined({"layouts of ", first.ranks, " ranks on ", first.machine, ": ", found.all, " in all, ",
                                           found.fitting.size(), " fit, ", found.too_large, " are too large, ", found.refused,
                                           " are refused", found.complete ? "" : "; time ran out before the others", "\n"});
  const std::size_t shown = std::min(found.limits.listed, found.fitting.size());
  char line[256];
  std::snprintf(line, sizeof line, "  %-48s %12s %12s %14s %10s\n", "", "memory", "step", "samples/s", "of peak");
  text += line;
  for (std::size_t i = 0; i < shown; ++i) {
    const ProgramLayout& one = found.fitting[i];
    std::snprintf(line, sizeof line, "  %-48.80s %9.2f GB %10.4g s %14.4g %8.1f %%\n", one.layout.text().c_str(),
                  one.memory / 1e9, one.step.seconds, one.step.tokens_per_second(), 100 * one.step.share_of_peak());
    text += line;
  }
  return text;
}

WEFT_COLD WEFT_INLINE std::string json_of(const Layouts& found) {
  const Estimate& first = found.fitting.front().step;
  weft::detail::JsonWriter json;
  json.object().member("machine", first.machine).member("ranks", first.ranks).member("all", found.all);
  json.member("too_large", found.too_large).member("refused", found.refused).member("complete", found.complete);
  json.key("layouts").array();
  for (const ProgramLayout& one : found.fitting) {
    json.line().object().member("layout", one.layout.text()).key("degrees").object();
    for (const auto& [axis, degree] : one.layout.degrees) json.member(axis, degree);
    json.end();
    if (one.layout.stage >= 0) json.member("stage", one.layout.stage);
    if (one.layout.schedule != weft::detail::ProofLayout::Schedule::given)
      json.member("schedule", weft::detail::name_of(one.layout.schedule));
    json.member("memory_bytes", one.memory).member("seconds", one.step.seconds);
    json.member("samples_per_second", one.step.tokens_per_second()).member("share_of_peak", one.step.share_of_peak()).end();
  }
  json.end().end();
  return json.text();
}

WEFT_COLD WEFT_INLINE runtime::detail::EstimateTexts detail::layouts_for_people(const RehearsedStages& of, std::string_view name,
                                                                                double memory, std::size_t listed,
                                                                                const std::function<void(World&)>& f) {
  Machine machine = machine_of(name, of.ranks_per_node > 0 ? of.ranks_per_node : of.ranks);
  if (of.ranks_per_node > 0) machine.ranks_per_node = of.ranks_per_node;
  const Layouts found = layouts(of, machine, {.memory = memory, .listed = listed}, f);
  return {table_of(found), json_of(found)};
}

}  // namespace weft::plan
