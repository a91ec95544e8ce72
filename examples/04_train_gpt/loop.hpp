// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training loop: what every rank does, in the same order. A decision (to skip, to stop) is taken from numbers that all
// ranks share.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/mesh/world.hpp>
#include <weft/optim/learning_rate.hpp>
#include <weft/trace/metrics.hpp>

#include "data.hpp"
#include "options.hpp"
#include "report.hpp"
#include "sample.hpp"
#include "trained_model.hpp"

namespace train_gpt {

/// True on every rank as soon as one was asked to stop.
inline bool asked_to_stop(const weft::World& world) {
  std::vector<std::int32_t> flag{world.interrupted() ? 1 : 0};
  world.communicator().all_reduce(flag, weft::Reduction::max);
  return flag[0] != 0;
}

/// Mean loss over the validation part; nothing if there is none.
inline std::optional<double> validate(TrainedModel& model, const RankData& batches) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < batches.validation_batches(); ++i) {
    const std::size_t targets = batches.validation_targets(i);
    sum += model.evaluate(batches.validation(i)) * double(targets);
    count += targets;
  }
  return count == 0 ? std::nullopt : std::optional(sum / double(count));
}

/// Trains; the program's exit code. Throws DivergedError after ten steps in a row without a finite gradient.
inline int train(weft::World& world, const Options& o, TrainedModel& model, RankData& batches, Report& report) {
  using Clock = std::chrono::steady_clock;
  constexpr int most_skipped = 10;
  constexpr int interrupted_exit_code = 130;  // what shells give for Ctrl-C
  const weft::optim::WarmupCosine rate{.peak = o.learning_rate,
                                       .minimum = o.least_learning_rate(),
                                       .warmup = std::uint64_t(o.warmup_steps()),
                                       .steps = std::uint64_t(o.steps)};
  const double tokens = double(*o.global_batch) * double(o.sequence);
  std::optional<double> loss;
  int in_a_row = 0;
  for (std::uint64_t step = 0; step < std::uint64_t(o.steps); ++step) {
    const auto started = Clock::now();
    weft::trace::StepRecord record{.step = step, .learning_rate = rate.at(step)};
    record.loss = model.train_step(batches.training());
    const Optimized done = model.optimize(record.learning_rate);
    record.gradient_norm = done.gradient_norm;
    record.skipped = done.skipped;
    const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
    record.ms = 1e3 * seconds;
    record.tokens_per_s = tokens / seconds;
    report.step(record);

    in_a_row = record.skipped ? in_a_row + 1 : 0;
    if (record.skipped) report.skipped(record, in_a_row);
    if (in_a_row == most_skipped) {
      report.curve();
      report.training_ended();
      world.communicator().barrier();  // the rank that reports has written its last line before another one's error ends it
      throw weft::DivergedError("training diverged: no finite loss and gradient for " + std::to_string(most_skipped) +
                                " steps in a row, the last is step " + std::to_string(step) + " with loss " +
                                detail::text(record.loss, "%g") + " and gradient norm " +
                                detail::text(record.gradient_norm, "%g") + "; try a smaller --learning-rate than " +
                                detail::text(o.learning_rate, "%g"));
    }
    if (asked_to_stop(world)) {
      report.training_ended();
      report.curve();
      report.interrupted(step + 1);
      return interrupted_exit_code;
    }
    const bool last = step + 1 == std::uint64_t(o.steps);
    if (last || (o.validate_every > 0 && (step + 1) % std::uint64_t(o.validate_every) == 0)) {
      loss = validate(model, batches);
      if (loss) report.validation(step, *loss);
      report.curve();
    }
  }
  report.training_ended();
  model.write_timeline(o.output, world.rank() == 0);
  if (o.sample > 0)
    report.sample(sample(
        prompt_of(o), std::size_t(o.sample), std::size_t(o.sequence), std::uint64_t(o.seed),
        [&](const auto& tokens) { return model.next_logits(tokens); }, [&] { return asked_to_stop(world); }));
  report.end(loss);
  return 0;
}

}  // namespace train_gpt
