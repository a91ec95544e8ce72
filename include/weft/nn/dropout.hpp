// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dropout with a mask that is a function of (seed, site, step, global element). The mask is bitwise the same in every layout, in
// every view whose dim 0 is the tokens, and when a layer is recomputed; nothing is saved. Dropout is linear, so it accepts
// Partial. Fields that domain axes cut have the masks of one rank; forward and backward are collective on these axes. Elements
// without a known global index are refused (global_index_of).
//
//   Dropout dropout(context / "dropout", 0.1);

#include <cstdint>
#include <string>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/context/global_index.hpp>
#include <weft/core/philox.hpp>
#include <weft/engine/registry.hpp>
#include <weft/kernels/random.hpp>

namespace weft {

/// x -> x · mask / (1 - probability), with x's placement; the identity outside training. No parameters.
class Dropout : public Primitive<Dropout> {
 public:
  /// Refuses other arguments.
  template <class... A>
  requires detail::WrongArguments<detail::LayerArguments<1, double>, A...>
  explicit Dropout(const A&...) : Dropout(detail::refused_layer<Dropout>()) {
    static_assert(sizeof...(A) > 99,
                  "weft: Dropout takes the context with its name and the probability, in the constructor of your Module: "
                  "`Dropout dropout;`, "
                  "dropout(context / \"dropout\", 0.1)");
  }
  /// Elements become 0 with this probability; the others are scaled by 1 / (1 - probability). The site is the context's path.
  template <class Context>
  Dropout(const Context& context, double probability) : Dropout(detail::construction_of(context), probability) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    return Result{apply(context, x), Nothing{}};
  }
  template <class Context, class G>
  auto backward(const Context& context, Nothing, const G& g) const {
    return apply(context, g);
  }

 private:
  Dropout(const detail::Construction& here, double probability) : probability_(probability), site_(site_of(here.path)) {
    if (!(probability >= 0 && probability < 1))
      throw_error<UsageError>({"dropout ", std::to_string(probability), " at ", here.path, " is not in [0, 1)"});
    if (probability > 0 && here.registry) here.registry->add_site(here.path, "Dropouts", probability);
  }
  template <class Context, class X>
  X apply(const Context& context, const X& x) const {
    if (probability_ == 0 || !context.env.training) return x;
    const detail::GlobalIndex place = detail::global_index_of(context, x);
    X y(x.device(), x.shape());
    const std::uint64_t key = key_of(context.env.seed, site_, context.env.step);
    place.for_each_block(x.shape().rank() == 0 ? 1 : x.shape()[0], [&](const detail::ElementBlock& b) {
      kernels::dropout(x.device(), b.rows, b.columns, x.data() + b.offset, y.data() + b.offset, probability_, key, b.first_row,
                       b.first_column, b.row_width);
    });
    y.mark_summed(x.summed());
    return y;
  }

  double probability_;
  std::uint64_t site_;
};

}  // namespace weft
