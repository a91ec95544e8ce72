// SPDX-License-Identifier: Apache-2.0
#pragma once
// The version of weft. It is defined only here: CMake and Conan read it from this file.

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
