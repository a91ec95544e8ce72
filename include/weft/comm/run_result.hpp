// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the ranks that a backend ran came to their end.

#include <exception>

#include <weft/core/standard.hpp>

namespace weft::comm {

struct RunResult {
  std::exception_ptr error;  ///< of the rank that failed first, or null
  int rank = -1;             ///< which that was
  bool complete = true;      ///< false: some ranks still ran some time after the failure, and were left alone
};

}  // namespace weft::comm
