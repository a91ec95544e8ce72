// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checkpoints that are written while training continues. A save copies this rank's part and returns; a thread writes it to the
// disk; a later poll, which all ranks call in the same step, completes it.
//
//   checkpoint::Saver saver("run", {.keep = 3});
//   if (step % 100 == 0) saver.save(model, optimizer, step);
//   saver.poll();                                               // in every step
//   saver.finish();                                             // before the run ends

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/checkpoint/pages.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/comm/in_function.hpp>

namespace weft::checkpoint {

/// All functions are collective over the model's ranks. They throw as checkpoint::save does, in the call that detects the
/// failure.
class Saver {
 public:
  explicit Saver(std::string folder, SaveOptions options = {}) : folder_(std::move(folder)), options_(std::move(options)) {}
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  /// Does not communicate, so a rank that throws can leave. An incomplete save stays invisible, and the next save removes its
  /// files.
  ~Saver() { join(); }

  /// Locks the folder for this object now instead of at the first save. If another program saves there, or a name in the folder
  /// collides, the error is thrown before training.
  template <class Model>
  void take_folder(Model& model) {
    if (detail::leaves_files_alone(model)) return;  // a rehearsal or proof
    const Communicator& ranks = model.communicator();
    detail::require_same_call(ranks, "Saver", folder_, 0);
    detail::together(ranks, [&] {
      if (ranks.rank() == 0) lock_ = detail::FolderLock::take(*options_.system, folder_);
    });
  }
  /// Copies the state and starts to write it. First completes a save that is still in progress. `validation_loss`: as in
  /// SaveOptions.
  template <class Model, StoredOptimizer Optimizer>
  void save(Model& model, Optimizer& optimizer, std::uint64_t step, std::optional<double> validation_loss = {}) {
    const comm::InFunction mark(model.communicator(), comm::ProgramFunction::saver);
    finish();
    options_.validation_loss = validation_loss;
    const auto started = std::chrono::steady_clock::now();
    detail::require_applied(model);
    if (detail::leaves_files_alone(model)) return;  // a rehearsal or proof
    begin(model.communicator(), detail::whole_state(model, optimizer), step);
    stall_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  }
  /// Completes a save whose parts are written. Sends a message of one number while a save is in progress, and none otherwise.
  void poll() {
    if (phase_ != Phase::idle) advance(false);
  }
  /// Waits for the save in progress.
  void finish() {
    while (phase_ != Phase::idle) advance(true);
  }
  bool under_way() const { return phase_ != Phase::idle; }
  /// Seconds for which the last save delayed training on this rank.
  double stall_s() const { return stall_s_; }
  /// The step of this object's newest complete checkpoint.
  const std::optional<std::uint64_t>& completed() const { return completed_; }

 private:
  enum class Phase { idle, writing, committing };

  void begin(const Communicator& ranks, const detail::State& state, std::uint64_t step) {
    ranks_ = ranks;
    step_ = step;
    begun_ = detail::begin_save(ranks_, folder_, step, *options_.system);
    if (begun_.commit) lock_ = begun_.commit->lock();
    index_ = detail::index_of(ranks_, state, step, options_);
    plan_ = detail::plan_writes(ranks_, state.items);
    std::optional<detail::Failure> failure = detail::failure_of([&] { copy(); });
    require_all(failure);
    phase_ = Phase::writing;
    start([this] {
      const std::string name = detail::rank_file(ranks_.rank());
      written_ = detail::write_parts(*options_.system, detail::in_folder(begun_.place, name), name, parts_, index_.chunk_bytes);
    });
  }
  // Copies the parts into memory that is reused by the next save.
  void copy() {
    parts_ = detail::parts_of(plan_);
    std::size_t bytes = 0;
    for (const detail::Part& part : parts_) bytes += std::size_t(part.elements * part.element_bytes + 63) / 64 * 64;
    if (memory_->bytes() < bytes) *memory_ = detail::Pages(bytes);
    std::byte* at = memory_->data();
    for (detail::Part& part : parts_) {
      part.copy_to(at);
      part.bytes = {memory_, at};
      part.block.first.local = 0;
      part.block.local_stride = part.block.first.length;
      at += std::size_t(part.elements * part.element_bytes + 63) / 64 * 64;
    }
  }
  void advance(bool waits) {
    const comm::InFunction mark(ranks_, comm::ProgramFunction::saver);
    if (waits) join();
    std::uint64_t busy[] = {done_.load(std::memory_order_acquire) ? 0u : 1u};
    if (ranks_.size() > 1) ranks_.all_reduce(std::span(busy), Reduction::max);
    if (busy[0] != 0) return;
    join();
    const Phase phase = std::exchange(phase_, Phase::idle);
    require_all(std::exchange(failure_, std::nullopt));
    if (phase == Phase::committing) {
      begun_.commit.reset();
      completed_ = step_;
      return;
    }
    parts_.clear();
    index_ = detail::collect(ranks_, std::move(plan_), written_, std::move(index_));
    phase_ = Phase::committing;
    start([this] {
      if (!begun_.commit) return;
      begun_.commit->publish(index_);
      begun_.commit->keep({options_.keep, options_.keep_best});
    });
  }
  // If one rank has failed, removes this save completely.
  void require_all(const std::optional<detail::Failure>& failure) {
    try {
      detail::require_all(ranks_, failure);
    } catch (...) {
      begun_.commit.reset();
      throw;
    }
  }
  template <class F>
  void start(F f) {
    done_.store(false, std::memory_order_relaxed);
    thread_ = std::thread([this, f] {
      failure_ = detail::failure_of(f);
      done_.store(true, std::memory_order_release);
    });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  std::string folder_;
  SaveOptions options_;
  std::shared_ptr<detail::FolderLock> lock_;  // on rank 0, from the first save until this object ends
  Communicator ranks_;
  Phase phase_ = Phase::idle;
  std::uint64_t step_ = 0;
  double stall_s_ = 0;
  std::optional<std::uint64_t> completed_;
  // The save in progress. Only the thread uses these until it is done.
  detail::Begun begun_;
  Index index_;
  detail::WritePlan plan_;
  std::vector<detail::Part> parts_;
  std::shared_ptr<detail::Pages> memory_ = std::make_shared<detail::Pages>();
  detail::Written written_;
  std::optional<detail::Failure> failure_;
  std::atomic<bool> done_{true};
  std::thread thread_;
};

}  // namespace weft::checkpoint
