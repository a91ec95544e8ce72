// SPDX-License-Identifier: Apache-2.0
#include <weft/core/scalar.hpp>

#include <doctest/doctest.h>

TEST_CASE("bfloat16 keeps small whole numbers") { CHECK(float(weft::bfloat16(3.0f)) == 3.0f); }
