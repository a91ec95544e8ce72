// SPDX-License-Identifier: Apache-2.0
#pragma once
// The output of rank 0: tables and a bar for people, or a line of JSON per event, and the files of the output folder. On other
// ranks a Report does nothing.

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/core/error.hpp>
#include <weft/mesh/layout.hpp>
#include <weft/mesh/stage_layers.hpp>
#include <weft/parallel/nonfinite_trace.hpp>
#include <weft/trace/loss_curve.hpp>
#include <weft/trace/metrics.hpp>
#include <weft/trace/progress.hpp>
#include <weft/trace/table.hpp>
#include <weft/trace/tensorboard.hpp>

#include "../output_folder.hpp"
#include "data.hpp"
#include "options.hpp"
#include "sample.hpp"
#include "setup.hpp"

namespace train_gpt {

/// Facts about a run before its first step.
struct Facts {
  weft::mesh_layout::ResolvedLayout layout;
  std::string backend;
  std::size_t parameters = 0;
  double flops_per_token = 0;
  double peak_flops = 0;            ///< per second, of all ranks together; 0: not measured
  bool continues = false;           ///< the steps before are those of an elastic run's earlier ranks, not of a checkpoint
  nlohmann::ordered_json hardware;  ///< of hardware_of
};

/// The mean loss of a validation, and that of each set with its name, if there are sets.
struct Validation {
  double loss = 0;
  std::vector<std::pair<std::string, double>> sets = {};
};

namespace detail {

inline std::string text(double number, const char* format) {
  if (std::isnan(number)) return "nan";  // independent of its sign
  char out[48];
  std::snprintf(out, sizeof out, format, number);
  return out;
}

inline std::string counted(std::size_t count, const std::string& one) {
  return weft::trace::grouped(double(count)) + " " + one + (count == 1 ? "" : one == "micro-batch" ? "es" : "s");
}

}  // namespace detail

class Report {
 public:
  Report(bool speaks, Options options) : speaks_(speaks), options_(std::move(options)) {}

  /// Makes the folder of the run; throws UsageError if it cannot be written. Called last, when nothing else can be refused.
  /// `done`: number of steps of an earlier run, whose records stay.
  void open(std::uint64_t done) {
    if (!speaks_) return;
    done_ = done;
    folder_ = options_.output;
    output_folder::make("train_gpt", folder_);
    if (options_.csv) csv_.emplace(folder_ / "metrics.csv");
    if (options_.tensorboard) board_.emplace(folder_, done);
    if (done > 0) remember(done);
    else metrics_.emplace(folder_ / "metrics.jsonl");
  }

