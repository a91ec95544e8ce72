// SPDX-License-Identifier: Apache-2.0
#pragma once
// Samples that a simulation streams while a model trains on them: a reservoir keeps some of them by a rule, and each step draws a
// batch. A run is a function of its seed, its samples and its log: with the log, a run beside a live solver is repeated bit by
// bit, whatever the times at which the samples arrive then.
//
//   data::Reservoir<u, next> reservoir(shapes, {.rule = data::ReservoirRule::uniform, .capacity = 1000, .low = 100});
//   reservoir.add(id, [&](auto& sample) { std::ranges::copy(field, sample[u].begin()); });   // threads of the solver
//   while (reservoir.draw(batch, step, 64)) model.train_step(batch), optimizer.step(), ++step;
//
// Ranks that share samples (domain axes, tp, cp, pp) construct it with their mesh: the first of them decides which samples are
// kept and drawn, and the others follow its log.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/agree.hpp>
#include <weft/core/error.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/philox.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batches.hpp>
#include <weft/data/fields.hpp>
#include <weft/data/reservoir_log.hpp>
#include <weft/data/reservoir_slots.hpp>

namespace weft::data {

namespace detail {

/// The ranks of `mesh` that work on the samples of this rank's share, in the order of the mesh. Collective over the mesh.
template <class Mesh>
Communicator ranks_of_share(const Mesh& mesh) {
  const Share share = share_of(mesh);
  const Communicator& all = mesh.communicator();
  if (all.rehearsed() || share.size == std::size_t(all.size())) return {};  // a rehearsed rank meets no peers
  return all.split(int(share.rank), all.rank(), "share");
}
template <class Mesh>
ReservoirOptions options_of_share(const Mesh& mesh, ReservoirOptions options) {
  options.seed = key_of(options.seed, share_of(mesh).rank);
  return options;
}

}  // namespace detail

/// A reservoir of samples with these fields. Any number of threads may call its functions.
template <auto... fields>
class Reservoir {
 public:
  using Batch = FieldBatch<fields...>;
  using Shapes = typename Batch::Shapes;

