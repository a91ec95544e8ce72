// SPDX-License-Identifier: Apache-2.0
#pragma once
// The C++ standard that weft needs, checked before anything else of weft is read: an older one gives this line first, and not pages
// about concepts and spans. Headers that include no other header of weft include this one, so no header comes without it.
//
//   #include <weft/core/standard.hpp>

#if __cplusplus < 202002L
#error "weft: needs C++20 or newer: compile with -std=c++20 (CMake: target_compile_features(your_program PRIVATE cxx_std_20))"
#endif
