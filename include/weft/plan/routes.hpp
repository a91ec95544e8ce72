// SPDX-License-Identifier: Apache-2.0
#pragma once
// The routes of messages between the ranks of a schedule: the action that uses the result of an action, and the action that makes
// its input. Computed once for all ranks of a table; the simulation of a step would otherwise search for every message.

#include <cstddef>
#include <vector>

#include <weft/pipeline/schedule/table.hpp>

namespace weft::plan {

class Routes {
 public:
  /// The action `at` in another rank's order; `rank` is -1 if there is none (an end of the model, or the same rank).
  struct Place {
    int rank = -1;
    std::size_t at = 0;
  };

  explicit Routes(const schedule::Table& table) : table_(table), micro_batches_(std::size_t(table.micro_batches)) {
    forward_.resize(std::size_t(table.stages()) * micro_batches_);
    backward_.resize(forward_.size());
    for (int rank = 0; rank < table.ranks; ++rank) {
      const schedule::Order& order = table.orders[std::size_t(rank)];
      for (std::size_t i = 0; i < order.size(); ++i)
        if (order[i].what != schedule::Op::W)
          (order[i].what == schedule::Op::F ? forward_ : backward_)[cell(table.stage(rank, order[i].chunk), order[i].micro)] = {
              rank, i};
    }
  }

  Place goes_to(int rank, const schedule::Action& action) const {
    return beside(rank, action, action.what == schedule::Op::F ? 1 : -1);
  }
  Place comes_from(int rank, const schedule::Action& action) const {
    return beside(rank, action, action.what == schedule::Op::F ? -1 : 1);
  }

 private:
  std::size_t cell(int stage, int micro) const { return std::size_t(stage) * micro_batches_ + std::size_t(micro); }
  Place beside(int rank, const schedule::Action& action, int step) const {
    const int stage = table_.stage(rank, action.chunk) + step;
    if (action.what == schedule::Op::W || stage < 0 || stage >= table_.stages()) return {};
    const Place place = (action.what == schedule::Op::F ? forward_ : backward_)[cell(stage, action.micro)];
    return place.rank == rank ? Place{} : place;
  }

  const schedule::Table& table_;
  std::size_t micro_batches_;
  std::vector<Place> forward_, backward_;  // [stages, micro-batches]
};

}  // namespace weft::plan