  /// The reservoir of this rank by itself, which shares its samples with no other rank; each of several ranks gives another seed.
  /// `shapes` are those of a sample: shapes[u] = {32}. With `repeated`, the log of an earlier run with the same options, samples
  /// take effect in the log's order: earlier ones are held, and a draw waits for those before it in the log. After its last event
  /// the run is a live one. Throws UsageError for unsuitable options.
  explicit Reservoir(const Shapes& shapes, const ReservoirOptions& options, ReservoirLog repeated = {})
      : shapes_(shapes), options_(options), slots_(options), repeated_(std::move(repeated)) {
    samples_.resize(options.capacity, shapes);
    ids_.resize(options.capacity);
  }
  /// The reservoir of this rank's share of a mesh's samples. All ranks give the same seed; each share has other random numbers.
  /// Ranks that share samples add the same ids, in any order and at any time, each with its sample or its piece of it. They
  /// call draw, try_add and can_draw together, and draw the same ids: the first rank decides, and a draw of the others waits for
  /// the samples of the first rank's log. They hold samples that the first rank has not taken yet, without a limit. `repeated` is
  /// read on the first rank. Collective over the mesh. Throws UsageError if ranks that share samples have different options.
  template <class Mesh>
  requires requires { typename Mesh::axes_type; }
  Reservoir(const Mesh& mesh, const Shapes& shapes, const ReservoirOptions& options, ReservoirLog repeated = {})
      : Reservoir(shapes, detail::options_of_share(mesh, options)) {
    ranks_ = detail::ranks_of_share(mesh);
    constexpr std::string_view rules[] = {"uniform", "latest", "drawn_first", "draw_once"};
    const NamedValue values[] = {{"the reservoir's rule", rules[std::size_t(options.rule)]},
                                 {"the reservoir's capacity", options.capacity},
                                 {"the reservoir's low watermark", options.low},
                                 {"the reservoir's seed", options.seed}};
    agree(ranks_, values, "ranks that share samples have reservoirs with the same options");
    if (!follows()) repeated_ = std::move(repeated);
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
    if (!holds()) wait(lock, "an arriving sample", [&] { return closed_ || (early_.empty() && !slots_.is_full()); });
    take(id, std::move(one));
  }
  /// The same without waiting: false if the rule has no place for the sample. For a program of one thread. Collective over the
  /// ranks that share samples.
  template <class Fill>
  bool try_add(std::uint64_t id, Fill&& fill) {
    Batch one = filled(fill);
    bool taken = false, closed = false;
    if (!follows()) {
      const std::lock_guard lock(mutex_);
      closed = closed_;
      taken = closed || repeats() || (early_.empty() && !slots_.is_full());
      if (taken && !closed) take(id, std::move(one));
    }
    taken = of_first(taken);
    if (taken && (follows() || closed)) {  // of a closed reservoir, an error on all ranks
      const std::lock_guard lock(mutex_);
      take(id, std::move(one));
    }
    return taken;
  }
  /// No sample follows: draws no longer wait for the low watermark.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  /// Sets the batch to `count` different samples and its step to `step`. The choice is a function of the seed, the step and the
  /// samples that are there. Waits for the low watermark and for `count` samples; false if the reservoir is closed and has fewer.
  /// Collective over the ranks that share samples, which get the same ids. Throws UsageError for a count that the capacity does
  /// not allow and for another draw than the repeated log, or the first of these ranks, has; Error after
  /// ReservoirOptions::deadline_s or if the reservoir is closed without a sample of the log.
  bool draw(Batch& batch, std::uint64_t step, std::size_t count) {
    if (count == 0 || count > options_.capacity)
      throw_error<UsageError>({"reservoir: a draw of ", count, " samples from a capacity of ", options_.capacity});
    if (follows() && !follow_first()) return false;
    const bool drawn = draw_here(batch, step, count);
    if (leads()) send_log(drawn);
    return drawn;
  }
  /// Whether a draw of `count` samples would return a batch now; of the first of the ranks that share samples, over which it is
  /// collective. For a program of one thread.
  bool can_draw(std::size_t count) const {
    bool can = false;
    {
      const std::lock_guard lock(mutex_);
      can = repeats() ? next_event().drawn != 0 : slots_.has(count, closed_);
    }
    return of_first(can);
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
  bool leads() const { return ranks_.size() > 1 && ranks_.rank() == 0; }
  bool follows() const { return ranks_.rank() != 0; }
  // Whether arriving samples wait for their turn in a log.
  bool holds() const { return follows() || repeats(); }

  // ---- the ranks that share samples

  bool of_first(bool answer) const {
    std::uint64_t word[] = {answer};
    if (ranks_.size() > 1) ranks_.broadcast(word, 0);
    return word[0] != 0;
  }
  // The first rank's events since its last draw, for the others.
  void send_log(bool drawn) {
    std::vector<std::uint64_t> events;
    {
      const std::lock_guard lock(mutex_);
      for (; drawn && sent_ < log_.events.size(); ++sent_)
        events.insert(events.end(), {log_.events[sent_].number, log_.events[sent_].drawn});
    }
    std::uint64_t words[] = {events.size()};
    ranks_.broadcast(words, 0);
    if (drawn) ranks_.broadcast(events, 0);
  }
  // Takes those events, the last draw's among them; false if the first rank has drawn nothing.
  bool follow_first() {
    std::uint64_t words[] = {0};
    ranks_.broadcast(words, 0);
    if (words[0] == 0) return false;
    std::vector<std::uint64_t> events(words[0]);
    ranks_.broadcast(events, 0);
    const std::lock_guard lock(mutex_);
    repeated_.events.erase(repeated_.events.begin(), repeated_.events.begin() + std::ptrdiff_t(std::exchange(next_, 0)));
    for (std::size_t i = 0; i < events.size(); i += 2) repeated_.events.push_back({events[i], std::size_t(events[i + 1])});
    take_early();
    return true;
  }

  bool draw_here(Batch& batch, std::uint64_t step, std::size_t count) {
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
    batch.step = step;
    batch.choice = count;
    for (const std::size_t place : places_) batch.choice = weft::detail::hash_of(batch.choice, ids_[place]);
    (copy_drawn(fields, batch), ...);
    take_early();
    changed_.notify_all();
    return true;
  }

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
                        " have arrived, the low watermark is ", options_.low, repeats() ? "; " + missing() : std::string()});
  }
  std::string missing() const {
    const std::string_view source = follows() ? "the first of the ranks that share samples" : "the log";
    const std::uint64_t number = next_event().number;
    return weft::detail::joined({"sample ", number, ", which ", source, " has next, was not added"});
  }
  void require_next(std::uint64_t step, std::size_t count) const {
    const ReservoirLog::Event& event = next_event();
    if (event.drawn == 0) throw_error<Error>({"reservoir: it is closed, and ", missing()});
    if (event != ReservoirLog::Event{step, count})
      throw_error<UsageError>({"reservoir: a draw of ", count, " samples at step ", step, ", and the ",
                               follows() ? "first of the ranks that share samples" : "log", " has one of ", event.drawn,
                               " at step ", event.number});
  }

  [[noreturn]] static void refuse_log(const char* event) {
    throw_error<UsageError>({"reservoir: the repeated log has ", event, ": it is of a reservoir with other options"});
  }

  void take(std::uint64_t id, Batch one) {
    if (closed_) throw_error<UsageError>({"reservoir: sample ", id, " is added after close()"});
    if (holds()) {
      early_.emplace(id, std::move(one));
      take_early();
    } else {
      keep(id, one);
    }
    changed_.notify_all();
  }
  // The held samples whose turn it is; after the log, those for which there is a place, unless another rank's log goes on.
  void take_early() {
    while (!early_.empty()) {
      auto held = early_.begin();
      if (repeats()) {
        if (next_event().drawn != 0) return;
        held = early_.find(next_event().number);
        if (held == early_.end()) return;
        if (slots_.is_full()) refuse_log("a sample for which there is no place");
        ++next_;
      } else if (follows() || slots_.is_full()) {
        return;
      }
      keep(held->first, held->second);
      early_.erase(held);
    }
  }
  void keep(std::uint64_t id, const Batch& one) {
    log_.events.push_back({id, 0});
    const auto place = slots_.arrive();
    if (!place) return;
    ids_[*place] = id;
    (copy_sample(fields, one[fields].values(), *place), ...);
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
  std::vector<std::uint64_t> ids_;   // the same
  std::vector<std::size_t> places_;  // of the last draw
  ReservoirLog log_, repeated_;
  std::size_t next_ = 0;                       // in repeated_
  std::multimap<std::uint64_t, Batch> early_;  // samples that wait for their turn in the log, by id
  bool closed_ = false;
  Communicator ranks_;    // those that share samples; this rank by itself
  std::size_t sent_ = 0;  // events of log_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace weft::data
