// SPDX-License-Identifier: Apache-2.0
#pragma once
// The progress of a run: a bar on standard error, if that is a terminal, which is redrawn in place; and, if wanted, an occasional
// plain line on standard output. Without a terminal a program's lines on standard output are unchanged.
//
//   trace::Progress progress(trace::for_terminal(world.communicator(), {.steps = 500}));   // draws on rank 0 only
//   progress.step(step, loss, tokens);                  // step 120/500  [=====....]  loss 3.2100  1,204 tokens/s  3:20 left
//   progress.print("validation loss %.2f", 2.31);       // a line above the bar, on standard output

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <ostream>
#include <string>
#include <string_view>

#include <weft/comm/communicator.hpp>
#include <weft/trace/metrics.hpp>
#include <weft/trace/table.hpp>

namespace weft::trace {

/// Options of Progress.
struct ProgressOptions {
  std::uint64_t steps = 1;           ///< in the whole run
  double flops_per_token = 0;        ///< forward and backward; 0: the share of the peak is not shown
  double peak_flops = 0;             ///< per second, of all ranks together; 0: the share of the peak is not shown
  std::string_view unit = "tokens";  ///< of the speed
  bool bar = false;                  ///< redraw a bar in place
  bool lines = false;                ///< print a plain line at the start, after the first and the last step, and between them
  double line_every_s = 10;          ///< seconds between two of these lines
  bool notes = true;                 ///< print the program's lines
  std::size_t width = 100;           ///< columns of the terminal
  bool unicode = false;              ///< the terminal shows UTF-8
  std::uint64_t first_step = 0;      ///< start of a resumed run
};

/// The options for standard error: bar or not, width, and UTF-8 support. Lines are printed only if no bar is drawn beside them,
/// on the terminal of standard output.
ProgressOptions for_terminal(ProgressOptions options = {});

/// The same for rank 0; nothing is drawn or printed on other ranks, and nothing is drawn in a rehearsal.
ProgressOptions for_terminal(const Communicator& ranks, ProgressOptions options);

/// The display of one rank: lines on `out`, the bar on `terminal`.
class Progress {
  using Clock = std::chrono::steady_clock;

 public:
  explicit Progress(ProgressOptions options, std::ostream& out = std::cout, std::ostream& terminal = std::cerr)
      : options_(options), out_(&out), terminal_(&terminal), done_(options.first_step), started_(Clock::now()), last_(started_) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }  // an error's message begins on its own line

  /// Shows the display before the first step has ended.
  void start() {
    started_ = last_ = Clock::now();
    if (options_.bar) draw(line("waiting for the first step", options_.width));
    if (options_.lines) *out_ << "step 0/" << options_.steps << '\n' << std::flush;
  }

  /// Shows a finished step. Speeds are smoothed over about ten steps; the first step, which warms caches, is excluded.
  void update(const StepRecord& record);

  /// Shows a finished step, whose time began with the end of the step before or with the last printed line. `amount`: the tokens
  /// (or images) of the step, over all ranks.
  void step(std::uint64_t step, double loss, double amount);

  /// Prints a line above the bar.
  void note(const std::string& text);

  /// Prints a line above the bar, in the format of printf.
  template <class... Values>
  void print(const char* format, const Values&... values) {
    if (!options_.notes) return;
    std::string text(std::size_t(std::max(0, std::snprintf(nullptr, 0, format, values...))), '\0');
    std::snprintf(text.data(), text.size() + 1, format, values...);
    note(text);
  }

  /// Keeps the bar and moves to the next line.
  void finish() {
    if (!drawn_.empty()) *terminal_ << '\n' << std::flush;
    drawn_.clear();
  }

  /// The text after the step and the bar: "loss 2.314  21,300 tokens/s  71 % of peak  1:23 left".
  std::string facts(const StepRecord& record) const;

 private:
  /// The step and the facts, with the bar between them if `width` columns have room for it; 0: without the bar.
  std::string line(const std::string& facts, std::size_t width) const;

  std::string bar(std::size_t width) const;

  void draw(const std::string& text) {
    drawn_ = text;
    *terminal_ << '\r' << text << "\033[K" << std::flush;
  }

  ProgressOptions options_;
  std::ostream *out_, *terminal_;
  std::uint64_t done_ = 0;
  double smoothed_tokens_ = 0, smoothed_ms_ = 0;
  Clock::time_point started_, last_, drawn_at_, printed_at_;
  std::string drawn_;
};

}  // namespace weft::trace

#ifndef WEFT_COMPILED
#include <weft/trace/progress_impl.hpp>
#endif
