// SPDX-License-Identifier: Apache-2.0
#pragma once
// The costs of a trace's events on a machine, and the reports of an estimate. Definitions for plan/estimate.hpp.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/core/output_file.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/pipeline/schedule/visualise.hpp>
#include <weft/plan/estimate.hpp>

namespace weft::plan::detail {

/// Number of a communicator's ranks in one node. Neighbours along a mesh axis are `stride` ranks apart.
WEFT_COLD WEFT_INLINE int ranks_here(const Rehearsal& notes, const RehearsedTrace::Group& group, int per_node) {
  if (notes.ranks <= per_node) return group.size;
  if (group.size >= notes.ranks) return per_node;
  const std::string_view copies = weft::detail::axis_of_copies(group.axis);
  const Rehearsal::Axis* const axis = notes.axis(copies.empty() ? std::string_view(group.axis) : copies);
  if (axis == nullptr) return 1;  // split by the program itself: the placement is unknown, so assume the worst
  std::size_t here = 1, left = std::size_t(group.size);
  std::size_t passed = copies.empty() ? 1 : axis->size / left;  // neighbours that share one copy
  for (const Rehearsal::Axis::Line& line : axis->lines) {
    const std::size_t inner = std::min(passed, line.size), outer = line.size / inner;
    passed = std::max<std::size_t>(1, passed / line.size);
    const std::size_t room = std::max<std::size_t>(1, std::size_t(per_node) / (line.stride * inner));
    here *= std::min({outer, room, left});
    left = std::max<std::size_t>(1, left / outer);
  }
  return int(std::min<std::size_t>(here, std::size_t(group.size)));
}

/// FLOPs that a rank executes in the traced step.
struct Counted {
  double flops = 0, forward = 0;
  std::map<DataType, double> by_type;
};

WEFT_COLD WEFT_INLINE Counted count(const RehearsedTrace& trace) {
  using Kind = RehearsedTrace::Kind;
  Counted counted;
  bool forward = false;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const RehearsedTrace::Event& e = trace[i];
    if (e.kind == Kind::begin) forward = e.operation == 'F';
    if (e.kind == Kind::end) forward = false;
    if (e.kind != Kind::product && e.kind != Kind::attention) continue;
    const double flops = e.kind == Kind::product ? 2.0 * double(e.a) * double(e.b) * double(e.c) : e.amount;
    counted.flops += flops;
    counted.by_type[e.type] += flops;
    if (forward) counted.forward += flops;
  }
  return counted;
}

/// Adds the transfers of offloaded state around the optimizer's update. Parameters of ZeRO-3 are transferred earlier, during the
/// pipeline, but are counted here too, so the result is an upper bound. Copies of activations are in the trace.
WEFT_COLD WEFT_INLINE void add_offload(Replayed& step, const std::vector<RehearsedStage>& stages, const Machine& machine) {
  double longest = 0;
  std::vector<double> added;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const RehearsedWork& work = stages[i].notes.last_step;
    const double bytes = work.offloaded_bytes - work.activation_bytes;
    added.push_back(bytes > 0 ? machine.offload_s(bytes, step.stages[i].optimizer) : 0);
    longest = std::max(longest, added.back());
  }
  if (longest <= 0) return;
  step.seconds += longest;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    step.stages[i].exposed[std::string(RehearsedTrace::host_memory)] += added[i];
    step.stages[i].bubble += longest - added[i];
  }
}

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE EventCosts costs_of(const Rehearsal& notes, const Machine& machine) {
  using Kind = RehearsedTrace::Kind;
  return {[&machine](const RehearsedTrace::Event& e) {
            switch (e.kind) {
              case Kind::product: return machine.product_s(double(e.a), double(e.b), double(e.c), e.amount, e.type);
              case Kind::attention: return machine.attention_s(e.amount, e.a > 2, e.type);
              default: return machine.kernel_s(e.amount, double(e.b));
            }
          },
          [&notes, &machine](const RehearsedTrace::Event& e, const RehearsedTrace::Group& group) {
            if (group.axis == RehearsedTrace::host_memory) return machine.host_copy_s(e.amount);
            const int here = detail::ranks_here(notes, group, machine.ranks_per_node);
            if (e.kind == Kind::send || e.kind == Kind::receive) return machine.message_s(e.amount, here < group.size);
            const comm::Operation operation = comm::Operation(e.a);
            if (operation != comm::Operation::all_to_all_v) return machine.collective_s(operation, e.amount, group.size, here);
            const int ranks = int(e.b) + 1;  // the same fraction of them is in the node as of all ranks
            return machine.collective_s(operation, e.amount, ranks, int(std::int64_t(here) * ranks / group.size));
          },
          machine.hides_messages, machine.ranks_per_core};
}

