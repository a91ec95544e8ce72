// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bar and its lines. Definitions for trace/progress.hpp.

#include <weft/core/inline.hpp>
#include <weft/trace/progress.hpp>

namespace weft::trace {

WEFT_INLINE ProgressOptions for_terminal(ProgressOptions options) {
  options.bar = ::isatty(STDERR_FILENO) != 0;
  options.lines = options.lines && !(options.bar && ::isatty(STDOUT_FILENO) != 0);
  winsize size{};
  if (options.bar && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) options.width = size.ws_col;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      const std::string text = value;
      options.unicode = text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
      break;
    }
  return options;
}

WEFT_INLINE ProgressOptions for_terminal(const Communicator& ranks, ProgressOptions options) {
  options = for_terminal(options);
  options.notes = ranks.rank() == 0;
  options.bar = options.bar && options.notes && !ranks.rehearsed();
  options.lines = options.lines && options.notes;
  return options;
}

WEFT_INLINE void Progress::update(const StepRecord& record) {
  const bool first = done_ == options_.first_step;
  done_ = record.step + 1;
  if (first || smoothed_tokens_ == 0) smoothed_tokens_ = record.tokens_per_s, smoothed_ms_ = record.ms;
  else if (done_ == options_.first_step + 2) smoothed_tokens_ = record.tokens_per_s, smoothed_ms_ = record.ms;
  else smoothed_tokens_ += 0.1 * (record.tokens_per_s - smoothed_tokens_), smoothed_ms_ += 0.1 * (record.ms - smoothed_ms_);
  const auto now = Clock::now();
  const auto due = [&](Clock::time_point& shown, double pause_s) {
    if (!first && done_ < options_.steps && std::chrono::duration<double>(now - shown).count() < pause_s) return false;
    shown = now;
    return true;
  };
  if (options_.bar && due(drawn_at_, 0.1)) draw(line(facts(record), options_.width));
  if (options_.lines && due(printed_at_, options_.line_every_s)) *out_ << line(facts(record), 0) << '\n' << std::flush;
}

WEFT_INLINE void Progress::step(std::uint64_t step, double loss, double amount) {
  const auto now = Clock::now();
  const double seconds = std::max(1e-9, std::chrono::duration<double>(now - last_).count());
  last_ = now;
  update({.step = step, .loss = loss, .tokens_per_s = amount / seconds, .ms = 1e3 * seconds});
}

WEFT_INLINE void Progress::note(const std::string& text) {
  if (!options_.notes) return;
  if (!drawn_.empty()) *terminal_ << "\r\033[K" << std::flush;
  *out_ << text << '\n' << std::flush;
  if (!drawn_.empty()) *terminal_ << drawn_ << std::flush;
  last_ = Clock::now();
}

WEFT_INLINE std::string Progress::facts(const StepRecord& record) const {
  char loss[32];
  std::snprintf(loss, sizeof loss, "loss %.4f", record.loss);
  std::string text = std::string(loss) + "  " + grouped(smoothed_tokens_) + " " + std::string(options_.unit) + "/s";
  if (options_.peak_flops > 0 && options_.flops_per_token > 0) {
    char share[32];
    std::snprintf(share, sizeof share, "  %.0f %% of peak",
                  100 * smoothed_tokens_ * options_.flops_per_token / options_.peak_flops);
    text += share;
  }
  if (done_ >= options_.steps) text += "  " + duration(std::chrono::duration<double>(Clock::now() - started_).count());
  else text += "  " + duration(static_cast<double>(options_.steps - done_) * smoothed_ms_ / 1000) + " left";
  return record.skipped ? text + "  (skipped)" : text;
}

WEFT_INLINE std::string Progress::line(const std::string& facts, std::size_t width) const {
  const std::string total = std::to_string(options_.steps), done = std::to_string(done_);
  std::string text = "step " + std::string(total.size() > done.size() ? total.size() - done.size() : 0, ' ') + done + "/" + total;
  const std::size_t used = text.size() + facts.size() + 6;  // the bar has one of two widths, so its length is stable
  if (width > used + 24) text += "  " + bar(24);
  else if (width > used + 10) text += "  " + bar(10);
  return text + "  " + facts;
}

WEFT_INLINE std::string Progress::bar(std::size_t width) const {
  const double part = options_.steps == 0 ? 1 : std::min(1.0, static_cast<double>(done_) / static_cast<double>(options_.steps));
  const auto full = static_cast<std::size_t>(part * static_cast<double>(width));
  std::string text;
  if (!options_.unicode) return "[" + std::string(full, '=') + std::string(width - full, '.') + "]";
  for (std::size_t i = 0; i < width; ++i) text += i < full ? "\u2501" : "\u2500";
  return "\u2595" + text + "\u258F";
}

}  // namespace weft::trace
