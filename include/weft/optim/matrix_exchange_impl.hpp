// SPDX-License-Identifier: Apache-2.0
#pragma once
// The homes of matrices, and the plan of their messages. Definitions for optim/matrix_exchange.hpp.

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/philox.hpp>
#include <weft/core/text.hpp>
#include <weft/optim/matrix_exchange.hpp>

namespace weft::optim::detail {

WEFT_COLD WEFT_INLINE std::size_t Passage::size() const {
  std::size_t size = 0;
  for (const Strided& run : runs) size += run.elements();
  return size;
}

// The part of `runs` in the elements that `missing` lists, which are removed from it. Both are in the matrix's order.
WEFT_COLD WEFT_INLINE Runs take(const std::vector<Run>& runs, std::vector<std::pair<std::size_t, std::size_t>>& missing) {
  Runs taken;
  std::vector<std::pair<std::size_t, std::size_t>> left;
  auto run = runs.begin();
  for (auto [begin, end] : missing) {
    while (run != runs.end() && run->global + run->length <= begin) ++run;
    for (auto at = run; at != runs.end() && at->global < end && begin < end; ++at) {
      const std::size_t first = std::max(begin, at->global), last = std::min(end, at->global + at->length);
      if (first >= last) continue;
      if (begin < first) left.push_back({begin, first});
      taken.push_back({at->local + (first - at->global), first, last - first});
      begin = last;
    }
    if (begin < end) left.push_back({begin, end});
  }
  missing = std::move(left);
  return taken;
}

// The home of each matrix, as an index into its holders: the costliest matrix first, each to the rank with the least work.
// Experts come last, since a rank has no information about other ranks' experts, and only the holders of an expert count it.
WEFT_COLD WEFT_INLINE std::vector<std::size_t> homes_of(const std::vector<MatrixPiece>& pieces,
                                                        const std::vector<weft::detail::ParameterPieces>& held,
                                                        std::size_t ranks) {
  const auto cost = [](const MatrixPiece& matrix) {
    return double(matrix.rows) * double(matrix.columns) * (matrix.by_rows ? 1 : double(std::min(matrix.rows, matrix.columns)));
  };
  std::vector<std::tuple<bool, double, std::uint64_t, std::size_t>> order;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    const ParameterState& state = *pieces[piece].state;
    order.push_back({state.info().expert_data.has_value(), -cost(pieces[piece]), site_of(state.name()), piece});
  }
  std::sort(order.begin(), order.end());
  std::vector<double> load(ranks);
  std::vector<std::size_t> homes(pieces.size());
  for (const auto& [of_experts, less, site, piece] : order) {
    const auto& holders = held[piece].holders;
    if (holders.empty()) continue;  // a matrix without elements
    std::size_t home = 0;
    for (std::size_t k = 1; k < holders.size(); ++k)
      if (load[holders[k].rank] < load[holders[home].rank]) home = k;
    load[holders[home].rank] -= less;
    homes[piece] = home;
  }
  return homes;
}

// The holders from which one of them takes elements, in order: itself, then the nearest ranks.
WEFT_COLD WEFT_INLINE std::vector<const weft::detail::ParameterPieces::Holder*> sources_of(
    const weft::detail::ParameterPieces::Holder& worker, const std::vector<weft::detail::ParameterPieces::Holder>& holders) {
  using Holder = weft::detail::ParameterPieces::Holder;
  std::vector<const Holder*> sources;
  for (const Holder& holder : holders) sources.push_back(&holder);
  const auto distance = [&](const Holder* to) {
    return to->rank < worker.rank ? worker.rank - to->rank : to->rank - worker.rank;
  };
  std::stable_sort(sources.begin(), sources.end(), [&](const Holder* a, const Holder* b) { return distance(a) < distance(b); });
  return sources;
}

