// SPDX-License-Identifier: Apache-2.0
#pragma once
// Samples that a simulation streams while a model trains on them: a reservoir keeps some of them by a rule, and each step draws a
// batch. A run is a function of its seed, its samples and its log: with the log, a run beside a live solver is repeated bit by
// bit, whatever the times at which the samples arrive then.
//
//   data::Reservoir<u, next> reservoir(shapes, {.rule = data::ReservoirRule::uniform, .capacity = 1000, .low = 100});
//   reservoir.add(id, [&](auto& sample) { std::ranges::copy(field, sample[u].begin()); });   // threads of the solver
//   while (reservoir.draw(batch, step, 64)) model.train_step(batch), optimizer.step(), ++step;

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/data/fields.hpp>
#include <weft/data/reservoir_log.hpp>
#include <weft/data/reservoir_slots.hpp>

namespace weft::data {

/// A rank's reservoir of samples with these fields. Any number of threads may call its functions. Give each rank another seed:
/// key_of(seed, rank).
template <auto... fields>
class Reservoir {
 public:
  using Batch = FieldBatch<fields...>;
  using Shapes = typename Batch::Shapes;

  /// `shapes` are those of a sample: shapes[u] = {32}. With `repeated`, the log of an earlier run with the same options, samples
  /// take effect in the log's order: earlier ones are held, and a draw waits for those before it in the log. After its last event
  /// the run is a live one. Throws UsageError for unsuitable options.
  explicit Reservoir(const Shapes& shapes, const ReservoirOptions& options, ReservoirLog repeated = {})
      : shapes_(shapes), options_(options), slots_(options), repeated_(std::move(repeated)) {
    samples_.resize(options.capacity, shapes);
  }
  Reservoir(const Reservoir&) = delete;
  Reservoir& operator=(const Reservoir&) = delete;

  /// Adds a sample, which `fill(sample)` writes: sample[u] is a span of [shape...]. `id` names it in the log; a repeated run
  /// gives it the same one, for example key_of(simulation, time step). Waits while the rule has no place for it. Throws Error
  /// after ReservoirOptions::deadline_s, UsageError once the reservoir is closed.
  template <class Fill>
  void add(std::uint64_t id, Fill&& fill) {
    Batch one = filled(fill);
    std::unique_lock lock(mutex_);
    if (!repeats()) wait(lock, "an arriving sample", [&] { return closed_ || (early_.empty() && !slots_.is_full()); });
    take(id, std::move(one));
  }
  /// The same without waiting: false if the rule has no place for the sample. For a program of one thread.
  template <class Fill>
  bool try_add(std::uint64_t id, Fill&& fill) {
    Batch one = filled(fill);
    const std::lock_guard lock(mutex_);
    if (!repeats() && !closed_ && (!early_.empty() || slots_.is_full())) return false;
    take(id, std::move(one));
    return true;
  }
  /// No sample follows: draws no longer wait for the low watermark.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  /// Sets the batch to `count` different samples and its step to `step`. The choice is a function of the seed, the step and the
  /// samples that are there. Waits for the low watermark and for `count` samples; false if the reservoir is closed and has fewer.
  /// Throws UsageError for a count that the capacity does not allow and for another draw than the repeated log has, Error after
  /// ReservoirOptions::deadline_s or if the reservoir is closed without a sample of the log.
  bool draw(Batch& batch, std::uint64_t step, std::size_t count) {
    if (count == 0 || count > options_.capacity)
      throw_error<UsageError>({"reservoir: a draw of ", count, " samples from a capacity of ", options_.capacity});
    std::unique_lock lock(mutex_);
    if (repeats()) wait(lock, "a draw of the log", [&] { return closed_ || !repeats() || next_event().drawn != 0; });
    if (repeats()) {
      require_next(step, count);
      if (slots_.size() < count) refuse_log("a draw of more samples than are there");
      ++next_;
    } else {
      wait(lock, "a draw", [&] { return closed_ || slots_.has(count, false); });
      if (!slots_.has(count, closed_)) return false;
    }
    slots_.draw(step, count, places_);
    log_.events.push_back({step, count});
    batch.resize(count, shapes_);
    batch.samples = count;
    batch.step = step;
    (copy_drawn(fields, batch), ...);
    take_early();
    changed_.notify_all();
    return true;
  }
  /// Whether a draw of `count` samples would return a batch now. For a program of one thread.
  bool can_draw(std::size_t count) const {
    const std::lock_guard lock(mutex_);
    return repeats() ? next_event().drawn != 0 : slots_.has(count, closed_);
  }

