// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's piece of a result in a proof, with the placements by which the pieces of all ranks are put together
// (runtime/proof/assembly.hpp).
//
//   ProofPiece piece{.over_tp = {ProofPiece::shard, 1}, .tp_rank = 1};   // columns

#include <cstddef>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::detail {

struct ProofPiece {
  enum Kind : unsigned char { whole, shard, partial };
  struct Cut {
    Kind kind = whole;
    int dim = 0;
  };
  Cut over_dp = {}, over_cp = {}, over_tp = {};
  std::size_t dp_rank = 0, cp_rank = 0, tp_rank = 0;
  std::size_t first = 0, samples = 1;  ///< of the micro-batch
  std::vector<std::size_t> shape = {};
  std::vector<double> values = {};
};

}  // namespace weft::detail
