// SPDX-License-Identifier: Apache-2.0
#pragma once
// Low-rank adapters of linear layers (LoRA: Hu et al., arXiv:2106.09685), and the policy that gives them to a model's type. The
// adapter adds a product of two small matrices to a layer whose own parameters are frozen.
//
//   DataParallel<TensorParallel<models::BasicLlama<float, Lora>>> model(mesh, config, {.lora = {.rank = 8}});

#include <cmath>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/kernels/activation.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/summed_product.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

// The sharding of a Linear determines that of its adapter.
template <class L>
struct LinearMode {
  static constexpr bool known = false;
  using type = Whole;
};
template <class Mode, StoredAs Stored, bool Bias>
struct LinearMode<Linear<Mode, Stored, Bias>> {
  static constexpr bool known = true;
  using type = Mode;
};

}  // namespace detail

/// y = base(x) + alpha / rank · dropout(x) Aᵀ Bᵀ, for a Linear `Base` and with its placement. Parameters: the base's, and the
/// adapter's "lora_A.weight" [rank, in], drawn uniformly in ±1/√in (Kaiming, a = √5), and "lora_B.weight" [out, rank], initially
/// zero. Under tp a Column base shards B like its outputs, and messages have `rank` columns; a Row base shards A like its inputs,
/// without communication. ModelOptions::lora selects layers by name; a layer without an adapter is its base, with the same bits.
/// The model freezes all parameters that are not an adapter's. Saves only x: backward recomputes x Aᵀ. Numerics: equal to one
/// rank up to rounding, like the base.
template <class Base>
class LoraLinear : public Primitive<LoraLinear<Base>> {
  using Mode = typename detail::LinearMode<Base>::type;
  static constexpr bool column = std::is_same_v<Mode, Column>, row = std::is_same_v<Mode, Row>;
  using Down = std::conditional_t<row, Parameter<Shard<tp, 1>>, Parameter<>>;
  using Up = std::conditional_t<column, Parameter<Shard<tp, 0>>, Parameter<>>;
  static_assert(
      detail::LinearMode<Base>::known,
      "weft: LoraLinear<Base> is an adapter beside a linear layer: Base is a Linear<...>, such as LoraLinear<Linear<Column>>");