WEFT_COLD WEFT_INLINE Estimate estimate(const std::vector<RehearsedStage>& rehearsed, const Machine& machine) {
  if (rehearsed.empty()) throw_error<UsageError>({"estimate: no rehearsal"});
  std::vector<RehearsedStage> stages;  // the first rank of each stage; they communicate
  for (const RehearsedStage& one : rehearsed)
    if (stages.empty() || stages.back().stage != one.stage) stages.push_back(one);
  const Rehearsal& notes = stages.front().notes;
  std::vector<const RehearsedTrace*> traces;
  for (const RehearsedStage& stage : stages) traces.push_back(stage.notes.trace.get());
  Estimate step;
  step.machine = machine.name;
  step.ranks = notes.ranks;
  step.replayed = replay(traces, costs_of(notes, machine));
  detail::add_offload(step.replayed, stages, machine);
  step.seconds = step.replayed.seconds;
  const double each = double(notes.ranks) / double(stages.size());  // ranks per stage
  std::map<DataType, double> by_type;
  for (const RehearsedTrace* trace : traces) {
    const detail::Counted counted = detail::count(*trace);
    step.flops += each * counted.flops;
    step.model_flops += each * 3 * counted.forward;
    for (const auto& [type, flops] : counted.by_type) by_type[type] += flops;
  }
  const auto most =
      std::max_element(by_type.begin(), by_type.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  step.peak_flops = double(notes.ranks) * machine.flops(most == by_type.end() ? DataType::float32 : most->first);
  const Rehearsal::Axis* const data = notes.axis("dp");
  step.tokens = traces.front()->rows * (data == nullptr ? 1.0 : double(data->size));
  return step;
}

WEFT_COLD WEFT_INLINE Estimate estimate(RehearsedStages of, const Machine& machine, const std::function<void(World&)>& f) {
  of.trace = true;
  return estimate(rehearse_stages(of, f), machine);
}

namespace detail {

/// A part of a stage's time.
struct Part {
  std::string name;
  std::function<double(const StageTimes&)> seconds;
  bool of_kernels = false;  ///< one of the other kernels, which are also summed
};

WEFT_COLD WEFT_INLINE std::vector<Part> parts_of(const Estimate& step) {
  std::vector<Part> parts{{"products", [](const StageTimes& s) { return s.products; }},
                          {"attention", [](const StageTimes& s) { return s.attention; }},
                          {"other kernels", [](const StageTimes& s) { return s.kernels; }}};
  using Named = std::map<std::string, double, std::less<>> StageTimes::*;
  const auto add = [&](Named named, const char* before, bool of_kernels) {
    std::set<std::string> names;
    for (const StageTimes& stage : step.replayed.stages)
      for (const auto& [name, seconds] : stage.*named) names.insert(name);
    for (const std::string& name : names)
      parts.push_back({before + name,
                       [named, name](const StageTimes& s) {
                         const auto found = (s.*named).find(name);
                         return found == (s.*named).end() ? 0.0 : found->second;
                       },
                       of_kernels});
  };
  add(&StageTimes::by_kind, "", true);
  parts.push_back({"after the pipeline", [](const StageTimes& s) { return s.optimizer; }});
  add(&StageTimes::exposed, "messages, ", false);
  parts.push_back({"bubble", [](const StageTimes& s) { return s.bubble; }});
  return parts;
}

WEFT_COLD WEFT_INLINE void require_machine(std::string_view machine) {
  if (machine != "this") (void)machine_of(machine, 1);  // "this" is measured later
}

WEFT_COLD WEFT_INLINE runtime::detail::EstimateTexts estimate_for_people(const std::vector<RehearsedStage>& stages,
                                                                         std::string_view name) {
  const int told = stages.front().notes.ranks_per_node;
  Machine machine = machine_of(name, told > 0 ? told : stages.front().notes.ranks);
  if (told > 0) machine.ranks_per_node = told;
  const Estimate step = estimate(stages, machine);
  if (const char* const path = std::getenv("WEFT_ESTIMATE_SVG"); path != nullptr && *path != '\0')
    weft::detail::write_output("WEFT_ESTIMATE_SVG", path, schedule::to_svg(step.replayed.table, step.replayed.timeline, " s"));
  return {table_of(step), json_of(step)};
}

}  // namespace detail

WEFT_COLD WEFT_INLINE std::string table_of(const Estimate& step) {
  char line[256];
  std::snprintf(line, sizeof line, "estimate of a step of %d ranks on %.60s\n  %-22s %11.4g s\n", step.ranks,
                step.machine.c_str(), "time", step.seconds);
  std::string text = line;
  if (step.tokens > 0) {
    std::snprintf(line, sizeof line, "  %-22s %11.0f /s, %.0f /s of a rank\n", "tokens (or samples)", step.tokens_per_second(),
                  step.tokens_per_second() / step.ranks);
    text += line;
  }
  std::snprintf(line, sizeof line, "  %-22s %11.1f %% (model FLOPs; %.1f %% with what is recomputed)\n", "share of the peak",
                100 * step.share_of_peak(), 100 * step.hardware_share());
  text += line;
  const auto& stages = step.replayed.stages;
  const std::size_t shown = stages.size() <= 8 ? stages.size() : 0;  // above 8: the first, a middle and the last one
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < shown; ++i) which.push_back(i);
  if (shown == 0) which = {0, stages.size() / 2, stages.size() - 1};
  text += "  where it goes, in % of the step";
  if (stages.size() > 1) {
    text += "; stages";
    for (const std::size_t i : which) (text += ' ') += std::to_string(i);
  }
  text += '\n';
  for (const detail::Part& part : detail::parts_of(step)) {
    const auto percent = [&](std::size_t i) { return 100 * part.seconds(stages[i]) / step.seconds; };
    if (part.of_kernels && std::all_of(which.begin(), which.end(), [&](std::size_t i) { return percent(i) < 0.1; })) continue;
    std::snprintf(line, sizeof line, part.of_kernels ? "      %-18.40s" : "    %-20.40s", part.name.c_str());
    text += line;
    for (const std::size_t i : which) {
      std::snprintf(line, sizeof line, " %7.2f", percent(i));
      text += line;
    }
    text += '\n';
  }
  return text;
}

WEFT_COLD WEFT_INLINE std::string json_of(const Estimate& step) {
  weft::detail::JsonWriter json;
  json.object().member("machine", step.machine).member("ranks", step.ranks).member("seconds", step.seconds);
  json.member("tokens", step.tokens).member("flops", step.flops).member("model_flops", step.model_flops);
  json.member("peak_flops", step.peak_flops).member("share_of_peak", step.share_of_peak());
  const std::vector<detail::Part> parts = detail::parts_of(step);
  for (const bool of_kernels : {false, true}) {
    json.key(of_kernels ? "kernels" : "stages").array();
    for (const StageTimes& stage : step.replayed.stages) {
      json.object();
      for (const detail::Part& part : parts)
        if (part.of_kernels == of_kernels) json.member(part.name, part.seconds(stage));
      json.end();
    }
    json.end();
  }
  return json.end().text();
}

}  // namespace weft::plan
