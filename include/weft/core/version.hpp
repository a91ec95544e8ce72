// SPDX-License-Identifier: Apache-2.0
#pragma once
// The version of weft. It is defined only here: CMake and Conan read it from this file.

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#include <weft/core/standard.hpp>

namespace weft {

#define WEFT_TEXT_OF(x) #x
#define WEFT_VERSION_TEXT(major, minor, patch) WEFT_TEXT_OF(major) "." WEFT_TEXT_OF(minor) "." WEFT_TEXT_OF(patch)
/// The version as a text: "0.1.0".
constexpr const char* version() { return WEFT_VERSION_TEXT(WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH); }
#undef WEFT_TEXT_OF
#undef WEFT_VERSION_TEXT

}  // namespace weft
