// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order of a rehearsed rank's work in one step: kernels, messages and the actions of the pipeline, as the executor issues
// them. Equal events are stored once, so an identical micro-batch needs 4 bytes per event.
//
//   RehearsedTrace trace;
//   trace.begin_part();
//   trace.add({.kind = RehearsedTrace::Kind::kernel, .amount = bytes});
//   trace.end_part(true);                // trace[0], trace[1], ... are the events of the last step

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/core/scalar.hpp>

namespace weft {

/// The order of a rehearsed step's kernels, messages and actions.
class RehearsedTrace {
 public:
  enum class Kind : std::uint8_t {
    product,    ///< a, b, c: m, n, k; amount: bytes of the matrices
    attention,  ///< a: number of products; b: head width; amount: FLOPs
    kernel,     ///< a: its kind, in `kinds`; b: exponential functions; amount: bytes read and written
    copy,       ///< between the host and the device
    call,     ///< a blocking collective; a: its operation; b: for all_to_all_v, the number of other ranks that exchange data with
              ///< this one; amount: bytes as in Rehearsal::Messages
    start,    ///< a collective, or a copy to or from host memory, that runs concurrently with the program
    wait,     ///< a: the collective, counted back among the step's starts, from 1
    send,     ///< a: rank in the group, b: tag
    receive,  ///< the program waits for a message of that rank
    begin,    ///< an action of the pipeline; a: stage, b: micro-batch, c: chunk; operation: its letter
    end,
  };
  struct Event {
    Kind kind = Kind::kernel;
    DataType type = DataType::float32;  ///< element type of a product or of attention
    char operation = 0;
    std::int32_t group = -1;  ///< of messages: index into `groups`
    std::int64_t a = 0, b = 0, c = 0;
    double amount = 0;

    friend bool operator==(const Event&, const Event&) = default;
  };
  /// The axis of copies between the device and host memory, which have a group for each direction.
  static constexpr std::string_view host_memory = "the host's memory";
  /// A communicator. All its ranks use the same identity in their traces.
  struct Group {
    std::string axis;
    std::uint64_t identity = 0;
    int rank = 0, size = 1;
  };

  std::vector<Group> groups;
  std::vector<std::string_view> kinds;  ///< of kernels: "norm", "elementwise", ...
  /// Rows of samples (tokens) that enter the model in the last step, on all ranks that share them; with several models, the first
  /// one's.
  double rows = 0;

  // A step consists of parts, each ended by an optimizer's step. With one optimizer a step has one part.

  /// A model begins to train, the first since an optimizer's step: events are recorded from here on.
  void begin_part() {
    drop_part();
    open_ = true;
  }
  /// Drops events since the last part's end: they belong to no step, but to an evaluation.
  void drop_part() {
    order_.resize(whole_);
    starts_.resize(part_starts_);
    part_rows_ = 0;
    open_ = false;
  }
  /// An optimizer has stepped. `anew`: the step begins with this part, and earlier parts are dropped.
  WEFT_COLD void end_part(bool anew) {
    if (anew) keep_part();
    whole_ = order_.size();
    part_starts_ = starts_.size();
    part_rows_ = 0;
    open_ = !order_.empty();  // another optimizer may step without a model in between
  }
  /// Rows enter a model in this part.
  void enter(double more) { part_rows_ += more; }
  /// True if a step of an optimizer was traced.
  bool whole() const { return whole_ > 0; }

  /// While muted, events are not recorded. They are outside the step (an evaluation), or parts of an event (the loops of a
  /// product).
  void mute(bool muted) { muted_ += muted ? 1 : -1; }

  void add(const Event& event);
  /// Starts a collective. Returns its number, which identifies it in its wait.
  std::uint64_t start(const Event& event) {
    add(event);
    if (!open_ || muted_ > 0) return 0;
    starts_.push_back(++last_start_);
    return last_start_;
  }
  void wait(std::uint64_t number) {
    const auto found = std::lower_bound(starts_.begin(), starts_.end(), number);
    if (found != starts_.end() && *found == number) add({.kind = Kind::wait, .a = starts_.end() - found});
  }

  std::int32_t group_of(const Group& group);

  std::int64_t kind_of(std::string_view kind);

  std::size_t size() const { return whole_; }
  const Event& operator[](std::size_t i) const { return events_[order_[i]]; }
  std::size_t distinct() const { return events_.size(); }
  /// The index of the i-th event among the distinct ones.
  std::size_t number(std::size_t i) const { return order_[i]; }
  const Event& event(std::size_t number) const { return events_[number]; }

 private:
  struct Hash {
    std::size_t operator()(const Event& e) const {
      std::uint64_t hash = std::uint64_t(e.kind) | std::uint64_t(e.type) << 8 | std::uint64_t(std::uint8_t(e.operation)) << 16;
      for (const std::uint64_t part : {std::uint64_t(e.group), std::uint64_t(e.a), std::uint64_t(e.b), std::uint64_t(e.c),
                                       std::bit_cast<std::uint64_t>(e.amount)}) {
        hash = (hash ^ part) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };
  // Drops the parts before the last one, and its waits for collectives that they started.
  void keep_part();

  std::vector<Event> events_;
  std::vector<std::uint32_t> order_;  // of the step, then of the unfinished part
  std::size_t whole_ = 0;             // number of events in the step
  std::unordered_map<Event, std::uint32_t, Hash> numbers_;
  std::vector<std::uint64_t> starts_;  // numbers of the step's started collectives
  std::uint64_t last_start_ = 0;
  std::size_t part_starts_ = 0;  // size of `starts_` before this part
  double part_rows_ = 0;
  int muted_ = 0;
  bool open_ = false;
};

namespace detail {

/// While it exists, the loops of a kernel that was noted as a whole are not traced. Null: nothing is traced.
class TracedWhole {
 public:
  explicit TracedWhole(RehearsedTrace* trace) : trace_(trace) {
    if (trace_ != nullptr) [[unlikely]]
      trace_->mute(true);
  }
  ~TracedWhole() {
    if (trace_ != nullptr) [[unlikely]]
      trace_->mute(false);
  }
  TracedWhole(const TracedWhole&) = delete;
  TracedWhole& operator=(const TracedWhole&) = delete;

 private:
  RehearsedTrace* trace_;
};

/// While it exists, events belong to an action of one micro-batch, for a model with one stage: 'F' forward or 'B' backward.
class TracedAction {
 public:
  WEFT_COLD TracedAction(RehearsedTrace* trace, char operation, std::size_t micro)
      : trace_(trace), event_{.kind = RehearsedTrace::Kind::begin, .operation = operation, .b = std::int64_t(micro)} {
    if (trace_ != nullptr) trace_->add(event_);
  }
  WEFT_COLD ~TracedAction() {
    event_.kind = RehearsedTrace::Kind::end;
    if (trace_ != nullptr) trace_->add(event_);
  }
  TracedAction(const TracedAction&) = delete;
  TracedAction& operator=(const TracedAction&) = delete;

 private:
  RehearsedTrace* trace_;
  RehearsedTrace::Event event_;
};

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/device/rehearsal_trace_impl.hpp>
#endif
