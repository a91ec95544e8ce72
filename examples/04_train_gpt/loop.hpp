// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training loop, in the same order on every rank. Decisions (to skip, to stop) depend only on numbers that all ranks share.

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#if __has_include(<xxhash.h>) && __has_include(<nlohmann/json.hpp>) && __has_include(<weft/checkpoint/folder.hpp>)
#include <weft/checkpoint/folder.hpp>
#define TRAIN_GPT_CHECKPOINTS
#endif
#include <weft/comm/communicator.hpp>
#include <weft/comm/step_use.hpp>
#include <weft/core/error.hpp>
#include <weft/core/output_file.hpp>
#include <weft/mesh/world.hpp>
#include <weft/optim/learning_rate.hpp>
#include <weft/trace/metrics.hpp>

#include "data.hpp"
#include "options.hpp"
#include "report.hpp"
#include "sample.hpp"
#include "trained_model.hpp"

namespace train_gpt {

/// True if there is a checkpoint to resume from, as rank 0 sees it.
inline bool has_checkpoint([[maybe_unused]] const weft::World& world, [[maybe_unused]] const Options& o) {
#ifdef TRAIN_GPT_CHECKPOINTS
  std::vector<std::int32_t> there{world.rank() == 0 && weft::checkpoint::exists(o.checkpoint) ? 1 : 0};
  world.communicator().all_reduce(there, weft::Reduction::max);
  return there[0] != 0;
#else
  return false;
#endif
}

/// Makes the folders that are written later, so that an impossible one fails at the start. Only on rank 0.
inline void make_folders([[maybe_unused]] const Options& o) {
#ifdef TRAIN_GPT_CHECKPOINTS
  for (const std::string& folder : {o.checkpoint, o.export_folder, o.export_adapters}) {
    if (folder.empty()) continue;
    weft::checkpoint::detail::make_folders(weft::checkpoint::FileSystem::system(), folder);
    if (::access(folder.c_str(), W_OK | X_OK) != 0)
      throw weft::UsageError(o.program + ": cannot write to '" + folder + "': " + std::strerror(errno));
  }
#endif
}

/// Copies the tokenizer that the run used to --export, --tokenizer's, else --load's, with the files beside a tokenizer.json; and
/// the tokens that end a text, --load's. Only on rank 0.
inline void copy_tokenizer(const Options& o) {
  namespace fs = std::filesystem;
  if (o.export_folder.empty()) return;
  std::error_code error;
  const auto copy = [&](const fs::path& from, const char* name) {
    const fs::path to = fs::path(o.export_folder) / name;
    if (!fs::is_regular_file(from, error) || fs::equivalent(from, to, error)) return;
    weft::detail::require_output(o.program + ": --export", to.string());
    if (!fs::copy_file(from, to, fs::copy_options::overwrite_existing, error))
      throw weft::UsageError(o.program + ": --export " + o.export_folder + ": " + name + " cannot be copied: " + error.message());
  };
  const fs::path used = fs::absolute(o.tokenizer.empty() ? o.load : o.tokenizer, error);
  if (o.tokenizer.empty() && o.load.empty()) return;
  const bool folder = fs::is_directory(used, error);
  if (!folder && used.filename() != "tokenizer.json") return copy(used, "tokenizer.json");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "generation_config.json"})
    copy((folder ? used : used.parent_path()) / name, name);
  if (!o.load.empty()) copy(fs::path(o.load) / "generation_config.json", "generation_config.json");
}

/// The mean loss over all targets of the validation sets, and of each set; nothing if there is none, or after a stop request.
inline std::optional<Validation> validate(const weft::World& world, TrainedModel& model, const RankData& batches) {
  const auto averages = model.use_averages();
  double all = 0;
  std::size_t targets_of_all = 0;
  Validation result;
  for (const ValidationSet& set : batches.validation_sets()) {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < batches.validation_batches(set); ++i) {
      if (world.stop_requested()) return std::nullopt;
      const std::size_t targets = batches.validation_targets(set, i);
      sum += model.evaluate(batches.validation(set, i)) * double(targets);
      count += targets;
    }
    if (count == 0) continue;
    if (!set.name.empty()) result.sets.emplace_back(set.name, sum / double(count));
    all += sum;
    targets_of_all += count;
  }
  if (targets_of_all == 0) return std::nullopt;
  result.loss = all / double(targets_of_all);
  return result;
}

