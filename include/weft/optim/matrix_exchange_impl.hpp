// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for optim/matrix_exchange.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstdlib>
#include <map>

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/philox.hpp>
#include <weft/core/text.hpp>
#include <weft/optim/matrix_exchange.hpp>

namespace weft::optim::detail {

WEFT_COLD WEFT_INLINE std::size_t Passage::size() const {
  std::size_t size = 0;
  for (const Strided& run : runs) size += run.size();
  return size;
}

// A run of a rank's elements and its place in the whole matrix.
struct MatrixRun {
  std::size_t global = 0, local = 0, length = 0;
};

// One rank's piece of a matrix, as the others know it.
struct HeldPiece {
  int rank = 0;
  std::size_t index = 0;  // among the rank's pieces
  std::vector<MatrixRun> runs;
};
struct HeldMatrix {
  std::size_t rows = 0, columns = 0;
  bool by_rows = false;
  std::vector<HeldPiece> pieces;
};

// Runs in fewer words: equal lengths at equal distances, as columns of a matrix are, become one.
WEFT_COLD WEFT_INLINE std::vector<Strided> strided(const std::vector<MatrixRun>& runs, std::size_t MatrixRun::*at) {
  std::vector<Strided> all;
  std::size_t begin = 0, end = 0;  // of a run that may go on
  const auto close = [&] {
    const std::size_t length = end - begin;
    if (length == 0) return;
    Strided* last = all.empty() ? nullptr : &all.back();
    if (last && last->length == length && last->count == 1 && begin > last->offset) {
      last->stride = begin - last->offset;
      last->count = 2;
    } else if (last && last->length == length && last->count > 1 && begin == last->offset + last->count * last->stride) {
      ++last->count;
    } else {
      all.push_back({begin, length, 1, length});
    }
  };
  for (const MatrixRun& run : runs) {
    if (run.*at == end && end != begin) {
      end += run.length;
      continue;
    }
    close();
    begin = run.*at;
    end = begin + run.length;
  }
  close();
  return all;
}

// The part of `runs` in the elements that `missing` lists, which are taken from it. Both are in the order of the matrix.
WEFT_COLD WEFT_INLINE std::vector<MatrixRun> take(const std::vector<MatrixRun>& runs,
                                                  std::vector<std::pair<std::size_t, std::size_t>>& missing) {
  std::vector<MatrixRun> taken;
  std::vector<std::pair<std::size_t, std::size_t>> left;
  auto run = runs.begin();
  for (auto [begin, end] : missing) {
    while (run != runs.end() && run->global + run->length <= begin) ++run;
    for (auto at = run; at != runs.end() && at->global < end && begin < end; ++at) {
      const std::size_t first = std::max(begin, at->global), last = std::min(end, at->global + at->length);
      if (first >= last) continue;
      if (begin < first) left.push_back({begin, first});
      taken.push_back({first, at->local + (first - at->global), last - first});
      begin = last;
    }
    if (begin < end) left.push_back({begin, end});
  }
  missing = std::move(left);
  return taken;
}

// All ranks' pieces by the sites of their names. Runs travel as strided ones.
WEFT_COLD WEFT_INLINE std::map<std::uint64_t, HeldMatrix> held_by_all(const Communicator& communicator,
                                                                      const std::vector<MatrixPiece>& pieces) {
  std::vector<std::uint64_t> words;
  for (const MatrixPiece& piece : pieces) {
    std::vector<MatrixRun> runs;
    for (const weft::detail::Run& run : piece.state->runs()) runs.push_back({run.global, run.local, run.length});
    std::sort(runs.begin(), runs.end(), [](const MatrixRun& a, const MatrixRun& b) { return a.global < b.global; });
    // Both lists enumerate the same elements in the same order.
    const std::vector<Strided> global = strided(runs, &MatrixRun::global), local = strided(runs, &MatrixRun::local);
    words.insert(words.end(),
                 {site_of(piece.state->name()), piece.rows, piece.columns, piece.by_rows, global.size(), local.size()});
    for (const auto* list : {&global, &local})
      for (const Strided& run : *list) words.insert(words.end(), {run.offset, run.length, run.count, run.stride});
  }
  const std::size_t ranks = std::size_t(communicator.size());
  const std::vector<std::uint64_t> mine{words.size()};
  std::vector<std::uint64_t> sizes(ranks);
  communicator.all_gather(mine, sizes);
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  std::vector<std::uint64_t> all(total);
  communicator.all_gather_v(words, all, counts);
  std::map<std::uint64_t, HeldMatrix> held;
  const std::uint64_t* word = all.data();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t* end = word + counts[rank];
    for (std::size_t index = 0; word != end; ++index) {
      HeldMatrix& matrix = held[word[0]];
      matrix.rows = word[1];
      matrix.columns = word[2];
      matrix.by_rows = word[3] != 0;
      HeldPiece piece{int(rank), index, {}};
      const auto expanded = [&](const std::uint64_t* from, std::size_t count) {
        std::vector<std::pair<std::size_t, std::size_t>> runs;  // first element, length
        for (std::size_t i = 0; i < count; ++i, from += 4)
          for (std::size_t k = 0; k < from[2]; ++k) runs.push_back({from[0] + k * from[3], from[1]});
        return runs;
      };
      const auto global = expanded(word + 6, word[4]), local = expanded(word + 6 + 4 * word[4], word[5]);
      word += 6 + 4 * (word[4] + word[5]);
      for (std::size_t g = 0, l = 0, in_g = 0, in_l = 0; g < global.size();) {
        const std::size_t length = std::min(global[g].second - in_g, local[l].second - in_l);
        piece.runs.push_back({global[g].first + in_g, local[l].first + in_l, length});
        if ((in_g += length) == global[g].second) ++g, in_g = 0;
        if ((in_l += length) == local[l].second) ++l, in_l = 0;
      }
      matrix.pieces.push_back(std::move(piece));
    }
  }
  return held;
}

