// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table and the JSON of rehearsals. Definitions for runtime/rehearsal_report.hpp.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/json_writer.hpp>
#include <weft/core/text.hpp>
#include <weft/runtime/rehearsal_report.hpp>

namespace weft::runtime::detail {

/// One number of a rank's report.
struct Figure {
  const char* key;
  const char* label;
  bool bytes;  ///< or FLOPs: printed with a prefix
  double value;
};

WEFT_COLD WEFT_INLINE std::vector<Figure> figures_of(const RehearsedStage& stage) {
  const Rehearsal& notes = stage.notes;
  const MemoryUse& kept = notes.kept;
  std::size_t others = kept.current;
  for (const MemoryCategory category : {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer_state})
    others -= kept.of(category);
  const char* const peak = notes.early ? "memory, at least (early), B" : "memory, at most, B";
  std::vector<Figure> figures = {
      {"peak_bytes", peak, true, double(notes.peak)},
      {"least_peak_bytes", "  at least", true, double(stage.least_peak)},
      {"reserved_bytes", "  reserved for it", true, double(notes.reserved)},
      {"kept_bytes", "  kept between steps", true, double(kept.current)},
      {"kept_parameter_bytes", "    parameters", true, double(kept.of(MemoryCategory::parameters))},
      {"kept_gradient_bytes", "    gradients", true, double(kept.of(MemoryCategory::gradients))},
      {"kept_optimizer_bytes", "    optimizer state", true, double(kept.of(MemoryCategory::optimizer_state))},
      {"kept_other_bytes", "    all else", true, double(others)},
      {"optimizer_steps", "steps of an optimizer", false, double(notes.steps)}};
  if (stage.least_peak == 0) figures.erase(figures.begin() + 1);
  if (notes.host_activation_bytes > 0)
    figures.push_back({"host_activation_bytes", "host memory of activations, B", true, double(notes.host_activation_bytes)});
  if (notes.elastic_bytes > 0)
    figures.push_back({"elastic_copy_bytes", "host memory of elastic copies, B", true, double(notes.elastic_bytes)});
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

/// The work that a table shows: the last step's, or the whole program's if no optimizer took a step.
WEFT_COLD WEFT_INLINE const RehearsedWork& shown_work(const Rehearsal& notes) {
  return notes.last_step.launches > 0 ? notes.last_step : notes;
}

// With a prefix, 1234567 is "1.23 M".
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

/// A table that is written column by column. All columns have the same lines.
class Columns {
 public:
  void next_column() {
    column_ += lines_.empty() ? 0 : 13;
    line_ = 0;
  }
  void heading(std::string_view text) {
    if (line_ == lines_.size()) lines_.emplace_back(text);
    ++line_;
  }
  void add(std::string_view label, double value, bool prefixed) {
    heading(weft::detail::joined({"  ", label}));
    std::string& line = lines_[line_ - 1];
    const std::string cell = cell_of(value, prefixed);
    const std::size_t end = column_ + 11, taken = line.size() + cell.size();
    line.append(taken < end ? end - taken : 1, ' ');
    line += cell;
  }
  void add(const std::vector<Figure>& figures) {
    for (const Figure& figure : figures) add(figure.label, figure.value, figure.bytes);
  }
  std::string text() const {
    std::string all;
    for (const std::string& line : lines_) {
      all += line;
      while (all.ends_with(' ')) all.pop_back();
      all += '\n';
    }
    return all;
  }

 private:
  std::vector<std::string> lines_;
  std::size_t line_ = 0, column_ = 36;
};

WEFT_COLD WEFT_INLINE std::string axes_text(const Rehearsal& notes) {
  std::string text;
  for (const Rehearsal::Axis& axis : notes.axes) {
    const std::size_t nodes = axis.size == 1 ? 0 : notes.nodes_of(axis);
    weft::detail::append_to(text, {text.empty() ? "  ranks along " : ", ", axis.name, " ", axis.size});
    if (nodes == 1) text += " (inside of a node)";
    if (nodes > 1) weft::detail::append_to(text, {" (over ", nodes, " nodes)"});
  }
  return text.empty() ? text : text + "\n";
}

WEFT_COLD WEFT_INLINE std::string table_of_ranks(std::span<const RehearsedStage> stages) {
  RehearsedWork all;  // the union of all ranks' kinds of kernels and messages
  for (const RehearsedStage& stage : stages) {
    const RehearsedWork& work = shown_work(stage.notes);
    for (const Rehearsal::Kernels& one : work.kernels)
      if (all.of(one.kind).kind.empty()) all.kernels.push_back(one);
    for (const Rehearsal::Messages& one : work.messages) all.sent(one.axis, one.operation, one.bytes);
  }
  Columns table;
  for (const RehearsedStage& stage : stages) {
    const RehearsedWork& work = shown_work(stage.notes);
    table.next_column();
    if (stages.size() > 1) {
      table.add("stage of the pipeline", stage.stage, false);
      table.add("rank", stage.rank, false);
    }
    table.add(figures_of(stage));
    table.heading(&work == &stage.notes ? "in the whole program (no optimizer took a step)" : "in its last step");
    table.add(figures_of(work));
    table.heading("  kernels by kind, their launches and bytes");
    for (const Rehearsal::Kernels& kind : all.kernels) {
      const Rehearsal::Kernels one = work.of(kind.kind);
      table.add(weft::detail::joined({"  ", kind.kind}), double(one.launches), false);
      table.add("    bytes", one.bytes, true);
    }
    table.heading("  messages by axis and operation, their calls and bytes");
    for (const Rehearsal::Messages& kind : all.messages) {
      const Rehearsal::Messages one = work.of(kind.axis, kind.operation);
      table.add(weft::detail::joined({"  ", kind.axis, " ", kind.operation}), double(one.calls), false);
      table.add("    bytes", one.bytes, true);
    }
  }
  return table.text() + axes_text(stages.front().notes);
}

WEFT_COLD WEFT_INLINE std::string table_of_rank(const RehearsedStage& stage) {
  return weft::detail::joined(
      {"rehearsal of rank ", stage.notes.rank, " of ", stage.notes.ranks, "\n", table_of_ranks(std::span(&stage, 1))});
}

// The members of an object of figures.
WEFT_COLD WEFT_INLINE void write_figures(weft::detail::JsonWriter& json, const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) json.member(figure.key, figure.value);
}

// The members of work.
WEFT_COLD WEFT_INLINE void write_work(weft::detail::JsonWriter& json, const RehearsedWork& work) {
  write_figures(json, figures_of(work));
  json.key("kernels").array();
  for (const Rehearsal::Kernels& one : work.kernels)
    json.object().member("kind", one.kind).member("launches", one.launches).member("bytes", one.bytes).end();
  json.end().key("messages").array();
  for (const Rehearsal::Messages& one : work.messages)
    json.object()
        .member("axis", one.axis)
        .member("operation", one.operation)
        .member("calls", one.calls)
        .member("bytes", one.bytes)
        .end();
  json.end();
}

WEFT_COLD WEFT_INLINE void write_rank(weft::detail::JsonWriter& json, const RehearsedStage& stage, bool of_many) {
  const Rehearsal& notes = stage.notes;
  json.object().member("rank", notes.rank).member("ranks", notes.ranks).member("early", notes.early);
  if (of_many) json.member("stage", stage.stage);
  write_figures(json, figures_of(stage));
  json.key("axes").array();
  for (const Rehearsal::Axis& axis : notes.axes) {
    json.object().member("axis", axis.name).member("size", axis.size).member("rank", axis.rank);
    if (notes.ranks_per_node > 0) json.member("nodes", notes.nodes_of(axis));
    json.end();
  }
  json.end().key("units").array();
  for (const std::string& unit : notes.units) json.value(unit);
  json.end();
  write_work(json, notes);
  json.key("last_step").object();
  write_work(json, notes.last_step);
  json.end().end();
}

WEFT_COLD WEFT_INLINE std::string json_of_rank(const RehearsedStage& stage, bool of_many) {
  weft::detail::JsonWriter json;
  write_rank(json, stage, of_many);
  return json.text();
}

}  // namespace weft::runtime::detail

