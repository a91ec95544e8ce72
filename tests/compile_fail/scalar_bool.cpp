// SPDX-License-Identifier: Apache-2.0
// bool is not an element type: vectors of it are bits, and no backend could send them.
// expect: constraints not satisfied|use of invalid variable template
#include <weft/core/scalar.hpp>

#ifdef WEFT_FAIL
constexpr auto type = weft::data_type_of<bool>;
#else
constexpr auto type = weft::data_type_of<signed char>;
#endif
static_assert(sizeof(type) == 1);
