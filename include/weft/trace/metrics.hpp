// SPDX-License-Identifier: Apache-2.0
#pragma once
// The measurements of a training run: one line of JSON per step, and one per validation. Each line is flushed at once, so a
// killed run keeps its records.
//
//   trace::MetricsFile metrics("runs/a/metrics.jsonl");
//   metrics.write({.step = 0, .loss = 5.5, .tokens_per_s = 21000});
//   metrics.write_validation(0, 5.4);   // {"step": 0, "validation_loss": 5.4}

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

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
};

/// `number` in JSON, with 9 significant digits; `null` if it is not finite.
inline std::string json_number(double number) {
  if (!std::isfinite(number)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", number);
  return text;
}

/// The record as one line of JSON, without line end: step, loss, gradient_norm, learning_rate, tokens_per_s, ms, and `"skipped":
/// true` if the step was skipped.
inline std::string to_json(const StepRecord& record) {
  return "{\"step\": " + std::to_string(record.step) + ", \"loss\": " + json_number(record.loss) +
         ", \"gradient_norm\": " + json_number(record.gradient_norm) +
         ", \"learning_rate\": " + json_number(record.learning_rate) + ", \"tokens_per_s\": " + json_number(record.tokens_per_s) +
         ", \"ms\": " + json_number(record.ms) + (record.skipped ? ", \"skipped\": true}" : "}");
}

/// Writes a text file. Throws UsageError if `path` is no regular file or cannot be opened, Error if the disk is full.
inline void write_text(const std::filesystem::path& path, const std::string& text) {
  weft::detail::write_output({}, path.string(), text);
}

/// A file of records, one line each.
class MetricsFile {
 public:
  /// Records already in the file: removed, or kept for a resumed run.
  enum class Records { go, stay };
  /// Throws UsageError if `path` is no regular file or cannot be opened.
  explicit MetricsFile(const std::filesystem::path& path, Records earlier = Records::go)
      : out_({}, path.string(),
             earlier == Records::go ? weft::detail::OutputFile::Earlier::go : weft::detail::OutputFile::Earlier::stay) {}

  /// Throws Error if the file cannot be written (for example, the disk is full).
  void write(const StepRecord& record) { out_.write(to_json(record) + '\n'); }

  /// Writes the mean validation loss after `step` as a separate record with the keys step and validation_loss. Throws Error if
  /// the file cannot be written.
  void write_validation(std::uint64_t step, double loss) {
    out_.write("{\"step\": " + std::to_string(step) + ", \"validation_loss\": " + json_number(loss) + "}\n");
  }

 private:
  weft::detail::OutputFile out_;
};

}  // namespace weft::trace
