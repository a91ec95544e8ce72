// SPDX-License-Identifier: Apache-2.0
// With two.cpp: every header twice in one file and once more in a second one of the same program. A header without its
// guard is defined twice, a function that is not inline does not link.
// clang-format would take out the second one.
// clang-format off
#include "all_headers.hpp"
#include "all_headers.hpp"
// clang-format on

int other_translation_unit();

int main() { return other_translation_unit(); }
