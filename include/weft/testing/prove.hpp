// SPDX-License-Identifier: Apache-2.0
#pragma once
// A proof in a test (runtime/prove.hpp): a program, or a part of one, in every layout of a few ranks, compared with one rank. The
// test's translation unit defines WEFT_PROVE_IN_DOUBLE before it includes weft, so that bounds are 1e-11 and the first wrong
// result is named.
//
//   TEST_CASE("my model agrees in every layout") { testing::prove([](World& world) { train(world, 2); }, {.ranks = 4}); }

#include <type_traits>

#include <weft/core/error.hpp>
#include <weft/runtime/prove.hpp>

namespace weft::testing {

/// Proves `program(world)`, which trains at least one step over a Mesh. Throws Error with the report's lines unless all possible
/// layouts agree, and UsageError for a program that cannot be proven.
template <class F>
runtime::ProofReport prove(F&& program, const runtime::ProofOptions& options = {}) {
  static_assert(std::is_invocable_v<F&, World&>, "weft: testing::prove calls program(world): it takes a World&");
  runtime::ProofReport report = runtime::prove(options, [&program](World& world) {
    program(world);
    return 0;
  });
  if (!report.proven()) throw_error<Error>({"testing::prove:\n", report.text()});
  return report;
}

}  // namespace weft::testing