 public:
  static constexpr bool saves_input = true;
  /// With an adapter if the options of the model ask for one at this path.
  template <class Context>
  WEFT_COLD LoraLinear(const Context& context, std::size_t in, std::size_t out, const LinearOptions& options = {})
      : LoraLinear(context, in, out, options, detail::construction_of(context).lora) {}
  /// With an adapter by these options, independent of the model's.
  template <class Context>
  WEFT_COLD LoraLinear(const Context& context, std::size_t in, std::size_t out, const LinearOptions& options,
                       const LoraOptions* lora)
      : base(context, in, out, options) {
    if (!detail::takes_adapter(lora, detail::construction_of(context).path)) return;
    lora->check();  // the layer is used without a model
    adapter_.emplace(
        Adapter{Down(context / "lora_A", "weight", {lora->rank, in}, uniform(1 / std::sqrt(double(in))),
                     row ? options.sharding : ParameterSharding{}),
                Up(context / "lora_B", "weight", {out, lora->rank}, lora->up_deviation == 0 ? zeros : normal(lora->up_deviation),
                   column ? options.sharding : ParameterSharding{}),
                Dropout(context / "lora_dropout", lora->dropout), lora->scale(), options.sharding.segments});
  }

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    auto y = base.forward(context, x).output;
    if (adapter_) y = add(y, added(context, x));
    return Result{std::move(y), x};
  }
  template <class Context, class X, class G>
  auto backward_input(const Context& context, X x, const G& g) {
    using Low = low_t<Context, X>;
    std::optional<entered_t<Context, Low>> low;  // here, since the parameters may be released before backward_weight
    if (adapter_ && adapter_->up.trainable()) {
      const auto in = adapter_->dropout.forward(context, x).output;
      low.emplace(lowered(context, in));
    }
    auto split = base.backward_input(context, std::move(x), g);
    using D = Deferred<decltype(split.deferred), gradient_t<Low>, entered_t<Context, Low>>;
    std::optional<gradient_t<Low>> d_low;
    auto dx = std::move(split.input_gradient);
    if (adapter_) {
      const auto up = adapter_->up.template for_operand_type<std::conditional_t<row, G, entered_t<Context, Low>>>(g.device());
      const auto d_up = detail::summed_product<1>(context, g, up, Nothing{}, adapter_->segments);
      d_low.emplace(scale(to_layout_of<gradient_t<Low>>(context, d_up), adapter_->scale));
      auto d_input = contract<0, 1>(*d_low, adapter_->down.template for_operand_type<X>(g.device()));
      dx = add(dx, to_layout_of<gradient_t<X>>(context, adapter_->dropout.backward(context, Nothing{}, d_input)));
    }
    return InputGradient<decltype(dx), D>{std::move(dx), {std::move(split.deferred), std::move(d_low), std::move(low)}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    if (adapter_) {
      if (deferred.low) accumulate_product(context, adapter_->up, deferred.base.gradient, *deferred.low);
      const auto x = adapter_->dropout.forward(context, deferred.base.input).output;
      accumulate_product(context, adapter_->down, *deferred.d_low, x);
    }
    base.backward_weight(context, std::move(deferred.base));
  }

  // Versions with a GELU after or before the layer (GeluMlp), as in Linear.
  template <class Context, class X>
  auto forward_gelu(const Context& context, const X& x) const {
    if (!adapter_) return base.forward_gelu(context, x);
    auto before = forward(context, x).output;
    using Y = decltype(before);
    Y after(before.device(), before.shape());
    kernels::gelu_forward(before.device(), before.size(), before.data(), after.data());
    return std::pair{std::move(before), std::move(after)};
  }
  template <class Context, class X, class G>
  auto backward_input_gelu(const Context& context, X x, const G& g, const X& before) {
    using D = decltype(backward_input(context, x, g).deferred);
    if (!adapter_) {
      auto split = base.backward_input_gelu(context, std::move(x), g, before);
      return InputGradient<decltype(split.input_gradient), D>{std::move(split.input_gradient),
                                                              {std::move(split.deferred), {}, {}}};
    }
    auto split = backward_input(context, std::move(x), g);
    auto d_before = std::move(split.input_gradient);
    kernels::gelu_backward(g.device(), d_before.size(), before.data(), d_before.data(), d_before.data());
    return InputGradient<decltype(d_before), D>{std::move(d_before), std::move(split.deferred)};
  }

  /// True if the layer has an adapter.
  bool adapted() const { return adapter_.has_value(); }

  Base base;

 private:
  struct Adapter {
    Down down;
    Up up;
    Dropout dropout;
    double scale;
    std::vector<ParameterSharding::Segment> segments;  // of the dim that tp shards
  };
  template <class B, class Gradient, class Low>
  struct Deferred {
    B base;
    std::optional<Gradient> d_low;
    std::optional<Low> low;  // the scaled x Aᵀ; empty if B is not trained
  };
  // x Aᵀ has the placement of x if A is whole; all ranks of a Column layer need all of it.
  template <class Context, class Low>
  static auto enter(const Context& context, const Low& low) {
    if constexpr (column) return to<Replicated<tp>>(context, low);
    else return low;
  }
  template <class Context, class Low>
  using entered_t = decltype(enter(std::declval<const Context&>(), std::declval<const Low&>()));
  template <class Context, class X>
  using low_t = contract_t<X, decltype(std::declval<const Down&>().for_operand(std::declval<const X&>())), 0, 0>;

  template <class Context, class X>
  auto added(const Context& context, const X& input) const {
    const auto low = lowered(context, adapter_->dropout.forward(context, input).output);
    return contract<0, 0>(low, adapter_->up.for_operand(low));
  }
  // The scaled x Aᵀ.
  template <class Context, class X>
  auto lowered(const Context& context, const X& x) const {
    const auto low = detail::summed_product<0>(context, x, adapter_->down.for_operand(x), Nothing{}, adapter_->segments);
    return scale(enter(context, low), adapter_->scale);
  }

  std::optional<Adapter> adapter_;
};

/// The policy of a model's type with adapters: models::BasicGpt<float, Lora>, BasicLlama<float, Lora>, BasicMixtral<float, Lora>
/// (its attention). ModelOptions::lora selects the linear layers.
struct Lora {
  template <class L>
  using linear = LoraLinear<L>;
};
/// The policy of a model's type without adapters: its linear layers are plain.
struct NoAdapters {
  template <class L>
  using linear = L;
};

}  // namespace weft
