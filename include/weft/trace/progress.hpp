// SPDX-License-Identifier: Apache-2.0
#pragma once
// A progress display of a run: a bar that is redrawn in place on a terminal, or an occasional plain line in a file.
//
//   trace::Progress progress({.steps = 500, .flops_per_token = 2e7, .peak_flops = 5e11});
//   progress.update(record);       // after each step
//   progress.note("validation loss 2.31");
//   progress.finish();

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

#include <weft/trace/metrics.hpp>
#include <weft/trace/table.hpp>

namespace weft::trace {

struct ProgressOptions {
  std::uint64_t steps = 1;       ///< in the whole run
  double flops_per_token = 0;    ///< forward and backward; 0: the share of the peak is not shown
  double peak_flops = 0;         ///< per second, of all ranks together; 0: the share of the peak is not shown
  bool terminal = false;         ///< redraw a bar in place
  std::size_t width = 100;       ///< columns of the terminal
  bool unicode = false;          ///< the output shows UTF-8
  double line_every_s = 10;      ///< seconds between two lines if the output is no terminal
  std::uint64_t first_step = 0;  ///< start of a resumed run
};

/// The options for standard output: terminal or not, width, and UTF-8 support.
ProgressOptions for_standard_output(ProgressOptions options = {});

/// The display of one rank on one stream.
class Progress {
  using Clock = std::chrono::steady_clock;

 public:
  explicit Progress(ProgressOptions options, std::ostream& out = std::cout)
      : options_(options), out_(&out), done_(options.first_step), started_(Clock::now()) {}

  /// Shows the display before the first step has ended.
  void start() {
    started_ = Clock::now();
    if (options_.terminal) draw(line("waiting for the first step"));
    else *out_ << "step 0/" << options_.steps << '\n' << std::flush;
  }

  /// Shows a finished step. Speeds are smoothed over about ten steps; the first step, which warms caches, is excluded.
  void update(const StepRecord& record);

  /// Prints a line above the bar.
  void note(const std::string& text);

  /// Keeps the bar and moves to the next line.
  void finish() {
    if (options_.terminal && !drawn_.empty()) *out_ << '\n' << std::flush;
    drawn_.clear();
  }

  /// The text after the step and the bar: "loss 2.314  21,300 tokens/s  71 % of peak  1:23 left".
  std::string facts(const StepRecord& record) const;

 private:
  std::string line(const std::string& facts) const;

  std::string bar(std::size_t width) const;

  void draw(const std::string& text) {
    drawn_ = text;
    *out_ << '\r' << text << "\033[K" << std::flush;
  }

  ProgressOptions options_;
  std::ostream* out_;
  std::uint64_t done_ = 0;
  double smoothed_tokens_ = 0, smoothed_ms_ = 0;
  Clock::time_point started_, shown_;
  std::string drawn_;
};

}  // namespace weft::trace

#ifndef WEFT_COMPILED
#include <weft/trace/progress_impl.hpp>
#endif
