// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a test can tell the test double of cuBLASLt, and ask it.

namespace fake_cublaslt {

bool& epilogues();  ///< whether it has any; to be changed before a product is first asked for
int& fused();       ///< products with an epilogue so far

}  // namespace fake_cublaslt