/// Trains and returns the program's exit code. Throws DivergedError after ten steps in a row without a finite gradient, and at
/// the end if the last loss is not finite. `done`: the number of steps of an earlier run that is resumed. `member`: of an elastic
/// run, or null.
inline int train(weft::World& world, const Options& o, TrainedModel& model, RankData& batches, Report& report, std::uint64_t done,
                 weft::elastic::Member* member) {
  using Clock = std::chrono::steady_clock;
  constexpr int most_skipped = 10;
  const auto interrupted = [&](std::uint64_t steps_done, bool saved) {
    if (!o.checkpoint.empty()) {
      if (!saved) model.save(steps_done, {});
      model.complete_save(true);
    }
    report.training_ended();
    report.curve();
    report.interrupted(steps_done);
    return weft::InterruptedError::code;
  };
  const weft::optim::WarmupCosine rate{.peak = o.learning_rate,
                                       .minimum = o.least_learning_rate(),
                                       .warmup = std::uint64_t(o.warmup_steps()),
                                       .steps = std::uint64_t(o.steps)};
  const double tokens = double(*o.global_batch) * double(o.sequence);
  std::optional<Validation> validation;
  std::optional<double> trained_loss;  // of the last step
  int in_a_row = 0;
  const auto diverged = [&](const std::string& what) {
    report.curve();
    report.training_ended();
    world.communicator().barrier();  // lets the reporting rank write its last line before another rank's error ends it
    throw weft::DivergedError("training diverged: " + what + "; try a smaller --learning-rate than " +
                              detail::text(o.learning_rate, "%g"));
  };
  for (std::uint64_t step = done; step < std::uint64_t(o.steps); ++step) {
    const auto started = Clock::now();
    weft::trace::StepRecord record{.step = step, .learning_rate = rate.at(step)};
    record.loss = model.train_step(batches.training());
    const Optimized applied = model.optimize(record.learning_rate);
    record.gradient_norm = applied.gradient_norm;
    record.skipped = applied.skipped;
    const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
    record.ms = 1e3 * seconds;
    record.tokens_per_s = tokens / seconds;
    const weft::comm::StepUse use = weft::comm::use_of(world.communicator());
    record.computing_ms = 1e3 * use.computing_s;
    for (const auto& axis : use.axes) record.axes.push_back({axis.axis, 1e3 * axis.waiting_s, axis.bytes});
    record.memory_bytes = world.device().arena().use().current;
    record.memory_peak_bytes = world.device().arena().use().peak;
    for (const weft::comm::Straggler& slow : applied.slow) record.slow.push_back({slow.rank, slow.slower});
    report.step(record);

    in_a_row = record.skipped ? in_a_row + 1 : 0;
    if (record.skipped) report.skipped(record, in_a_row, applied.nonfinite);
    if (in_a_row == most_skipped)
      diverged("no finite loss and gradient for " + std::to_string(most_skipped) + " steps in a row, the last is step " +
               std::to_string(step) + " with loss " + detail::text(record.loss, "%g") + " and gradient norm " +
               detail::text(record.gradient_norm, "%g"));
    trained_loss = record.loss;
    const bool at_end = step + 1 == std::uint64_t(o.steps), due = o.every > 0 && (step + 1) % std::uint64_t(o.every) == 0;
    const bool saves = !o.checkpoint.empty() && (at_end || due);
    const bool validates =
        at_end || (o.validate_every > 0 && (step + 1) % std::uint64_t(o.validate_every) == 0) || (saves && o.keep_best > 0);
    if (!o.checkpoint.empty()) model.complete_save(false);
    if (world.stop_requested()) return interrupted(step + 1, false);
    if (validates) {
      validation = validate(world, model, batches);
      if (world.stop_requested()) return interrupted(step + 1, false);
      if (validation) report.validation(step, *validation);
      report.curve();
    }
    if (saves) model.save(step + 1, validates && validation ? std::optional(validation->loss) : std::nullopt);
    if (member != nullptr) model.keep(*member, step + 1);  // last: ranks that join begin a new world here
  }
  if (done >= std::uint64_t(o.steps)) validation = validate(world, model, batches);  // no step was left
  if (!o.checkpoint.empty()) model.complete_save(true);
  if (!std::isfinite(trained_loss.value_or(0)) || (validation && !std::isfinite(validation->loss)))
    diverged("the last step has the loss " + detail::text(trained_loss.value_or(0), "%g") +
             (validation ? ", the validation " + detail::text(validation->loss, "%g") : std::string()));
  if (!o.export_folder.empty() || !o.export_adapters.empty()) {
    const auto averages = model.use_averages();
    model.export_folder();
    if (world.rank() == 0) copy_tokenizer(o);
  }
  report.training_ended();
  if (done < std::uint64_t(o.steps)) model.write_timeline(o.output, world.rank() == 0);
  bool stopped = false;
  if (o.sample > 0) {
    const auto averages = model.use_averages();
    report.sample(sample(
        prompt_of(o), std::size_t(o.sample), std::size_t(o.sequence), std::uint64_t(o.seed),
        [&](const auto& tokens) { return model.next_logits(tokens); }, [&] { return stopped = world.stop_requested(); }));
  }
  if (stopped) return interrupted(std::uint64_t(o.steps), true);
  report.end(validation);
  return 0;
}

}  // namespace train_gpt