  void start(const Facts& facts, const Data& data) {
    if (!speaks_) return;
    const nlohmann::ordered_json layout = layout_json(facts);
    weft::trace::write_text(folder_ / "layout.json",
                            layout.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    if (facts.peak_flops > 0) peak_share_ = facts.flops_per_token / facts.peak_flops;
    if (options_.json) {
      nlohmann::ordered_json event = {{"event", "layout"}};
      event.update(layout);
      emit(event);
    }
    if (!talks()) return;
    std::cout << options_.model << ", " << detail::counted(std::size_t(options_.layers), "layer") << ", width " << options_.width
              << ", " << weft::trace::grouped(double(facts.parameters)) << " parameters, " << options_.precision << ", on "
              << detail::counted(facts.layout.world, "rank") << " (" << facts.backend << ")";
    if (facts.peak_flops > 0)
      std::cout << ", " << detail::text(facts.peak_flops / 1e9, "%.0f") << " GFLOP/s measured in matrix products";
    std::cout << '\n'
              << detail::counted(data.files(), "file") << ", "
              << detail::counted(data.training_size(), options_.of_tokens() ? "token" : "byte") << " for training, "
              << weft::trace::grouped(double(data.validation_size())) << " for validation\n";
    for (const std::string& type : data.token_types()) std::cout << "tokens are read as " << type << '\n';
    std::cout << '\n' << layout_table(facts) << '\n';
    if (done_ > 0)
      std::cout << "goes on after step " << done_
                << (facts.continues ? " of the ranks' copies" : " of the checkpoint in " + options_.checkpoint) << '\n';
    progress_ = std::make_unique<weft::trace::Progress>(weft::trace::for_terminal({.steps = std::uint64_t(options_.steps),
                                                                                   .flops_per_token = facts.flops_per_token,
                                                                                   .peak_flops = facts.peak_flops,
                                                                                   .lines = true,
                                                                                   .first_step = done_}));
    progress_->start();
    require_written();
  }

  void step(weft::trace::StepRecord record) {
    if (!speaks_) return;
    record.share_of_peak = record.tokens_per_s * peak_share_;
    metrics_->write(record);
    if (csv_) csv_->write(record);
    if (board_) board_->write(record);
    curve_.training.push_back({double(record.step), record.loss});
    if (options_.json) std::cout << "{\"event\": \"step\", " << weft::trace::to_json(record).substr(1) << std::endl;
    if (progress_) progress_->update(record);
    require_written();
  }

  /// Reports a step that every rank skipped, on standard error for every format.
  void skipped(const weft::trace::StepRecord& record, int in_a_row, const std::vector<weft::NonfiniteGradient>& nonfinite) {
    if (!speaks_) return;
    const std::string line = "step " + std::to_string(record.step) + ": loss(" + detail::text(record.loss, "%g") +
                             ") or gradient norm(" + detail::text(record.gradient_norm, "%g") +
                             ") is not finite: every rank skips it, " + std::to_string(in_a_row) + " in a row" + where(nonfinite);
    if (progress_) progress_->note(line);
    else std::cerr << "weft: " << line << std::endl;
  }

  void validation(std::uint64_t step, const Validation& of) {
    if (!speaks_) return;
    metrics_->write_validation(step, of.loss, of.sets);
    if (csv_) csv_->write_validation(step, of.loss);
    if (board_) {
      board_->write(step, {{"validation/loss", of.loss}});
      for (const auto& [name, loss] : of.sets) board_->write(step, {{"validation/loss of " + name, loss}});
    }
    curve_.validation.push_back({double(step), of.loss});
    if (options_.json) emit(with_sets({{"event", "validation"}, {"step", step}, {"loss", of.loss}}, of));
    if (progress_) {
      const std::string begin = "step " + std::to_string(step + 1) + "  validation loss ";
      for (const auto& [name, loss] : of.sets) progress_->note(begin + "of " + name + " " + detail::text(loss, "%.4f"));
      progress_->note(begin + detail::text(of.loss, "%.4f"));
    }
    require_written();
  }

  /// Writes the loss curve so far.
  void curve() {
    if (!speaks_) return;
    weft::trace::write_text(folder_ / "loss.svg",
                            curve_.svg(options_.model + ", " + detail::counted(std::size_t(options_.layers), "layer") +
                                       ", width " + std::to_string(options_.width) + ", " + options_.precision));
  }

  void training_ended() {
    if (progress_) progress_->finish();
    progress_.reset();
  }

  void sample(const std::vector<std::int32_t>& tokens) {
    if (!speaks_) return;
    const std::string text = text_of(tokens, options_);
    weft::trace::write_text(folder_ / "sample.txt", text);
    if (options_.json) emit({{"event", "sample"}, {"text", printable(text)}});
    if (talks()) std::cout << "\nA sample:\n\n" << printable(text) << "\n\n";
    require_written();
  }

  void interrupted(std::uint64_t steps_done) {
    if (!speaks_) return;
    if (options_.json) emit({{"event", "interrupted"}, {"steps", steps_done}});
    else
      std::cerr << "interrupted after step " << steps_done << " of " << options_.steps << "; its results are in "
                << folder_.string() << std::endl;
  }

  /// Prints the last lines.
  void end(const std::optional<Validation>& validation) {
    if (!speaks_) return;
    if (talks())
      std::cout << "in " << folder_.string() << ": metrics.jsonl, loss.svg, layout.json"
                << (options_.sample > 0 ? ", sample.txt" : "") << '\n';
    if (options_.json) {
      emit(with_sets({{"event", "end"}, {"validation_loss", validation ? nlohmann::ordered_json(validation->loss) : nullptr}},
                     validation.value_or(Validation())));
    } else if (validation) {
      for (const auto& [name, loss] : validation->sets)
        std::cout << "validation loss of " << name << ' ' << detail::text(loss, "%.6f") << '\n';
      std::cout << "validation loss " << detail::text(validation->loss, "%.6f") << std::endl;
    } else {
      std::cout << "no validation loss: --validation-fraction is 0" << std::endl;
    }
    require_written();
  }

 private:
  // Keeps the records of the steps before `done` in the file, and their points in the curve.
  void remember(std::uint64_t done) {
    const std::filesystem::path file = folder_ / "metrics.jsonl";
    output_folder::keep_records_before(done, file, [this](const nlohmann::json& record) {
      output_folder::add_point(curve_.training, record, "loss");
      output_folder::add_point(curve_.validation, record, "validation_loss");
      if (csv_) write_csv(record);
    });
    metrics_.emplace(file, weft::trace::MetricsFile::Records::stay);
  }

  // A record of metrics.jsonl, again for metrics.csv.
  void write_csv(const nlohmann::json& record) {
    const auto number = [&](const char* name) {
      return record.contains(name) && record[name].is_number() ? double(record[name]) : std::nan("");
    };
    if (record.contains("validation_loss")) return csv_->write_validation(record["step"], number("validation_loss"));
    const auto measured = [](const nlohmann::json& of, const std::string& name) {
      return of.contains(name) && of[name].is_number() ? double(of[name]) : 0;
    };
    weft::trace::StepRecord step{.step = record["step"],
                                 .loss = number("loss"),
                                 .gradient_norm = number("gradient_norm"),
                                 .learning_rate = number("learning_rate"),
                                 .tokens_per_s = number("tokens_per_s"),
                                 .ms = number("ms"),
                                 .skipped = record.contains("skipped"),
                                 .share_of_peak = measured(record, "share_of_peak"),
                                 .computing_ms = measured(record, "computing_ms"),
                                 .memory_bytes = std::size_t(measured(record, "memory_bytes")),
                                 .memory_peak_bytes = std::size_t(measured(record, "memory_peak_bytes"))};
    const nlohmann::json none = nlohmann::json::object(), waits = record.value("waiting_ms", none),
                         bytes = record.value("message_bytes", none);
    for (const auto& [axis, ms] : waits.items()) step.axes.push_back({axis, measured(waits, axis), measured(bytes, axis)});
    for (const nlohmann::json& slow : record.value("slow_ranks", nlohmann::json::array()))
      step.slow.push_back({int(measured(slow, "rank")), measured(slow, "slower")});
    csv_->write(step);
  }

  bool talks() const { return speaks_ && !options_.json && !options_.quiet; }

  // An event with the losses of the sets, if there are sets.
  static nlohmann::ordered_json with_sets(nlohmann::ordered_json event, const Validation& of) {
    for (const auto& [name, loss] : of.sets) event["sets"][name] = loss;
    return event;
  }

  static void emit(const nlohmann::ordered_json& event) {
    std::cout << event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << std::endl;
    require_written();
  }

  /// Throws Error if a write to standard output failed: training for hours into a full disk or a closed pipe is useless.
  static void require_written() {
    if (!std::cout) throw weft::Error(std::string("standard output was not written: ") + std::strerror(errno != 0 ? errno : EIO));
  }

  nlohmann::ordered_json layout_json(const Facts& facts) const {
    const Options& o = options_;
    return {{"model", o.model},
            {"layers", o.layers},
            {"width", o.width},
            {"heads", o.heads},
            {"kv_heads", *o.kv_heads},
            {"experts", o.model == "mixtral" ? o.experts : 0},
            {"top_k", o.model == "mixtral" ? o.top_k : 0},
            {"vocabulary", o.vocabulary_size()},
            {"sequence", o.sequence},
            {"parameters", facts.parameters},
            {"precision", o.precision},
            {"recompute", o.recompute},
            {"activations", o.activations},
            {"seed", o.seed},
            {"backend", facts.backend},
            {"world", facts.layout.world},
            {"dp", facts.layout.dp},
            {"cp", o.cp},
            {"context", o.context},
            {"ep", o.ep},
            {"etp", *o.etp},
            {"edp", facts.layout.edp},
            {"tp", o.tp},
            {"pp", o.pp},
            {"schedule", o.schedule},
            {"vpp", o.chunks},
            {"zero", o.zero},
            {"replicate", o.replicate},
            {"offload", o.offload},
            {"sequence_parallel", o.sequence_parallel},
            {"piece_bytes", o.piece_bytes},
            {"loss_chunks", o.loss_chunks},
            {"reproducible", o.reproducible},
            {"batch_invariant", o.batch_invariant},
            {"trace_nonfinite", o.trace_nonfinite},
            {"recheck", o.recheck},
            {"global_batch", *o.global_batch},
            {"micro_batch", *o.micro_batch},
            {"micro_batches", facts.layout.micro_batches},
            {"stage_layers", facts.layout.stage_layers},
            {"flops_per_token", facts.flops_per_token},
            {"peak_flops", facts.peak_flops},
            {"hardware", facts.hardware}};
  }

  // The first gradient of each rank that was not finite before any sum, and the number of others.
  static std::string where(const std::vector<weft::NonfiniteGradient>& nonfinite) {
    std::string text;
    for (std::size_t i = 0; i < nonfinite.size();) {
      const weft::NonfiniteGradient& first = nonfinite[i];
      std::size_t more = 0;
      while (++i < nonfinite.size() && nonfinite[i].rank == first.rank) ++more;
      text += (text.empty() ? "; first on rank " : ", on rank ") + std::to_string(first.rank) + " in the gradient of " +
              first.parameter + ", micro-batch " + std::to_string(first.micro_batch) +
              (more == 0 ? "" : " (and of " + std::to_string(more) + " more)");
    }
    return text;
  }

  std::string layout_table(const Facts& facts) const {
    const Options& o = options_;
    const auto share = std::size_t(*o.global_batch) / facts.layout.dp;
    weft::trace::Table table({"axis", "degree", "it divides"});
    table.row({"dp", std::to_string(facts.layout.dp),
               "the " + detail::counted(std::size_t(*o.global_batch), "sequence") + " of a step: " + std::to_string(share) +
                   " a rank, in " + detail::counted(facts.layout.micro_batches, "micro-batch") + " of " +
                   std::to_string(*o.micro_batch) +
                   (o.zero == 0   ? ""
                    : o.zero == 1 ? "; optimizer state"
                    : o.zero == 2 ? "; optimizer state and gradients"
                                  : "; optimizer state, gradients and parameters") +
                   (o.replicate > 1 ? ", in " + std::to_string(o.replicate) + " copies" : "")});
    if (o.cp > 1)
      table.row({"cp", std::to_string(o.cp),
                 detail::counted(std::size_t(o.sequence), "token") + " of each sequence: " + std::to_string(o.sequence / o.cp) +
                     " a rank, " + (o.context == "ring" ? "keys and values in a ring" : "Ulysses")});
    table.row({"tp", std::to_string(o.tp),
               detail::counted(std::size_t(o.heads), "head") +
                   ", hidden units and vocabulary: " + std::to_string(o.heads / o.tp) + " of the heads a rank" +
                   (o.sequence_parallel ? ", and the tokens between blocks" : "")});
    table.row({"pp", std::to_string(o.pp),
               detail::counted(std::size_t(o.layers), "layer") +
                   (o.pp > 1 ? ": " + weft::mesh_layout::counts_text(facts.layout.stage_layers) + " in the stages" : "") +
                   (o.pp > 1 ? ", schedule " + o.schedule : "") +
                   (o.chunks > 1 ? ", " + std::to_string(o.chunks) + " stages a rank" : "")});
    if (o.model == "mixtral") {
      table.row({"ep", std::to_string(o.ep),
                 detail::counted(std::size_t(o.experts), "expert") + " of a layer: " + std::to_string(o.experts / o.ep) +
                     " a rank, " + std::to_string(o.top_k) + " for each token"});
      if (*o.etp > 1) table.row({"etp", std::to_string(*o.etp), "the hidden units of an expert"});
      table.row({"edp", std::to_string(facts.layout.edp), "copies of an expert"});
    }
    return table.text();
  }

  bool speaks_;
  Options options_;
  std::filesystem::path folder_;
  std::optional<weft::trace::MetricsFile> metrics_, csv_;
  std::optional<weft::trace::TensorBoard> board_;
  std::unique_ptr<weft::trace::Progress> progress_;
  weft::trace::LossCurve curve_;
  std::uint64_t done_ = 0;  // number of steps of an earlier run
  double peak_share_ = 0;   // of a token per second
};

}  // namespace train_gpt
