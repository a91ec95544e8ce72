// SPDX-License-Identifier: Apache-2.0
// Sums of gradients are kept as the model computes or as its layers add.
// expect: MixedPrecision's Gradient must be Param, or the type in which layers add gradients
#include <weft/parallel/policies.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Policy = MixedPrecision<bfloat16, float, float16>;
#else
using Policy = MixedPrecision<bfloat16, float, bfloat16>;
#endif

void go(ModelOptions& options) { Policy::apply(options); }
