// SPDX-License-Identifier: Apache-2.0
#pragma once
// A check of the C++ standard before any other header of weft, so that an older standard gives one line first instead of pages of
// errors about concepts and spans. Headers that include no other header of weft include this one, so every header has the check.
//
//   #include <weft/core/standard.hpp>

#if __cplusplus < 202002L
#error "weft: needs C++20 or newer: compile with -std=c++20 (CMake: target_compile_features(your_program PRIVATE cxx_std_20))"
#endif
