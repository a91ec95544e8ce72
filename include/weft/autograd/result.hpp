// SPDX-License-Identifier: Apache-2.0
#pragma once
// The results of a layer: that of forward, that of a forward which begins with a sum, and that of the first half of backward.
//
//   return Result{output, saved};                  // forward
//   return SumResult{sum, Result{output, saved}};  // forward_on_sum
//   return InputGradient{gradient, deferred};      // backward_input

#include <weft/core/standard.hpp>

namespace weft {

/// The result of `forward`: the output, and the state saved for backward.
template <class Output, class Saved>
struct Result {
  using output_type = Output;
  using saved_type = Saved;
  Output output;
  Saved saved;
};
template <class O, class S>
Result(O, S) -> Result<O, S>;

/// The result of `forward_on_sum`: the sum, and the result of `forward` for it.
template <class X, class Output, class Saved>
struct SumResult {
  X sum;
  Result<Output, Saved> result;
};
template <class X, class O, class S>
SumResult(X, Result<O, S>) -> SumResult<X, O, S>;

/// The result of `backward_input`: the gradient of the input, and the state that backward_weight needs.
template <class Gradient, class Deferred>
struct InputGradient {
  using deferred_type = Deferred;
  Gradient input_gradient;
  Deferred deferred;
};
template <class G, class D>
InputGradient(G, D) -> InputGradient<G, D>;

}  // namespace weft
