// SPDX-License-Identifier: Apache-2.0
#pragma once
// The outcome of a run of several ranks by a backend.

#include <exception>

#include <weft/core/standard.hpp>

namespace weft::comm {

/// The end of a run of all ranks.
struct RunResult {
  std::exception_ptr error;  ///< of the first rank that failed, or null
  int rank = -1;             ///< the number of that rank
  bool complete = true;      ///< false: some ranks still ran some time after the failure and were abandoned
};

}  // namespace weft::comm
