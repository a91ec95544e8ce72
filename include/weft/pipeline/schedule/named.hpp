// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables of schedules by name, such as "1f1b" or "zbv", with numbers known only at run time: for command lines and tools.
//
//   const schedule::Table table = schedule::named_table("interleaved", 4, 8, 2);   // 4 ranks, 8 micro-batches, 2 chunks a rank

#include <string>
#include <string_view>

#include <weft/core/error.hpp>
#include <weft/pipeline/schedule/dualpipev.hpp>
#include <weft/pipeline/schedule/gpipe.hpp>
#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/pipeline/schedule/table.hpp>
#include <weft/pipeline/schedule/zbv.hpp>
#include <weft/pipeline/schedule/zero_bubble.hpp>

namespace weft::schedule {

/// The names of the built-in schedules.
inline constexpr std::string_view names = "gpipe, 1f1b, interleaved, interleaved-zb, zb-h1, zbv and dualpipev";

namespace detail {

/// The table of a schedule with a fixed number of chunks.
template <Schedule S>
Table fixed_table(int ranks, int micro_batches, int chunks) {
  if (chunks != 0 && chunks != S::chunks)
    throw LayoutError("schedule " + std::string(S::name) + ": chunks(" + std::to_string(chunks) +
                      ") != " + std::to_string(S::chunks) + ", the number of stages that it puts on a rank");
  require<S>(ranks, micro_batches);
  return table<S>(ranks, micro_batches);
}

/// The table of a schedule whose order is a function of the number of chunks, 2 unless given.
template <class Order>
Table looped_table(std::string_view name, int ranks, int micro_batches, int chunks, Order order) {
  if (chunks == 0) chunks = 2;
  if (ranks < 1 || micro_batches < 1 || chunks < 1)
    throw LayoutError("schedule " + std::string(name) + " with pp(" + std::to_string(ranks) + "), micro-batches(" +
                      std::to_string(micro_batches) + ") and chunks(" + std::to_string(chunks) + "): each must be at least 1");
  Table table{ranks, chunks, micro_batches, {}, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    table.orders.push_back(order(rank, ranks, chunks, micro_batches));
    auto& stages = table.stage_of.emplace_back();
    for (int chunk = 0; chunk < chunks; ++chunk) stages.push_back(Loop::stage(rank, chunk, ranks));
  }
  return table;
}

}  // namespace detail

/// The table of the schedule `name`. `chunks` is the number of stages per rank; 0 means the schedule's own number, or 2 if it
/// takes any. Throws UsageError for an unknown name, LayoutError for numbers without an order.
Table named_table(std::string_view name, int ranks, int micro_batches, int chunks = 0);

namespace detail {

/// The number of stages per rank: `chunks` (2 for 0) if the schedule takes any number, else the schedule's own. Throws as
/// named_table does.
int named_chunks(std::string_view name, int chunks);
/// True if the stages are laid out as a V, so that the last one is on the first rank.
inline bool named_v_shape(std::string_view name) { return name == Zbv::name || name == DualPipeV::name; }

}  // namespace detail

}  // namespace weft::schedule

#ifndef WEFT_COMPILED
#include <weft/pipeline/schedule/named_impl.hpp>
#endif
