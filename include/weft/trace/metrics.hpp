// SPDX-License-Identifier: Apache-2.0
#pragma once
// The measurements of a training run: one line of JSON or CSV per step, and one per validation. Each line is flushed at once, so
// a killed run keeps its records. trace/tensorboard.hpp writes numbers for TensorBoard.
//
//   trace::MetricsFile metrics("runs/a/metrics.jsonl");   // or metrics.csv
//   metrics.write({.step = 0, .loss = 5.5, .tokens_per_s = 21000});
//   metrics.write_validation(0, 5.4);   // {"step": 0, "validation_loss": 5.4}

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/core/json_writer.hpp>
#include <weft/core/output_file.hpp>

namespace weft::trace {

/// One training step.
struct StepRecord {
  std::uint64_t step = 0;
  double loss = 0;           ///< nats per token, mean over the global batch
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  double tokens_per_s = 0;  ///< on all ranks
  double ms = 0;            ///< wall time of the step
  bool skipped = false;     ///< parameters not updated: the loss or the gradient is not finite

  /// Messages of the writing rank in the step, by axis (comm/step_use.hpp).
  struct Axis {
    std::string axis;
    double waiting_ms = 0, bytes = 0;
  };
  struct Slow {
    int rank = 0;
    double slower = 0;  ///< 0.2: its computing takes 20 % longer than that of the other ranks of its stage
  };
  // Measurements that a program may leave out: those of 0 and empty lists are not written.
  double share_of_peak = 0;      ///< of all ranks: model FLOPs over the FLOPs that matrix products could do in this time
  double computing_ms = 0;       ///< of the writing rank
  std::vector<Axis> axes = {};   ///< of the writing rank
  std::size_t memory_bytes = 0;  ///< of the writing rank, in use at the end of the step
  std::size_t memory_peak_bytes = 0;
  std::vector<Slow> slow = {};  ///< ranks that compute slower than others
};

/// The record as one line of JSON, without line end: step, loss, gradient_norm, learning_rate, tokens_per_s, ms, and `"skipped":
/// true` if the step was skipped; then the measurements that there are, `waiting_ms` and `message_bytes` as objects by axis, and
/// `slow_ranks` as a list of objects with rank and slower. Numbers have 9 significant digits; a number that is not finite is
/// `null`.
inline std::string to_json(const StepRecord& record) {
  weft::detail::JsonWriter json(9);
  json.object().member("step", record.step).member("loss", record.loss).member("gradient_norm", record.gradient_norm);
  json.member("learning_rate", record.learning_rate).member("tokens_per_s", record.tokens_per_s).member("ms", record.ms);
  if (record.skipped) json.member("skipped", true);
  if (record.share_of_peak > 0) json.member("share_of_peak", record.share_of_peak);
  if (record.computing_ms > 0) json.member("computing_ms", record.computing_ms);
  if (!record.axes.empty()) {
    json.key("waiting_ms").object();
    for (const StepRecord::Axis& axis : record.axes) json.member(axis.axis, axis.waiting_ms);
    json.end().key("message_bytes").object();
    for (const StepRecord::Axis& axis : record.axes) json.member(axis.axis, axis.bytes);
    json.end();
  }
  if (record.memory_peak_bytes > 0)
    json.member("memory_bytes", record.memory_bytes).member("memory_peak_bytes", record.memory_peak_bytes);
  if (!record.slow.empty()) {
    json.key("slow_ranks").array();
    for (const StepRecord::Slow& one : record.slow) json.object().member("rank", one.rank).member("slower", one.slower).end();
    json.end();
  }
  return json.end().text();
}

/// The columns of a CSV file whose first record is `first`: those of every record, and the measurements that `first` has, with
/// `waiting_ms.AXIS` and `message_bytes.AXIS` for each axis. Records with measurements have `slow_ranks`.
inline std::vector<std::string> csv_columns(const StepRecord& first) {
  std::vector<std::string> columns{"step",         "loss", "gradient_norm", "learning_rate",
                                   "tokens_per_s", "ms",   "skipped",       "validation_loss"};
  if (first.share_of_peak > 0) columns.push_back("share_of_peak");
  if (first.computing_ms > 0) columns.push_back("computing_ms");
  for (const StepRecord::Axis& axis : first.axes)
    columns.insert(columns.end(), {"waiting_ms." + axis.axis, "message_bytes." + axis.axis});
  if (first.memory_peak_bytes > 0) columns.insert(columns.end(), {"memory_bytes", "memory_peak_bytes"});
  if (first.computing_ms > 0) columns.push_back("slow_ranks");
  return columns;
}

namespace detail {

/// The text of a number in a CSV file; empty if it is not finite.
inline std::string csv_number(double x) { return std::isfinite(x) ? weft::detail::JsonWriter(9).value(x).text() : std::string(); }

/// The text of a record in a column; empty for validation_loss, and for a column that the record lacks.
inline std::string csv_value(const StepRecord& record, std::string_view column) {
  if (column == "step") return std::to_string(record.step);
  if (column == "skipped") return record.skipped ? "1" : "0";
  if (column == "memory_bytes") return std::to_string(record.memory_bytes);
  if (column == "memory_peak_bytes") return std::to_string(record.memory_peak_bytes);
  const std::pair<std::string_view, double> numbers[] = {{"loss", record.loss},
                                                         {"gradient_norm", record.gradient_norm},
                                                         {"learning_rate", record.learning_rate},
                                                         {"tokens_per_s", record.tokens_per_s},
                                                         {"ms", record.ms},
                                                         {"share_of_peak", record.share_of_peak},
                                                         {"computing_ms", record.computing_ms}};
  for (const auto& [name, value] : numbers)
    if (name == column) return csv_number(value);
  for (const StepRecord::Axis& axis : record.axes) {
    if (column == "waiting_ms." + axis.axis) return csv_number(axis.waiting_ms);
    if (column == "message_bytes." + axis.axis) return csv_number(axis.bytes);
  }
  std::string ranks;
  if (column == "slow_ranks")
    for (const StepRecord::Slow& one : record.slow)
      ranks += (ranks.empty() ? "" : " ") + std::to_string(one.rank) + ":" + csv_number(one.slower);
  return ranks;
}

/// A line of CSV: `value(column)` for each column.
template <class F>
std::string csv_line(const std::vector<std::string>& columns, const F& value) {
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i) line += (i == 0 ? "" : ",") + value(columns[i]);
  return line;
}

}  // namespace detail

