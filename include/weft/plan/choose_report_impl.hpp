// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table, the JSON and the decision tree's texts. Definitions for plan/choose_report.hpp.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/plan/choose.hpp>
#include <weft/plan/choose_report.hpp>
#include <weft/runtime/rehearsal_report.hpp>

namespace weft::plan::detail {

/// Seconds per step by part, averaged over the stages.
WEFT_COLD WEFT_INLINE std::map<std::string, double> shares_of(const Estimate& step) {
  std::map<std::string, double> sum;
  const double each = 1.0 / double(std::max<std::size_t>(1, step.replayed.stages.size()));
  for (const StageTimes& stage : step.replayed.stages) {
    sum["products"] += each * stage.products, sum["attention"] += each * stage.attention;
    sum["other kernels"] += each * (stage.kernels + stage.optimizer);
    sum["bubble"] += each * stage.bubble;
    for (const auto& [axis, seconds] : stage.exposed) sum["messages of " + axis] += each * seconds;
  }
  return sum;
}

inline std::string in_percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

WEFT_COLD WEFT_INLINE std::string why_of(const RankedLayout& layout, const RankedLayout* other, const char* name) {
  if (other == nullptr) return "nothing else fits";
  const double gain = 1 - layout.step.seconds / other->step.seconds;
  std::map<std::string, double> less = shares_of(other->step);
  for (const auto& [what, seconds] : shares_of(layout.step)) less[what] -= seconds;
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [what, seconds] : less) parts.push_back({seconds / other->step.seconds, what});
  std::sort(parts.begin(), parts.end());
  std::string text;
  if (std::abs(gain) < 5e-4) (text = "as fast as ") += name;
  else ((text = in_percent(std::abs(gain))) += gain > 0 ? " less time than " : " more time than ") += name;
  const auto add = [&](const char* word, const std::pair<double, std::string>& part) {
    if (std::abs(part.first) < 2e-3) return;
    ((((text += text.find(':') == text.npos ? ": " : ", ") += word) += part.second) += ' ') += in_percent(std::abs(part.first));
  };
  add("less ", parts.back());
  if (parts.size() > 1 && parts[parts.size() - 2].first > 0) add("less ", parts[parts.size() - 2]);
  if (parts.front().first < 0) add("more ", parts.front());
  return text;
}

WEFT_COLD WEFT_INLINE std::string reason_of(const Search& search, const Candidate& c, double memory) {
  std::string text;
  const std::string room =
      search.memory > 0 ? " (" + runtime::bytes_text(memory) + " of " + runtime::bytes_text(search.memory) + ")" : "";
  const bool spread = search.global_batch < search.ranks;
  const char* const ranks = spread ? "the global batch has fewer sequences than there are ranks" : "FSDP alone does not fit";
  switch (branch_of(c)) {
    case Branch::one_rank: text = "one rank: it is all there is, and the model fits"; break;
    case Branch::data: text = "DataParallel: the model, its gradients and its optimizer fit on each rank"; break;
    case Branch::sharded:
      ((text = "FSDP (ZeRO-") += std::to_string(c.zero)) += "): a whole copy does not fit on each rank, its parts do";
      break;
    case Branch::tensor: ((text = "tp inside a node: ") += ranks) += ", and layers are cut where links are fast"; break;
    case Branch::pipeline: text = "pp across nodes: tp inside of nodes is not enough, and stages send the least"; break;
    default:
      text = "cp for long sequences: one sequence of a micro-batch is too long for the ranks of a stage, or too few of them";
      break;
  }
  if (c.ep > 1) text += "; ep for experts: tokens go to them, and they are not gathered";
  return text + room;
}

