// SPDX-License-Identifier: Apache-2.0
#pragma once
// A thread that fills batches while others are used. There is one batch in use and one per batch loaded ahead; their memory is
// reused, so a warm step allocates nothing. The thread ends with the last step, when the range is restarted or destroyed, or with
// an exception. The step that requests the failed batch rethrows it.
//
//   LoadAhead<Batch, Source> ahead;
//   ahead.start(source, 0, 100, 1);                      // source(batch, step) fills a batch
//   while (Batch* batch = ahead.next()) use(*batch);     // returns the previous batch

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::data::detail {

/// Throws weft::Error with the message of `error`, the sample and the step. `error` is being handled, and is nested in it.
[[noreturn]] void rethrow_with_sample(const std::exception& error, std::size_t index, std::uint64_t step);

/// The thread calls `Source::operator()(Batch&, step) const` for one step after the other.
template <class Batch, class Source>
class LoadAhead {
 public:
  void start(const Source& source, std::uint64_t first, std::uint64_t end, std::size_t ahead) {
    if (!state_) state_ = std::make_unique<State>();
    state_->start(source, first, end, ahead);
  }

  /// Returns the previous batch and waits for the next one; null after the last. Rethrows an exception of the source, on every
  /// call.
  Batch* next() { return state_->next(); }

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
  };

  // Owned by a pointer, so that the owner can be moved while the thread runs.
  struct State {
    ~State() { stop(); }

    void start(const Source& from, std::uint64_t first, std::uint64_t end, std::size_t ahead) {
      stop();
      source.emplace(from);
      slots.resize(ahead + 1);
      for (Slot& slot : slots) slot.error = nullptr;
      next_step = first, end_step = end;
      filled = taken = released = 0;
      failed = nullptr;
      stopping = false;
      if (ahead > 0 && first < end) thread = std::thread([this, first, end] { fill(first, end); });
    }

    void stop() {
      {
        const std::lock_guard lock(mutex);
        stopping = true;
      }
      changed.notify_all();
      if (thread.joinable()) thread.join();
    }

    /// The thread's function.
    void fill(std::uint64_t first, std::uint64_t end) {
      for (std::uint64_t step = first; step < end; ++step) {
        Slot& slot = slots[(step - first) % slots.size()];
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return stopping || step - first < released + slots.size(); });
          if (stopping) return;
        }
        load(slot, step);
        const bool failed = slot.error != nullptr;
        {
          const std::lock_guard lock(mutex);
          ++filled;
        }
        changed.notify_all();
        if (failed) return;
      }
    }

    void load(Slot& slot, std::uint64_t step) {
      try {
        (*source)(slot.batch, step);
      } catch (...) {
        slot.error = std::current_exception();
      }
    }

    Batch* next() {
      if (failed) std::rethrow_exception(failed);
      if (next_step >= end_step) return nullptr;
      Slot& slot = slots[taken % slots.size()];
      if (slots.size() == 1) {
        load(slot, next_step);
      } else {
        std::unique_lock lock(mutex);
        if (released < taken) {
          ++released;
          changed.notify_all();
        }
        changed.wait(lock, [&] { return filled > taken; });
      }
      if (slot.error) {
        failed = slot.error;
        std::rethrow_exception(failed);
      }
      ++taken;
      ++next_step;
      return &slot.batch;
    }

    std::optional<Source> source;
    std::vector<Slot> slots;
    std::uint64_t next_step = 0, end_step = 0, taken = 0;
    std::exception_ptr failed;
    std::thread thread;
    std::mutex mutex;  // protects the members below
    std::condition_variable changed;
    std::uint64_t filled = 0, released = 0;
    bool stopping = false;
  };

  std::unique_ptr<State> state_;
};

}  // namespace weft::data::detail

#ifndef WEFT_COMPILED
#include <weft/data/load_ahead_impl.hpp>
#endif
