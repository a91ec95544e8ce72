// SPDX-License-Identifier: Apache-2.0
// Together with two.cpp: every header twice in one file and once more in a second one of the same program. A header without a
// guard is a redefinition, a function that is not inline does not link.
// clang-format would remove the second include.
// clang-format off
#include "all_headers.hpp"
#include "all_headers.hpp"
// clang-format on

int other_translation_unit();

int main() { return other_translation_unit(); }
