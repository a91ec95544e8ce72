// SPDX-License-Identifier: Apache-2.0
#pragma once
// The range of ranks of an elastic run, and the numbers of ranks in it that can serve the batch.
//
//   elastic::Options{.least = 2, .most = 4, .shares = 12}   // 2, 3 or 4 data ranks

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::elastic {

/// Options of an elastic run.
struct Options {
  int least = 1;  ///< ranks with which the run still goes on
  int most = 0;   ///< ranks that train; further ones are spares. 0: all
  /// The data ranks divide this number: the micro-batches of a step if the model is reproducible, else its sequences. 0: any
  /// number of data ranks is possible.
  std::size_t shares = 0;
  int ranks_per_data_rank = 1;  ///< the product of the other degrees: tp * pp * cp. A data rank leaves as a whole
  /// The numbers of ranks that the layout permits, if it has further conditions (experts, schedules). Empty: any number.
  std::vector<int> layouts = {};
  /// Thread ranks: seconds after which a new rank takes the seat of a lost one. Below 0: never. Processes: seconds that the run
  /// waits for processes started anew when too few ranks are left. 0 or below: it ends at once.
  double replace_after_s = -1;
  std::string checkpoint = {};  ///< the folder that errors name if the ranks cannot go on; empty: none
};

/// The advice of an error that ends the run.
inline std::string restart_advice(const Options& options) {
  return options.checkpoint.empty() ? "restart from a checkpoint" : "restart from the newest checkpoint in " + options.checkpoint;
}

/// The largest number of ranks, at most `available`, that the range and the batch permit; 0 if there is none.
inline int served(const Options& options, int available) {
  const int unit = options.ranks_per_data_rank, most = options.most > 0 && options.most < available ? options.most : available;
  for (int data = most / unit; data * unit >= options.least && data > 0; --data)
    if ((options.shares == 0 || options.shares % std::size_t(data) == 0) &&
        (options.layouts.empty() ||
         std::find(options.layouts.begin(), options.layouts.end(), data * unit) != options.layouts.end()))
      return data * unit;
  return 0;
}

/// Throws UsageError for a range without a number of ranks that can run. `ranks`: those that the program starts.
inline void require_served(const Options& options, int ranks) {
  const std::string range = weft::detail::joined({"elastic ", options.least, ":", options.most > 0 ? options.most : ranks, ": "});
  if (options.ranks_per_data_rank < 1)
    throw_error<UsageError>({range, "a data rank has ", options.ranks_per_data_rank, " ranks, and at least 1 is meant"});
  if (options.least < 1 || options.most < 0) throw_error<UsageError>({range, "a range begins with at least 1 rank"});
  if (options.most > 0 && options.least > options.most)
    throw_error<UsageError>({range, "the least number of ranks is above the most: write the smaller one first"});
  if (options.most > ranks || options.least > ranks)
    throw_error<UsageError>({range, "the run has only ", ranks, " ranks: start more, or give a smaller range"});
  if (served(options, ranks) == 0)
    throw_error<UsageError>({range, "no number of ranks in the range serves the batch: it is a multiple of ",
                             options.ranks_per_data_rank, ", and its data ranks divide the step's ", options.shares,
                             " shares (micro-batches if reproducible, else sequences)"});
}

}  // namespace weft::elastic