namespace weft::runtime {

WEFT_COLD WEFT_INLINE std::string table_of(const Rehearsal& notes) { return detail::table_of_rank({notes.rank, 0, notes}); }

WEFT_COLD WEFT_INLINE std::string table_of(const std::vector<RehearsedStage>& stages) {
  if (stages.empty()) return "";
  const char* const which =
      stages.size() == 1 ? "rehearsal of rank 0, which stands for all " : "rehearsal of the ranks that differ, of ";
  return weft::detail::joined({which, stages.front().notes.ranks, "\n", detail::table_of_ranks(stages)});
}

WEFT_COLD WEFT_INLINE std::string json_of(const Rehearsal& notes) { return detail::json_of_rank({notes.rank, 0, notes}, false); }

WEFT_COLD WEFT_INLINE std::string json_of(const std::vector<RehearsedStage>& stages) {
  weft::detail::JsonWriter json;
  json.array();
  for (const RehearsedStage& stage : stages) {
    if (&stage != stages.data()) json.line();
    detail::write_rank(json, stage, true);
  }
  return json.end().text();
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
  const MemoryUse& kept = notes.kept;
  const Rehearsal::Axis* const pipeline = notes.axis("pp");
  std::string words;
  if (pipeline != nullptr && pipeline->size > 1)
    words = weft::detail::joined({"stage ", pipeline->rank, " of the pipeline (rank ", stage.rank, ")"});
  else words = weft::detail::joined({"rank ", stage.rank});
  words += " needs ";
  if (stage.least_peak > 0 && stage.least_peak != notes.peak)
    weft::detail::append_to(words, {bytes_text(double(stage.least_peak)), " to "});
  const std::size_t others = notes.peak - std::min(notes.peak, kept.current);
  weft::detail::append_to(words, {bytes_text(double(notes.peak)), " and has ", bytes_text(memory), ": parameters ",
                                  bytes_text(double(kept.of(MemoryCategory::parameters))), ", gradients ",
                                  bytes_text(double(kept.of(MemoryCategory::gradients))), ", optimizer state ",
                                  bytes_text(double(kept.of(MemoryCategory::optimizer_state))), ", activations and buffers ",
                                  bytes_text(double(others))});
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
