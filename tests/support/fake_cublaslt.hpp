// SPDX-License-Identifier: Apache-2.0
#pragma once
// Settings and queries of the test double of cuBLASLt.

#include <cstddef>
#include <string>
#include <vector>

namespace fake_cublaslt {

/// An algorithm that the double proposes for every product that allows it, in this order.
struct Algorithm {
  float ms = 1;               ///< time of a product
  std::size_t workspace = 0;  ///< that it needs and writes, in bytes
  bool atomics = false;       ///< adds with atomics, which a preference may exclude
};
std::vector<Algorithm>& algorithms();  ///< one at first
std::vector<int>& runs();              ///< of each algorithm so far

bool& epilogues();  ///< epilogues are supported; change it only before the first request of a product
int& fused();       ///< products with an epilogue so far

/// Calls that the documentation forbids and that a GPU need not detect: operands below the requested alignment of the algorithm,
/// a workspace smaller than the algorithm's or than the caller's value, an algorithm of another product.
std::vector<std::string>& violations();

}  // namespace fake_cublaslt
