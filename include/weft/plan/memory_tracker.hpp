// SPDX-License-Identifier: Apache-2.0
#pragma once
// A memory allocator that only counts: blocks of the arena's sizes, without the memory. The simulation of a step takes and drops
// them in the same order as the real step.
//
//   const Block activations = tracker.take(bytes);   // dropped with its last copy

#include <cstddef>
#include <memory>

#include <weft/device/block_bytes.hpp>

namespace weft::plan {

/// A shared handle of a counted block, like the buffer of a tensor.
using Block = std::shared_ptr<const void>;

class MemoryTracker {
 public:
  /// The category of a block between actions.
  enum class Kind { kept, activation, moving };

  Block take(std::size_t bytes, Kind kind = Kind::activation) { return hold(weft::detail::block_bytes(bytes), kind); }
  Block take_lasting(std::size_t bytes, Kind kind = Kind::kept) {
    return hold(weft::detail::persistent_block_bytes(bytes), kind);
  }

  std::size_t current() const { return state_->total; }
  std::size_t current(Kind kind) const { return state_->of[int(kind)]; }
  std::size_t peak() const { return state_->peak; }
  void reset_peak() { state_->peak = state_->total; }

 private:
  struct State {
    std::size_t of[3] = {0, 0, 0}, total = 0, peak = 0;
  };
  struct Hold {
    std::shared_ptr<State> state;
    std::size_t bytes;
    Kind kind;
    Hold(std::shared_ptr<State> owner, std::size_t size, Kind what) : state(std::move(owner)), bytes(size), kind(what) {
      state->of[int(kind)] += bytes;
      state->total += bytes;
      if (state->total > state->peak) state->peak = state->total;
    }
    Hold(const Hold&) = delete;
    ~Hold() {
      state->of[int(kind)] -= bytes;
      state->total -= bytes;
    }
  };
  Block hold(std::size_t bytes, Kind kind) { return std::make_shared<const Hold>(state_, bytes, kind); }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace weft::plan