WEFT_COLD WEFT_INLINE void write_layout(weft::detail::JsonWriter& json, const RankedLayout& one) {
  const Candidate& c = one.layout;
  json.object()
      .member("dp", c.dp)
      .member("tp", c.tp)
      .member("cp", c.cp)
      .member("pp", c.pp)
      .member("ep", c.ep)
      .member("etp", c.etp);
  json.member("sequence_parallel", c.sequence_parallel).member("context", c.ulysses ? "ulysses" : "ring");
  json.member("schedule", name_of(c.order)).member("vpp", c.chunks).key("stage_layers").array();
  for (const std::size_t layers : one.stage_layers) json.value(layers);
  json.end().member("zero", int(c.zero)).member("replicate", c.replicate);
  json.member("offload", c.offload).member("micro_batch", c.micro_batch).member("micro_batches", c.micro_batches);
  json.member("recompute", name_of(c.kept)).member("loss_chunks", c.loss_chunks);
  json.member("activations", c.host_activations ? "host" : "device");
  json.member("memory", one.memory).member("host_memory", one.host_memory).member("seconds", one.step.seconds);
  json.member("tokens_per_second", one.step.tokens_per_second()).member("share_of_peak", one.step.share_of_peak());
  json.member("formula_seconds", one.formulas.seconds).member("formula_memory", one.formulas.memory).key("goes_to").object();
  for (const auto& [part, seconds] : shares_of(one.step)) json.member(part, seconds);
  json.end().member("why", one.why).member("type", one.names.type).member("command", one.names.command).end();
}

}  // namespace weft::plan::detail

namespace weft::plan {

WEFT_COLD WEFT_INLINE std::string table_of(const Chosen& chosen) {
  char line[512];
  const Search& s = chosen.search;
  std::snprintf(line, sizeof line, "%lld ranks of %.60s, %lld a node, %lld sequences of %lld a step%s%s\n\n", (long long)s.ranks,
                chosen.machine.c_str(), (long long)s.ranks_per_node, (long long)s.global_batch, (long long)s.sequence,
                s.memory > 0 ? ", memory " : "", s.memory > 0 ? runtime::bytes_text(s.memory).c_str() : "");
  std::string text = line;
  const auto row = [&](const char* place, const RankedLayout& one) {
    std::snprintf(line, sizeof line, "%-5s %-64s %10s %9.4g s %11.4g %6.1f %%\n", place, text_of(one.layout).c_str(),
                  runtime::bytes_text(one.memory).c_str(), one.step.seconds, one.step.tokens_per_second(),
                  100 * one.step.share_of_peak());
    text += line;
  };
  if (chosen.tree) {
    (text += "the decision tree: ") += chosen.reason + "\n";
    row("tree", *chosen.tree);
    text += '\n';
  }
  std::snprintf(line, sizeof line, "%-5s %-64s %10s %11s %11s %8s\n", "", "layout", "memory", "step", "tokens/s", "of peak");
  text += line;
  for (std::size_t i = 0; i < chosen.best.size(); ++i) {
    const RankedLayout& one = chosen.best[i];
    row((std::to_string(i + 1) + ".").c_str(), one);
    (text += "      ") += one.why + "\n      goes to:";
    std::vector<std::pair<double, std::string>> parts;
    for (const auto& [what, seconds] : detail::shares_of(one.step)) parts.push_back({seconds / one.step.seconds, what});
    std::sort(parts.rbegin(), parts.rend());
    for (std::size_t k = 0; k < parts.size() && parts[k].first > 5e-3; ++k)
      (((text += k == 0 ? " " : ", ") += parts[k].second) += ' ') += detail::in_percent(parts[k].first);
    text += '\n';
    if (one.host_memory > 0) (text += "      activations on the host: ") += runtime::bytes_text(one.host_memory) + " a rank\n";
    if (!one.stage_layers.empty()) (text += "      layers of the stages: ") += mesh_layout::counts_text(one.stage_layers) + '\n';
    if (!one.names.type.empty()) (text += "      ") += one.names.type + '\n';
    if (!one.names.command.empty()) (text += "      ") += one.names.command + '\n';
  }
  std::snprintf(line, sizeof line, "\n%zu layouts are legal, %zu may fit by formulas, %zu were rehearsed whole, in %.1f s%s\n",
                chosen.legal, chosen.fitting, chosen.rehearsed, chosen.seconds,
                chosen.complete ? "" : "; the search is not complete: its time was up");
  return text + line;
}

WEFT_COLD WEFT_INLINE std::string json_of(const Chosen& chosen) {
  weft::detail::JsonWriter json;
  json.object().member("ranks", chosen.search.ranks).member("machine", chosen.machine).member("legal", chosen.legal);
  json.member("fitting", chosen.fitting).member("rehearsed", chosen.rehearsed).member("complete", chosen.complete);
  json.member("search_seconds", chosen.seconds).member("reason", chosen.reason).key("tree");
  if (chosen.tree) detail::write_layout(json, *chosen.tree);
  else json.null();
  json.key("best").array();
  for (const RankedLayout& one : chosen.best) detail::write_layout(json, one);
  return json.end().end().text();
}

}  // namespace weft::plan
