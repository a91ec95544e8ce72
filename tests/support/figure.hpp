// SPDX-License-Identifier: Apache-2.0
#pragma once
// The figures in docs/reliability.md that tests measure. Each is a line on standard output, which ./bench/run reliability copies
// into its table; the long form of a test has more rounds.
//
//   for (int run = 0; run < weft_test::rounds(50); ++run) ...          // 50, or WEFT_TEST_RUNS
//   weft_test::figure(12, injected, "gradients spoilt", wrong, "steps not skipped or changed");

#include <cstdio>
#include <cstdlib>

namespace weft_test {

inline long rounds(long in_the_suite) {
  const char* text = std::getenv("WEFT_TEST_RUNS");
  return text != nullptr && std::atol(text) > 0 ? std::atol(text) : in_the_suite;
}

/// True in a run of long forms: ./tests/run --long.
inline bool long_form() {
  const char* text = std::getenv("WEFT_TEST_LONG");
  return text != nullptr && *text == '1';
}

/// `bad` of `count` were not as they must be.
inline void figure(int number, unsigned long long count, const char* what, unsigned long long bad, const char* wrong) {
  std::printf("figure %d: %llu %s, %llu %s\n", number, count, what, bad, wrong);
  std::fflush(stdout);
}

}  // namespace weft_test
