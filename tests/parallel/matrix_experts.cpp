// SPDX-License-Identifier: Apache-2.0
// The matrix of layouts on thread ranks, mixtures of experts.

#include "support/matrix.hpp"

using namespace weft_test;

namespace {
const auto all = [](const MatrixEntry&) { return true; };
}

TEST_CASE("mixtral: dp or ZeRO, tp, cp by a ring, pp, ep, etp") {
  CHECK(check_matrix<RingExperts, FoldedMesh>(experts, mixtral_config(), all) >= 11);
}
TEST_CASE("mixtral, sequence parallel") {
  CHECK(check_matrix<SequenceExperts, ExpertMesh>(sequence_experts, mixtral_config(), all) >= 6);
}
