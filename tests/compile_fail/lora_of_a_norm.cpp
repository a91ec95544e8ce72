// SPDX-License-Identifier: Apache-2.0
// A low-rank adapter for a layer that is not linear.
// expect: weft: LoraLinear<Base> is an adapter beside a linear layer
#include <weft/nn/lora.hpp>
#include <weft/weft.hpp>

using namespace weft;

using C = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;

#ifdef WEFT_FAIL
void go(const C&) { (void)sizeof(LoraLinear<LayerNorm>); }
#else
void go(const C& context) { LoraLinear<Linear<>>(context / "in", 8, 16); }
#endif