// The place of each matrix' home among its holders: the costliest matrix first, each to the rank with the least to do.
WEFT_COLD WEFT_INLINE std::map<std::uint64_t, std::size_t> homes_of(const std::map<std::uint64_t, HeldMatrix>& held,
                                                                    std::size_t ranks) {
  const auto cost = [](const HeldMatrix& matrix) {
    return double(matrix.rows) * double(matrix.columns) * (matrix.by_rows ? 1 : double(std::min(matrix.rows, matrix.columns)));
  };
  std::vector<std::pair<double, std::uint64_t>> order;
  for (const auto& [site, matrix] : held) order.push_back({-cost(matrix), site});
  std::sort(order.begin(), order.end());
  std::vector<double> load(ranks);
  std::map<std::uint64_t, std::size_t> homes;
  for (const auto& [less, site] : order) {
    const std::vector<HeldPiece>& pieces = held.at(site).pieces;
    std::size_t home = 0;
    for (std::size_t k = 1; k < pieces.size(); ++k)
      if (load[std::size_t(pieces[k].rank)] < load[std::size_t(pieces[home].rank)]) home = k;
    load[std::size_t(pieces[home].rank)] -= less;
    homes[site] = home;
  }
  return homes;
}

WEFT_COLD WEFT_INLINE MatrixExchange::MatrixExchange(const Communicator& communicator, std::vector<MatrixPiece> pieces, Work work)
    : communicator_(communicator), pieces_(std::move(pieces)), works_(pieces_.size()), apart_(pieces_.size()) {
  const std::size_t ranks = std::size_t(communicator.size());
  const int me = communicator.rank();
  for (Route* route : {&there_, &back_}) {
    route->to.resize(ranks);
    route->from.resize(ranks);
  }
  const auto held = held_by_all(communicator, pieces_);
  const auto homes = homes_of(held, ranks);
  for (const auto& entry : held) {
    const std::uint64_t site = entry.first;
    const HeldMatrix& matrix = entry.second;
    const auto mine = std::find_if(matrix.pieces.begin(), matrix.pieces.end(), [&](const HeldPiece& p) { return p.rank == me; });
    if (mine == matrix.pieces.end()) continue;
    const auto whole_rows = [&](const HeldPiece& piece) {
      return std::all_of(piece.runs.begin(), piece.runs.end(), [&](const MatrixRun& run) {
        return run.global % matrix.columns == 0 && run.local % matrix.columns == 0 && run.length % matrix.columns == 0;
      });
    };
    if (matrix.by_rows && std::all_of(matrix.pieces.begin(), matrix.pieces.end(), whole_rows)) {
      works_[mine->index] = apart_[mine->index] = true;
      continue;
    }
    const auto add = [&](const HeldPiece& worker, const HeldPiece& holder, const std::vector<MatrixRun>& runs, Route& route,
                         bool there) {
      if (runs.empty() || (worker.rank != me && holder.rank != me)) return;
      const Passage among{holder.index, strided(runs, &MatrixRun::local)},
          in_whole{worker.index, strided(runs, &MatrixRun::global)};
      const HeldPiece &sender = there ? holder : worker, &receiver = there ? worker : holder;
      const Passage &out = there ? among : in_whole, &in = there ? in_whole : among;
      if (worker.rank == holder.rank) {
        route.here_from.push_back(out);
        route.here_to.push_back(in);
      } else if (sender.rank == me) {
        route.to[std::size_t(receiver.rank)].push_back(out);
      } else {
        route.from[std::size_t(sender.rank)].push_back(in);
      }
    };
    for (std::size_t k = 0; k < matrix.pieces.size(); ++k) {
      const HeldPiece& worker = matrix.pieces[k];
      if (work == Work::home && k != homes.at(site)) continue;
      if (worker.rank == me) works_[worker.index] = true;
      // Its own elements, then those of the ranks nearest to it.
      std::vector<const HeldPiece*> sources;
      for (const HeldPiece& piece : matrix.pieces) sources.push_back(&piece);
      std::stable_sort(sources.begin(), sources.end(), [&](const HeldPiece* a, const HeldPiece* b) {
        return std::abs(a->rank - worker.rank) < std::abs(b->rank - worker.rank);
      });
      std::vector<std::pair<std::size_t, std::size_t>> missing{{0, matrix.rows * matrix.columns}};
      for (const HeldPiece* source : sources)
        if (!missing.empty()) add(worker, *source, take(source->runs, missing), there_, true);
      if (!missing.empty() && communicator.rehearsed())
        throw_error<UsageError>({"a rehearsal does not know which elements of ", pieces_[mine->index].state->name(),
                                 " other ranks hold, which an update of whole matrices (Muon) asks them: rehearse with AdamW"});
      if (!missing.empty())
        throw_error<Error>(
            {"optimizer: no rank holds element ", missing.front().first, " of ", pieces_[mine->index].state->name()});
      for (const HeldPiece& holder : matrix.pieces)
        if (work == Work::home || &holder == &worker) add(worker, holder, holder.runs, back_, false);
    }
  }
}

}  // namespace weft::optim::detail
