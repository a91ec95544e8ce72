// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random numbers in a forward, as functions of (seed, path, step, global element): the same in every layout, in every view whose
// dim 0 is the tokens or samples, and when a layer is recomputed; fields that domain axes cut too, in pieces of any extents. For
// latent variables, diffusion and noisy training.
//
//   Noise noise(context / "noise");          // a member of a Module
//   auto noisy = x + 0.1 * noise.normal(x);  // in its forward

#include <cstdint>
#include <string>

#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/context/global_index.hpp>
#include <weft/core/philox.hpp>
#include <weft/engine/registry.hpp>
#include <weft/kernels/random.hpp>

namespace weft {

/// A source of random numbers under the context's path. Each source draws one number for each element in a step, so a second
/// independent draw needs a second Noise. It draws in training and outside of it; the step is the model's.
class Noise {
 public:
  /// Refuses other arguments.
  template <class... A>
  requires detail::WrongArguments<detail::LayerArguments<0>, A...>
  explicit Noise(const A&...) : Noise(detail::refused_layer<Noise>()) {
    static_assert(sizeof...(A) > 99,
                  "weft: Noise takes the context with its name, in the constructor of your Module: `Noise noise;`, "
                  "noise(context / \"noise\")");
  }
  template <class Context>
  requires requires { typename Context::scalar; }
  explicit Noise(const Context& context) : Noise(detail::construction_of(context)) {}

  /// Normally distributed numbers with mean 0 and deviation 1, a constant with x's shape, element type and placements, of which
  /// none is Partial. Collective on the domain axes that cut x. Throws LayoutError or ShapeError if x's elements have no global
  /// index (global_index_of). Numerics: rounded once from double.
  template <class Context, AnyTensor X>
  X normal(const Context& context, const X& x) const {
    return drawn(context, x, [](auto&&... a) { kernels::initialise_normal(a..., 0.0, 1.0); });
  }
  template <class C, class X>
  Variable<C, X> normal(const Variable<C, X>& x) const {
    return {normal(x.context(), x.value()), x.tape()};
  }
  /// The same, uniform in [0, 1), 24 bits.
  template <class Context, AnyTensor X>
  X uniform(const Context& context, const X& x) const {
    return drawn(context, x, [](auto&&... a) { kernels::initialise_uniform(a..., 0.0, 1.0); });
  }
  template <class C, class X>
  Variable<C, X> uniform(const Variable<C, X>& x) const {
    return {uniform(x.context(), x.value()), x.tape()};
  }

 private:
  explicit Noise(const detail::Construction& here) : site_(site_of(here.path)) {
    if (here.registry) here.registry->add_site(here.path, "Noises", 1);
  }
  template <class Context, class X, class F>
  X drawn(const Context& context, const X& x, F draw) const {
    require_not_partial<X>();
    const detail::GlobalIndex place = detail::global_index_of(context, x);
    X out(x.device(), x.shape());
    const std::uint64_t key = key_of(context.env.seed, site_, context.env.step);
    place.for_each_block(x.shape().rank() == 0 ? 1 : x.shape()[0], [&](const detail::ElementBlock& b) {
      draw(x.device(), b.rows, b.columns, out.data() + b.offset, key, b.first_row, b.first_column, b.row_width);
    });
    return out;
  }

  std::uint64_t site_;
};

}  // namespace weft
