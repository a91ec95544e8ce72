// SPDX-License-Identifier: Apache-2.0
#pragma once
// A schedule for all ranks as one value: the order of each rank, and the stage of each chunk of each rank. A table is made from a
// schedule type, written as a constexpr function by a user, or read from a file; the checker treats all three alike.
//
//   constexpr auto table = schedule::table<schedule::OneForwardOneBackward>(4, 8);   // 4 ranks, 8 micro-batches

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/pipeline/schedule/action.hpp>

namespace weft::schedule {

/// A schedule type: the order of each rank, the stages of its chunks, its costs, and the numbers that it works for.
///     chunks                  chunks per rank
///     order(rank, P, M)       actions of a rank of P, for M micro-batches
///     stage(rank, chunk, P)   position in the model, 0 ... P·chunks − 1; rank_of and chunk_of are its inverse
///     bubble(P, M, costs)     makespan − busy time of a rank, without communication
///     peak(rank, P, M)        most chunk activations that the rank holds at once (from F until B or W)
///     applies(P, M)           true if there is an order for these numbers; `limits` is the condition in words
template <class S>
concept Schedule = requires(int rank, int chunk, int P, int M, Costs costs) {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::limits } -> std::convertible_to<std::string_view>;
  { S::chunks } -> std::convertible_to<int>;
  { S::order(rank, P, M) } -> std::same_as<Order>;
  { S::stage(rank, chunk, P) } -> std::same_as<int>;
  { S::rank_of(rank, P) } -> std::same_as<int>;
  { S::chunk_of(rank, P) } -> std::same_as<int>;
  { S::bubble(P, M, costs) } -> std::same_as<double>;
  { S::peak(rank, P, M) } -> std::same_as<int>;
  { S::applies(P, M) } -> std::same_as<bool>;
};

class AnySchedule;

/// A schedule type as a value for ModelOptions::pipeline.schedule: schedule::zbv is Value<Zbv>.
template <class S>
struct Value {
  operator std::shared_ptr<const AnySchedule>() const;  // in any_schedule.hpp
};

/// The orders of all ranks, and the stages, `stage_of[rank][chunk]`.
struct Table {
  int ranks = 0, chunks = 1, micro_batches = 0;
  std::vector<Order> orders;
  std::vector<std::vector<int>> stage_of;

  constexpr int stages() const { return ranks * chunks; }
  constexpr int stage(int rank, int chunk) const {
    return stage_of[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
  }
};

/// The table of a schedule. The caller checks `applies` first (see `require`).
template <Schedule S>
WEFT_COLD constexpr Table table(int ranks, int micro_batches) {
  Table table{ranks, S::chunks, micro_batches, {}, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    table.orders.push_back(S::order(rank, ranks, micro_batches));
    auto& stages = table.stage_of.emplace_back();
    for (int chunk = 0; chunk < S::chunks; ++chunk) stages.push_back(S::stage(rank, chunk, ranks));
  }
  return table;
}

/// Throws LayoutError, with the numbers and the nearest number of micro-batches that works, if the schedule has no order for
/// these.
template <Schedule S>
WEFT_COLD void require(int ranks, int micro_batches) {
  if (S::applies(ranks, micro_batches)) return;
  std::string text =
      weft::detail::joined({"schedule ", S::name, " with pp(", ranks, ") and micro-batches(", micro_batches, "): ", S::limits});
  constexpr int far = 4096;
  for (int distance = 1; distance < far; ++distance)
    for (const int near : {micro_batches - distance, micro_batches + distance})
      if (near > 0 && S::applies(ranks, near))
        throw_error<LayoutError>({text, "; the nearest number of micro-batches that works is ", near});
  throw LayoutError(text);
}

/// An action as text, such as "2F5": stage, operation, micro-batch.
std::string to_string(const Table& table, int rank, Action action);

/// The actions of a rank as texts; an overlapped pair is one text, "(0F3;3B1)".
std::vector<std::string> to_strings(const Table& table, int rank);

}  // namespace weft::schedule

#ifndef WEFT_COMPILED
#include <weft/pipeline/schedule/table_impl.hpp>
#endif
