// SPDX-License-Identifier: Apache-2.0
#include "all_headers.hpp"

int other_translation_unit() { return 0; }
