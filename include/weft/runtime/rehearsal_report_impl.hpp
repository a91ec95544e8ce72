// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for runtime/rehearsal_report.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/runtime/rehearsal_report.hpp>

namespace weft::runtime::detail {

/// One number of a report, of one rank.
struct Figure {
  const char* key;
  std::string label;
  bool bytes;  ///< or FLOP: shown with a prefix
  double value;
};

WEFT_COLD WEFT_INLINE std::vector<Figure> figures_of(const RehearsedStage& stage) {
  const Rehearsal& notes = stage.notes;
  const auto kept = [&](MemoryCategory category) { return double(notes.kept.of(category)); };
  std::vector<Figure> figures = {
      {"peak_bytes", notes.early ? "memory, at least (early), B" : "memory, at most, B", true, double(notes.peak)}};
  if (stage.least_peak > 0) figures.push_back({"least_peak_bytes", "  at least", true, double(stage.least_peak)});
  figures.insert(figures.end(), {{"reserved_bytes", "  reserved for it", true, double(notes.reserved)},
                                 {"kept_bytes", "  kept between steps", true, double(notes.kept.current)},
                                 {"kept_parameter_bytes", "    parameters", true, kept(MemoryCategory::parameters)},
                                 {"kept_gradient_bytes", "    gradients", true, kept(MemoryCategory::gradients)},
                                 {"kept_optimizer_bytes", "    optimizer state", true, kept(MemoryCategory::optimizer_state)},
                                 {"optimizer_steps", "steps of an optimizer", false, double(notes.steps)}});
  return figures;
}

WEFT_COLD WEFT_INLINE std::vector<Figure> figures_of(const RehearsedWork& work) {
  return {{"product_flops", "products, FLOP", true, work.product_flops},
          {"product_bytes", "  of matrices of, B", true, work.product_bytes},
          {"products", "  calls", false, double(work.products)},
          {"attention_flops", "attention, FLOP", true, work.attention_flops},
          {"attentions", "  calls", false, double(work.attentions)},
          {"kernel_launches", "kernel launches", false, double(work.launches)},
          {"kernel_bytes", "  read and written, B", true, work.kernel_bytes},
          {"host_copies", "copies to and from the host", false, double(work.copies)},
          {"offloaded_bytes", "to and from an offload store, B", true, work.offloaded_bytes}};
}

/// The work that a table shows: of the last step, or of the whole program if no optimizer took one.
WEFT_COLD WEFT_INLINE const RehearsedWork& shown_work(const Rehearsal& notes) {
  return notes.last_step.launches > 0 ? notes.last_step : notes;
}

// 1234567 with a prefix is "1.23 M".
WEFT_COLD WEFT_INLINE std::string cell_of(double value, bool prefixed) {
  char text[64];
  if (!prefixed) {
    std::snprintf(text, sizeof text, "%.0f  ", value);
    return text;
  }
  const char* prefix = " kMGTPE";
  for (; value >= 999.95 && prefix[1] != 0; ++prefix) value /= 1000;
  std::snprintf(text, sizeof text, "%.2f %c", value, *prefix);
  return text;
}

WEFT_COLD WEFT_INLINE std::string line_of(std::string_view label, const std::vector<std::string>& cells) {
  std::string line = "  ";
  line += label;
  for (const std::string& cell : cells) {
    const std::size_t column = 36 + 13 * std::size_t(&cell - cells.data());
    line.append(std::max<std::ptrdiff_t>(1, std::ptrdiff_t(column + 11) - std::ptrdiff_t(line.size() + cell.size())), ' ');
    line += cell;
  }
  while (line.ends_with(' ')) line.pop_back();
  return line + '\n';
}

WEFT_COLD WEFT_INLINE std::string table_of_ranks(const std::vector<RehearsedStage>& stages) {
  const Rehearsal& first = stages.front().notes;
  std::string text;
  std::vector<std::string> cells;
  const auto add = [&](std::string_view label, const auto& cell) {
    cells.clear();
    for (const RehearsedStage& stage : stages) cells.push_back(cell(stage));
    text += line_of(label, cells);
  };
  if (stages.size() > 1) {
    add("stage of the pipeline", [](const RehearsedStage& stage) { return cell_of(stage.stage, false); });
    add("rank", [](const RehearsedStage& stage) { return cell_of(stage.rank, false); });
  }
  const auto add_figures = [&](const auto& of) {
    std::vector<std::vector<Figure>> figures;
    for (const RehearsedStage& stage : stages) figures.push_back(of(stage));
    for (std::size_t i = 0; i < figures.front().size(); ++i)
      add(figures.front()[i].label, [&](const RehearsedStage& stage) {
        const Figure& figure = figures[std::size_t(&stage - stages.data())][i];
        return cell_of(figure.value, figure.bytes);
      });
  };
  add_figures([](const RehearsedStage& stage) { return figures_of(stage); });
  text += &shown_work(first) == &first ? "in the whole program (no optimizer took a step)\n" : "in its last step\n";
  add_figures([](const RehearsedStage& stage) { return figures_of(shown_work(stage.notes)); });
  text += "  kernels by kind, their launches and bytes\n";
  std::vector<std::string_view> kernels;
  for (const RehearsedStage& stage : stages)
    for (const Rehearsal::Kernels& one : shown_work(stage.notes).kernels)
      if (std::find(kernels.begin(), kernels.end(), one.kind) == kernels.end()) kernels.push_back(one.kind);
  for (const std::string_view kind : kernels) {
    const auto of = [&](const RehearsedStage& stage) { return shown_work(stage.notes).of(kind); };
    add("  " + std::string(kind), [&](const RehearsedStage& stage) { return cell_of(double(of(stage).launches), false); });
    add("    bytes", [&](const RehearsedStage& stage) { return cell_of(of(stage).bytes, true); });
  }
  text += "  messages by axis and operation, their calls and bytes\n";
  std::vector<std::pair<std::string, std::string_view>> kinds;
  for (const RehearsedStage& stage : stages)
    for (const Rehearsal::Messages& one : shown_work(stage.notes).messages)
      if (const std::pair kind(one.axis, one.operation); std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
        kinds.push_back(kind);
  for (const auto& kind : kinds) {  // by its members: clang 14 captures no structured binding
    const auto of = [&](const RehearsedStage& stage) { return shown_work(stage.notes).of(kind.first, kind.second); };
    add("  " + kind.first + " " + std::string(kind.second),
        [&](const RehearsedStage& stage) { return cell_of(double(of(stage).calls), false); });
    add("    bytes", [&](const RehearsedStage& stage) { return cell_of(of(stage).bytes, true); });
  }
  std::string axes;
  const auto where = [](std::size_t ranks, std::size_t nodes) -> std::string {
    if (nodes == 0 || ranks == 1) return "";
    return nodes == 1 ? " (inside of a node)" : " (over " + std::to_string(nodes) + " nodes)";
  };
  for (const Rehearsal::Axis& axis : first.axes)
    axes += (axes.empty() ? "  ranks along " : ", ") + axis.name + " " + std::to_string(axis.size) +
            where(axis.size, first.nodes_of(axis));
  return axes.empty() ? text : text + axes + "\n";
}

WEFT_COLD WEFT_INLINE std::string json_string(std::string_view text) {
  std::string quote = "\"";
  for (const char c : text.substr(0, 80)) quote += c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? '_' : c;
  return quote + '"';
}

// Members of an object, each followed by a comma.
WEFT_COLD WEFT_INLINE std::string json_members(const std::vector<Figure>& figures) {
  std::string text;
  char line[128];
  for (const Figure& figure : figures) {
    std::snprintf(line, sizeof line, "\"%s\": %.17g, ", figure.key, figure.value);
    text += line;
  }
  return text;
}

// The members of work, without braces.
WEFT_COLD WEFT_INLINE std::string json_of_work(const RehearsedWork& work) {
  char line[256];
  std::string text = json_members(figures_of(work)) + "\"kernels\": [";
  for (const Rehearsal::Kernels& one : work.kernels) {
    std::snprintf(line, sizeof line, "%s{\"kind\": %s, \"launches\": %.0f, \"bytes\": %.17g}",
                  &one != work.kernels.data() ? ", " : "", json_string(one.kind).c_str(), double(one.launches), one.bytes);
    text += line;
  }
  text += "], \"messages\": [";
  for (const Rehearsal::Messages& one : work.messages) {
    std::snprintf(line, sizeof line, "%s{\"axis\": %s, \"operation\": \"%.40s\", \"calls\": %.0f, \"bytes\": %.17g}",
                  &one != work.messages.data() ? ", " : "", json_string(one.axis).c_str(), one.operation.data(),
                  double(one.calls), one.bytes);
    text += line;
  }
  return text + "]";
}

WEFT_COLD WEFT_INLINE std::string json_of_rank(const RehearsedStage& stage, bool of_many) {
  const Rehearsal& notes = stage.notes;
  char line[256];
  std::snprintf(line, sizeof line, "{\"rank\": %d, \"ranks\": %d, \"early\": %s, ", notes.rank, notes.ranks,
                notes.early ? "true" : "false");
  std::string text = line;
  if (of_many) text += "\"stage\": " + std::to_string(stage.stage) + ", ";
  text += json_members(figures_of(stage)) + "\"axes\": [";
  for (const Rehearsal::Axis& axis : notes.axes) {
    std::snprintf(line, sizeof line, "%s{\"axis\": %s, \"size\": %zu, \"rank\": %zu", &axis != notes.axes.data() ? ", " : "",
                  json_string(axis.name).c_str(), axis.size, axis.rank);
    text += line;
    if (notes.ranks_per_node > 0) text += ", \"nodes\": " + std::to_string(notes.nodes_of(axis));
    text += '}';
  }
  return text + "], " + json_of_work(notes) + ", \"last_step\": {" + json_of_work(notes.last_step) + "}}";
}

}  // namespace weft::runtime::detail

namespace weft::runtime {

WEFT_COLD WEFT_INLINE std::string table_of(const Rehearsal& notes) {
  return "rehearsal of rank " + std::to_string(notes.rank) + " of " + std::to_string(notes.ranks) + "\n" +
         detail::table_of_ranks({{notes.rank, 0, notes}});
}

WEFT_COLD WEFT_INLINE std::string table_of(const std::vector<RehearsedStage>& stages) {
  if (stages.empty()) return "";
  const int ranks = stages.front().notes.ranks;
  return (stages.size() == 1 ? "rehearsal of rank 0, which stands for all " : "rehearsal of the ranks that differ, of ") +
         std::to_string(ranks) + "\n" + detail::table_of_ranks(stages);
}

WEFT_COLD WEFT_INLINE std::string json_of(const Rehearsal& notes) { return detail::json_of_rank({notes.rank, 0, notes}, false); }

WEFT_COLD WEFT_INLINE std::string json_of(const std::vector<RehearsedStage>& stages) {
  std::string text = "[";
  for (const RehearsedStage& stage : stages) text += (text.size() > 1 ? ",\n " : "") + detail::json_of_rank(stage, true);
  return text + "]";
}

WEFT_COLD WEFT_INLINE double bytes_of(std::string_view name, std::string_view text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit = text.substr(std::size_t(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (problem == std::errc() && !unit.empty() && unit != "B") {
    const std::size_t at = std::string_view("kMGTP").find(unit.front() == 'K' ? 'k' : unit.front());
    const bool binary = unit.substr(1) == "iB";
    if (at == std::string_view::npos || (!binary && unit.substr(1) != "B")) value = 0;
    else value *= std::pow(binary ? 1024 : 1000, double(at + 1));
  }
  if (problem != std::errc() || !(value >= 1) || !(value < 1e18))
    throw_error<UsageError>({name, " is '", text.substr(0, 80), "', expected a size such as 80GB, 80GiB or 8e10"});
  return value;
}

WEFT_COLD WEFT_INLINE std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 999.95 && unit < 5; ++unit) bytes /= 1000;
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

WEFT_COLD WEFT_INLINE const RehearsedStage* too_large(const std::vector<RehearsedStage>& stages, double memory) {
  const RehearsedStage* largest = nullptr;
  for (const RehearsedStage& stage : stages)
    if (double(stage.notes.peak) > memory && (largest == nullptr || stage.notes.peak > largest->notes.peak)) largest = &stage;
  return largest;
}

WEFT_COLD WEFT_INLINE std::string need_text(const RehearsedStage& stage, double memory) {
  const Rehearsal& notes = stage.notes;
  const auto text = [](std::size_t bytes) { return bytes_text(double(bytes)); };
  const auto kept = [&](MemoryCategory category) { return text(notes.kept.of(category)); };
  const Rehearsal::Axis* const pipeline = notes.axis("pp");
  std::string words = pipeline != nullptr && pipeline->size > 1 ? "stage " + std::to_string(pipeline->rank) +
                                                                      " of the pipeline (rank " + std::to_string(stage.rank) + ")"
                                                                : "rank " + std::to_string(stage.rank);
  words += " needs " +
           (stage.least_peak > 0 && stage.least_peak != notes.peak ? text(stage.least_peak) + " to " : std::string()) +
           text(notes.peak) + " and has " + bytes_text(memory) + ": parameters " + kept(MemoryCategory::parameters) +
           ", gradients " + kept(MemoryCategory::gradients) + ", optimizer state " + kept(MemoryCategory::optimizer_state) +
           ", activations and buffers " + text(notes.peak - std::min(notes.peak, notes.kept.current));
  return words;
}

WEFT_COLD WEFT_INLINE void require_memory(const std::vector<RehearsedStage>& stages, double memory) {
  const RehearsedStage* const stage = too_large(stages, memory);
  if (stage == nullptr) return;
  const bool of_the_step = stage->notes.peak > 2 * stage->notes.kept.current;
  throw_error<MemoryError>({"out of memory: ", need_text(*stage, memory), "; ",
                            of_the_step
                                ? "recompute activations, fewer sequences in a micro-batch, or more ranks along tp, cp or pp"
                                : "a higher stage of ZeRO over more data ranks, more ranks along tp or pp, or offload"});
}

}  // namespace weft::runtime
