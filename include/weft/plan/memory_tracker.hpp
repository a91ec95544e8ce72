// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that is only counted: blocks as the arena hands them out, without the memory. A rehearsal of a step takes and drops
// them in the order in which the step does.

#include <cstddef>
#include <memory>

#include <weft/device/block_bytes.hpp>

namespace weft::plan {

/// A shared handle of a counted block, as tensors share theirs.
using Block = std::shared_ptr<const void>;

class MemoryTracker {
 public:
  /// What a block counts as between actions.
  enum class Kind { kept, activation, moving };

  Block take(std::size_t bytes, Kind kind = Kind::activation) { return hold(weft::detail::block_bytes(bytes), kind); }
  Block take_lasting(std::size_t bytes, Kind kind = Kind::kept) { return hold(weft::detail::persistent_block_bytes(bytes), kind); }

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