/// The record as one line of CSV, without line end. `skipped` is 0 or 1, validation_loss is empty, and `slow_ranks` is a list as
/// "3:0.21 5:0.4", each rank with its `slower`. Numbers have 9 significant digits; a number that is not finite is empty.
inline std::string to_csv(const StepRecord& record, const std::vector<std::string>& columns) {
  return detail::csv_line(columns, [&](const std::string& column) { return detail::csv_value(record, column); });
}

/// Writes a text file. Throws UsageError if `path` is no regular file or cannot be opened, Error if the disk is full.
inline void write_text(const std::filesystem::path& path, const std::string& text) {
  weft::detail::write_output({}, path.string(), text);
}

/// A file of records, one line each: CSV if its name ends in .csv, else JSON. A CSV file has the columns of its first record,
/// also in a resumed run.
class MetricsFile {
 public:
  /// Records already in the file: removed, or kept for a resumed run.
  enum class Records { go, stay };
  /// Throws UsageError if `path` is no regular file or cannot be opened.
  explicit MetricsFile(const std::filesystem::path& path, Records earlier = Records::go)
      : csv_(path.extension() == ".csv"),
        out_({}, path.string(),
             earlier == Records::go ? weft::detail::OutputFile::Earlier::go : weft::detail::OutputFile::Earlier::stay) {
    if (csv_) read_columns(path);
  }

  /// Throws Error if the file cannot be written (for example, the disk is full).
  void write(const StepRecord& record) {
    if (csv_) begin(record);
    out_.write((csv_ ? to_csv(record, columns_) : to_json(record)) + '\n');
  }

  /// Writes the mean validation loss after `step` as a separate record: the members or columns step and validation_loss. JSON
  /// also has the object validation_losses, with the losses of `sets` by name, if there are any. Throws Error if the file cannot
  /// be written.
  void write_validation(std::uint64_t step, double loss, const std::vector<std::pair<std::string, double>>& sets = {}) {
    if (!csv_) {
      weft::detail::JsonWriter json(9);
      json.object().member("step", step).member("validation_loss", loss);
      if (!sets.empty()) {
        json.key("validation_losses").object();
        for (const auto& [name, of_set] : sets) json.member(name, of_set);
        json.end();
      }
      return out_.write(json.end().text() + '\n');
    }
    begin({});
    const auto value = [&](const std::string& column) {
      return column == "step" ? std::to_string(step) : column == "validation_loss" ? detail::csv_number(loss) : std::string();
    };
    out_.write(detail::csv_line(columns_, value) + '\n');
  }

 private:
  // Writes the line of columns before the first record.
  void begin(const StepRecord& first) {
    if (!columns_.empty()) return;
    columns_ = csv_columns(first);
    out_.write(detail::csv_line(columns_, [](const std::string& column) { return column; }) + '\n');
  }
  void read_columns(const std::filesystem::path& path) {
    std::ifstream in(path);
    std::string line, column;
    std::getline(in, line);
    for (std::istringstream all(line); std::getline(all, column, ',');) columns_.push_back(column);
  }

  bool csv_;
  weft::detail::OutputFile out_;
  std::vector<std::string> columns_;  // of CSV; empty before the first record
};

}  // namespace weft::trace