  /// The samples that are there, and those that have arrived.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return slots_.size();
  }
  std::uint64_t arrived() const {
    const std::lock_guard lock(mutex_);
    return slots_.arrived();
  }
  /// The events so far, 16 bytes each.
  ReservoirLog log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  bool repeats() const { return next_ < repeated_.events.size(); }
  const ReservoirLog::Event& next_event() const { return repeated_.events[next_]; }

  template <class Fill>
  Batch filled(Fill& fill) const {
    Batch one;
    one.resize(1, shapes_);
    auto sample = one.sample(0);
    fill(sample);
    return one;
  }
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const char* waiting, const Condition& condition) {
    if (changed_.wait_for(lock, std::chrono::duration<double>(options_.deadline_s), condition)) return;
    throw_error<Error>({"reservoir: ", waiting, " has waited for ", std::to_string(options_.deadline_s), " s; ", slots_.size(),
                        " of ", options_.capacity, " samples are there, ", slots_.arrived(),
                        " have arrived, the low watermark is ", options_.low});
  }
  void require_next(std::uint64_t step, std::size_t count) const {
    const ReservoirLog::Event& event = next_event();
    if (event.drawn == 0)
      throw_error<Error>({"reservoir: it is closed, and sample ", event.number, ", which the log has next, was not added"});
    if (event != ReservoirLog::Event{step, count})
      throw_error<UsageError>({"reservoir: a draw of ", count, " samples at step ", step, ", and the log has one of ",
                               event.drawn, " at step ", event.number});
  }

  [[noreturn]] static void refuse_log(const char* event) {
    throw_error<UsageError>({"reservoir: the repeated log has ", event, ": it is of a reservoir with other options"});
  }

  void take(std::uint64_t id, Batch one) {
    if (closed_) throw_error<UsageError>({"reservoir: sample ", id, " is added after close()"});
    if (repeats()) {
      early_.emplace(id, std::move(one));
      take_early();
    } else {
      keep(id, one);
    }
    changed_.notify_all();
  }
  // The held samples whose turn it is; after the log, those for which there is a place.
  void take_early() {
    while (!early_.empty()) {
      auto held = early_.begin();
      if (repeats()) {
        if (next_event().drawn != 0) return;
        held = early_.find(next_event().number);
        if (held == early_.end()) return;
        if (slots_.is_full()) refuse_log("a sample for which there is no place");
        ++next_;
      } else if (slots_.is_full()) {
        return;
      }
      keep(held->first, held->second);
      early_.erase(held);
    }
  }
  void keep(std::uint64_t id, const Batch& one) {
    log_.events.push_back({id, 0});
    if (const auto place = slots_.arrive()) (copy_sample(fields, one[fields].values(), *place), ...);
  }
  void copy_sample(auto field, auto values, std::size_t place) {
    std::ranges::copy(values, samples_[field].writable().begin() + std::ptrdiff_t(place * values.size()));
  }
  void copy_drawn(auto field, Batch& batch) const {
    auto to = batch[field].writable().begin();
    for (const std::size_t place : places_) to = std::ranges::copy(samples_[field].sample(place), to).out;
  }

  Shapes shapes_;
  ReservoirOptions options_;
  detail::ReservoirSlots slots_;
  Batch samples_;                    // by place
  std::vector<std::size_t> places_;  // of the last draw
  ReservoirLog log_, repeated_;
  std::size_t next_ = 0;                       // in repeated_
  std::multimap<std::uint64_t, Batch> early_;  // samples that wait for their turn in the log, by id
  bool closed_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace weft::data
