// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a test can tell the test double of cuBLASLt, and ask it.

#include <cstddef>
#include <string>
#include <vector>

namespace fake_cublaslt {

/// An algorithm that the double proposes for every product that allows it, in this order.
struct Algorithm {
  float ms = 1;               ///< that a product takes by it
  std::size_t workspace = 0;  ///< that it needs and writes, in bytes
  bool atomics = false;       ///< whether it adds with atomics, which a preference may exclude
};
std::vector<Algorithm>& algorithms();  ///< one at first
std::vector<int>& runs();              ///< of each algorithm so far

bool& epilogues();  ///< whether it has any; to be changed before a product is first asked for
int& fused();       ///< products with an epilogue so far

/// What callers did that the documentation forbids and a GPU need not notice: operands below the alignment that the algorithm was
/// asked for, a workspace smaller than the algorithm's or than the caller says, an algorithm of another product.
std::vector<std::string>& violations();

}  // namespace fake_cublaslt
