// SPDX-License-Identifier: Apache-2.0
// The symbols by which the linker refuses programs that were compiled in different ways (core/inline.hpp).
#include <weft/core/inline.hpp>

namespace weft::detail {
extern "C" {
char weft_with_and_without_WEFT_COMPILED = 0;
char WEFT_REGISTERS = 0;
}
}  // namespace weft::detail