WEFT_COLD WEFT_INLINE std::size_t fullest_rank(const std::vector<MatrixPiece>& pieces,
                                               const std::vector<weft::detail::ParameterPieces>& held, std::size_t ranks) {
  struct Elements {
    std::size_t own = 0, whole = 0, work = 0, there = 0, back = 0;  // messages are counted at both ends
    std::size_t need() const { return own + whole + std::max({there, work, back}); }
  };
  const std::vector<std::size_t> homes = homes_of(pieces, held, ranks);
  std::vector<Elements> of(ranks);
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    const auto& holders = held[piece].holders;
    if (holders.empty()) continue;
    const auto& home = holders[homes[piece]];
    const std::size_t whole = pieces[piece].rows * pieces[piece].columns;
    of[home.rank].whole += whole + pieces[piece].home;
    of[home.rank].work = std::max(of[home.rank].work, pieces[piece].workspace);
    for (const auto& holder : holders) {
      const std::size_t own = held[piece].of(holder).elements();
      of[holder.rank].own += own;
      if (&holder == &home) continue;
      of[holder.rank].back += own;
      of[home.rank].back += own;
    }
    std::vector<std::pair<std::size_t, std::size_t>> missing{{0, whole}};
    for (const auto* source : sources_of(home, holders)) {
      if (missing.empty()) break;
      const std::size_t taken = take(held[piece].of(*source).sorted(), missing).elements();
      if (source == &home) continue;
      of[source->rank].there += taken;
      of[home.rank].there += taken;
    }
  }
  const auto largest =
      std::max_element(of.begin(), of.end(), [](const Elements& a, const Elements& b) { return a.need() < b.need(); });
  return std::size_t(largest - of.begin());
}

WEFT_COLD WEFT_INLINE MatrixExchange::MatrixExchange(const Communicator& communicator, std::vector<MatrixPiece> pieces,
                                                     const std::vector<weft::detail::ParameterPieces>& held, Work work)
    : communicator_(communicator), pieces_(std::move(pieces)), works_(pieces_.size()), apart_(pieces_.size()) {
  using Holder = weft::detail::ParameterPieces::Holder;
  const std::size_t ranks = std::size_t(communicator.size()), me = std::size_t(communicator.rank());
  for (Route* route : {&there_, &back_}) {
    route->to.resize(ranks);
    route->from.resize(ranks);
  }
  const std::vector<std::size_t> homes = homes_of(pieces_, held, ranks);
  // Both ends of a message order its passages by the hashes of the matrices' names.
  std::map<std::uint64_t, std::size_t> by_site;
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) by_site[site_of(pieces_[piece].state->name())] = piece;
  for (const auto& entry : by_site) {
    const std::size_t piece = entry.second;
    const MatrixPiece& matrix = pieces_[piece];
    const std::vector<Holder>& holders = held[piece].holders;
    if (std::none_of(holders.begin(), holders.end(), [&](const Holder& holder) { return holder.rank == me; })) continue;
    const std::vector<Runs>& runs = held[piece].pieces;
    const auto whole_rows = [&](const Runs& of) {
      return std::all_of(of.begin(), of.end(), [&](const Run& run) {
        return run.global % matrix.columns == 0 && run.local % matrix.columns == 0 && run.length % matrix.columns == 0;
      });
    };
    if (matrix.by_rows && std::all_of(runs.begin(), runs.end(), whole_rows)) {
      works_[piece] = apart_[piece] = true;
      continue;
    }
    const auto add = [&](const Holder& worker, const Holder& holder, const Runs& moved, Route& route, bool there) {
      if (moved.empty() || (worker.rank != me && holder.rank != me)) return;
      Passage among{piece, {}}, in_whole{piece, {}};
      for (const weft::detail::StridedRun& run : moved.strided(matrix.columns)) {
        among.runs.push_back(run.local().joined());
        in_whole.runs.push_back(run.global().joined());
      }
      const Holder &sender = there ? holder : worker, &receiver = there ? worker : holder;
      const Passage &out = there ? among : in_whole, &in = there ? in_whole : among;
      if (worker.rank == holder.rank) {
        route.here_from.push_back(out);
        route.here_to.push_back(in);
      } else if (sender.rank == me) {
        route.to[receiver.rank].push_back(out);
      } else {
        route.from[sender.rank].push_back(in);
      }
    };
    for (std::size_t k = 0; k < holders.size(); ++k) {
      const Holder& worker = holders[k];
      if (work == Work::home && k != homes[piece]) continue;
      if (worker.rank == me) works_[piece] = true;
      std::vector<std::pair<std::size_t, std::size_t>> missing{{0, matrix.rows * matrix.columns}};
      for (const Holder* source : sources_of(worker, holders))
        if (!missing.empty()) add(worker, *source, take(runs[source->piece].sorted(), missing), there_, true);
      if (!missing.empty())
        throw_error<Error>({"optimizer: no rank holds element ", missing.front().first, " of ", matrix.state->name()});
      for (const Holder& holder : holders)
        if (work == Work::home || &holder == &worker) add(worker, holder, runs[holder.piece], back_, false);
    }
  }
}

}  // namespace weft::optim::detail
