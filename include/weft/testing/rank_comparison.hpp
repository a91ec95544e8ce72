// SPDX-License-Identifier: Apache-2.0
#pragma once
// The comparison of a layer on several ranks with the same layer on one. Each rank's pieces of outputs and gradients are
// assembled by their global indices, and compared. Part of check_layer_on (testing/check_layer.hpp).

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/core/text.hpp>
#include <weft/testing/layer_trial.hpp>

namespace weft::testing {

/// Options of check_layer and check_layer_on.
struct CheckOptions {
  double step = 1e-5;        ///< of the central difference
  double tolerance = 1e-6;   ///< largest allowed difference, relative to the largest gradient of the same tensor
  std::size_t samples = 24;  ///< tested elements per tensor; all if it has fewer
  std::size_t length = 0;    ///< tokens per sequence; 0: all rows are one sequence (over dp: all rows of a rank)
  std::uint64_t seed = 1;
};

/// The result of a check. `worst` names the tensor with the largest difference.
struct CheckReport {
  double error = 0;  ///< relative
  std::string worst;
  std::size_t compared = 0;

  void add(const std::string& name, double difference, double scale) {
    ++compared;
    const double relative = difference == 0 ? 0 : difference / std::max(scale, 1e-12);
    if (!(relative <= error)) {
      error = std::isfinite(relative) ? relative : INFINITY;
      worst = name;
    }
  }
};

namespace detail {

/// One rank's piece of one tensor, and its global indices.
struct Piece {
  std::string name;
  Numbers values;
  std::vector<std::size_t> places;
};
struct Share {
  std::vector<Piece> tensors;              // outputs and the input gradient
  std::vector<Piece> gradients;            // of parameters
  std::vector<unsigned> pending, sharded;  // axis bits
  std::vector<std::size_t> sizes;          // of the whole parameters
  std::vector<std::size_t> coordinates;    // on the axes that are checked
  std::string error;                       // this rank's error, unless it follows from another rank's
};

template <class Trial>
Share share_of(Trial& trial) {
  Share share;
  const auto outcome = trial.prove();
  trial.locate([&](const std::string& name, Numbers values, std::vector<std::size_t> places) {
    share.tensors.push_back({name, std::move(values), std::move(places)});
  });
  for (std::size_t p = 0; p < trial.parameters().size(); ++p) {
    const ParameterState& state = *trial.parameters()[p];
    Piece piece{state.name(), {}, {}};
    for (const auto& run : state.info().runs)
      for (std::size_t i = 0; i < run.length; ++i) {
        piece.values.push_back(outcome.gradients[p][run.local + i]);
        piece.places.push_back(run.global + i);
      }
    share.gradients.push_back(std::move(piece));
    share.pending.push_back(outcome.pending[p]);
    share.sharded.push_back(state.info().sharded);
    share.sizes.push_back(state.global().size());
  }
  return share;
}

inline void compare(CheckReport& report, const Piece& piece, const Numbers& expected) {
  const double scale = largest(expected);
  for (std::size_t i = 0; i < piece.values.size(); ++i)
    report.add(piece.name, piece.places[i] < expected.size() ? std::abs(piece.values[i] - expected[piece.places[i]]) : INFINITY,
               scale);
}

[[noreturn]] WEFT_COLD inline void differ(const std::string& text) { throw Error("check_layer_on: " + text); }

/// Compares the ranks' parts with the result of one rank. `axes`: the bits of the axes that are checked.
inline void compare(CheckReport& report, const std::vector<Share>& ranks, const Share& alone, const std::vector<unsigned>& axes,
                    const std::string& where) {
  unsigned all = 0;
  for (const unsigned bit : axes) all |= bit;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].tensors.size() != alone.tensors.size())
      differ(where + ": " + std::to_string(ranks[r].tensors.size()) + " outputs and gradients, one rank has " +
             std::to_string(alone.tensors.size()));
    for (std::size_t t = 0; t < alone.tensors.size(); ++t) compare(report, ranks[r].tensors[t], alone.tensors[t].values);
  }
  std::map<std::string, Numbers> expected;
  for (std::size_t p = 0; p < alone.gradients.size(); ++p) expected[alone.gradients[p].name] = alone.gradients[p].values;
  struct Sum {
    Numbers values;
    unsigned pending;
    std::size_t rank;
  };
  std::map<std::string, Sum> first;  // by the first rank with the parameter
  // By name, and by the coordinates on axes on which the gradient is whole: there each rank, or group of ranks, has all of it.
  std::map<std::pair<std::string, std::vector<std::size_t>>, Sum> sums;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t p = 0; p < ranks[r].gradients.size(); ++p) {
      const Piece& piece = ranks[r].gradients[p];
      const auto whole = expected.find(piece.name);
      if (whole == expected.end())
        differ(where + ": rank " + std::to_string(r) + " has a parameter " + piece.name +
               ", one rank has none of this name: names do not depend on the layout");
      const unsigned pending = ranks[r].pending[p] & all;
      const Sum& before = first.try_emplace(piece.name, Sum{{}, pending, r}).first->second;
      if (before.pending != pending)
        differ(where + ": ranks disagree over which axes the gradient of " + piece.name + " is unreduced: on rank " +
               std::to_string(pending ? r : before.rank) + " a sum over the axis, on rank " +
               std::to_string(pending ? before.rank : r) +
               " nothing; every rank accumulates a gradient of the same type, one without a part of it zeros");
      if (!pending) {
        compare(report, piece, whole->second);
        continue;
      }
      std::vector<std::size_t> group = ranks[r].coordinates;
      for (std::size_t i = 0; i < axes.size(); ++i)
        if ((pending | ranks[r].sharded[p]) & axes[i]) group[i] = 0;  // its ranks have terms, or pieces
      Sum& sum = sums.try_emplace({piece.name, group}, Sum{Numbers(ranks[r].sizes[p], 0.0), pending, r}).first->second;
      for (std::size_t i = 0; i < piece.values.size(); ++i) sum.values[piece.places[i]] += piece.values[i];
    }
  for (auto& [key, sum] : sums) {
    Piece piece{key.first, std::move(sum.values), {}};
    for (std::size_t i = 0; i < piece.values.size(); ++i) piece.places.push_back(i);
    compare(report, piece, expected[key.first]);
  }
}

/// Runs `body(comm)` on every rank. Errors of any rank become one Error that begins with `where` and ends with the first text.
inline void on_ranks(int ranks, const std::string& where, std::vector<Share>& shares,
                     const std::function<void(const Communicator&, Share&)>& body) {
  shares.resize(static_cast<std::size_t>(ranks));
  std::string first = "an exception that is no std::exception";
  try {
    comm::run_threads(ranks, [&](const Communicator& comm) {
      Share& share = shares[static_cast<std::size_t>(comm.rank())];
      try {
        body(comm, share);
      } catch (const AbortedError&) {
        throw;
      } catch (const std::exception& error) {
        share.error = error.what();
        throw;
      } catch (...) {
        share.error = "an exception that is no std::exception";
        throw Error(share.error);
      }
    });
    return;
  } catch (const std::exception& error) {
    first = error.what();
  } catch (...) {}
  std::string rank;
  for (std::size_t r = shares.size(); r-- > 0;)
    if (!shares[r].error.empty()) first = shares[r].error, rank = ", rank " + std::to_string(r);
  for (const std::string_view prefix : {"weft: ", "check_layer: "})
    if (first.starts_with(prefix)) first.erase(0, prefix.size());
  throw Error("check_layer_on: " + where + rank + ": " + first);
}

}  // namespace detail

}  // namespace weft::testing
