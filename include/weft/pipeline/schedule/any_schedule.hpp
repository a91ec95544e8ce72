// SPDX-License-Identifier: Apache-2.0
#pragma once
// A schedule as a run-time value: given by a type, chosen by name while the program runs, or made from a user's table. The model
// and the executor depend only on this class, so they are compiled once for all schedules.
//
//   schedule::AnySchedule schedule = schedule::erase<schedule::Zbv>();
//   ModelOptions{.pipeline = {.schedule = schedule::zbv}}

#include <concepts>
#include <memory>
#include <string>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// Any schedule as a value; copies share one source.
class AnySchedule {
 public:
  /// The interface of one kind of schedule.
  struct Source {
    virtual ~Source() = default;
    virtual int chunks() const = 0;
    /// Throws LayoutError if the schedule cannot run on that many ranks.
    virtual void require_ranks(int) const {}
    virtual int stage(int rank, int chunk, int ranks) const = 0;
    /// Throws LayoutError if the schedule has no order for these numbers.
    virtual Table table(int ranks, int micro_batches) const = 0;
  };

  explicit AnySchedule(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

  int chunks() const { return source_->chunks(); }
  void require_ranks(int ranks) const { source_->require_ranks(ranks); }
  int stage(int rank, int chunk, int ranks) const { return source_->stage(rank, chunk, ranks); }
  /// The rank that holds a stage. Throws UsageError for a stage that does not exist.
  int stage_rank(int stage, int ranks) const {
    for (int rank = 0; rank < ranks; ++rank)
      for (int chunk = 0; chunk < chunks(); ++chunk)
        if (source_->stage(rank, chunk, ranks) == stage) return rank;
    throw_error<UsageError>({"stage ", stage, " of a schedule of ", ranks * chunks(), " stages"});
  }
  Table table(int ranks, int micro_batches) const { return source_->table(ranks, micro_batches); }

 private:
  std::shared_ptr<const Source> source_;
};

namespace detail {

template <Schedule S>
struct TypeSource final : AnySchedule::Source {
  int chunks() const override { return S::chunks; }
  int stage(int rank, int chunk, int ranks) const override { return S::stage(rank, chunk, ranks); }
  WEFT_COLD Table table(int ranks, int micro_batches) const override {
    require<S>(ranks, micro_batches);
    return schedule::table<S>(ranks, micro_batches);
  }
};

/// One table, valid for one number of ranks and of micro-batches.
class TableSource final : public AnySchedule::Source {
 public:
  TableSource(Table table, std::string name) : table_(std::move(table)), name_(std::move(name)) {}
  int chunks() const override { return table_.chunks; }
  void require_ranks(int ranks) const override {
    if (ranks != table_.ranks)
      throw_error<LayoutError>({"schedule ", name_, " has orders for ", table_.ranks, " ranks, pp is ", ranks});
  }
  int stage(int rank, int chunk, int ranks) const override {
    require_ranks(ranks);
    return table_.stage(rank, chunk);
  }
  Table table(int ranks, int micro_batches) const override {
    require_ranks(ranks);
    if (micro_batches != table_.micro_batches)
      throw_error<LayoutError>(
          {"schedule ", name_, " is for ", table_.micro_batches, " micro-batches, a step of this rank has ", micro_batches});
    return table_;
  }

 private:
  Table table_;
  std::string name_;
};

}  // namespace detail

/// A type that names a schedule: a schedule type, or a table that the compiler proves (schedule::Custom).
template <class S>
concept Erasable = Schedule<S> || requires {
  { S::any_schedule() } -> std::same_as<AnySchedule>;
};

/// A schedule's type as a value.
template <Erasable S>
AnySchedule erase() {
  if constexpr (Schedule<S>) return AnySchedule(std::make_shared<const detail::TypeSource<S>>());
  else return S::any_schedule();
}

template <class S>
Value<S>::operator std::shared_ptr<const AnySchedule>() const {
  return std::make_shared<const AnySchedule>(erase<S>());
}

}  // namespace weft::schedule
