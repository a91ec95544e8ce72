// SPDX-License-Identifier: Apache-2.0
#pragma once
// Linear layers: whole, column-parallel and row-parallel (Megatron-LM, arXiv:1909.08053). Under tp a Column layer shards its
// outputs and a Row layer its inputs. Row returns a Partial sum that Residual reduces, so a pair needs one collective in forward
// and one in backward.
//
//   Sequential(Linear<Column>(context / "in", width, 4 * width), Gelu{}, Linear<Row>(context / "out", 4 * width, width))

#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/core/text.hpp>
#include <weft/nn/gathered_product.hpp>
#include <weft/nn/summed_product.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

/// The outputs are sharded over tp.
struct Column {};
/// The inputs are sharded over tp; the output is Partial.
struct Row {};
/// Every rank has the whole weight.
struct Whole {};

/// The storage order of a weight: [out, in] as in torch.nn.Linear, or [in, out] as in GPT-2's Conv1D.
enum class StoredAs { out_in, in_out };

/// Options of Linear.
struct LinearOptions {
  /// A normal weight and a bias of zeros, as in language models; replaces `initial_weight` and `initial_bias`.
  std::optional<double> standard_deviation = {};
  ParameterSharding sharding = {};  ///< of the dim that tp shards
  bool bias = true;                 ///< false: no bias, in a Linear whose type may have one
  /// Default: uniform(Fan::in), as in torch.nn.Linear. Both use the fans of the weight.
  std::optional<InitialValues> initial_weight = {}, initial_bias = {};
};

namespace detail {

struct LinearValues {
  InitialValues weight, bias;
};
// The initial values of a Linear [out, in] or [in, out].
WEFT_COLD inline LinearValues linear_values(const LinearOptions& options, std::string_view path, std::size_t in,
                                            std::size_t out) {
  if (options.standard_deviation && (options.initial_weight || options.initial_bias))
    throw_error<UsageError>({"layer ", path,
                             ": LinearOptions::standard_deviation is given beside initial_weight or initial_bias, ",
                             "which it replaces: give normal(deviation) and zeros there, or leave them out"});
  if (options.standard_deviation) return {normal(*options.standard_deviation), zeros};
  return {options.initial_weight.value_or(uniform(Fan::in)).with_fans(in, out),
          options.initial_bias.value_or(uniform(Fan::in)).with_fans(in, out)};
}

// Checks that the ranks' sum of a Row layer counts each input once: a rank's inputs must match its part of the weight.
WEFT_COLD inline void require_inputs_once(const ParameterState& weight, std::size_t dim) {
  if (weight.local().sharding(dim) == DimSharding::replicated)
    throw_error<LayoutError>(
        {"parameter ", weight.name(), " ", weight.global().text(),
         ": a Row layer would count inputs several times that several ranks hold alike; cut it so that each is one rank's"});
}
WEFT_OUT_OF_LINE inline void require_inputs_of(const Shape& x, const ParameterState& weight, std::size_t dim) {
  if (x.sharding(x.rank() - 1) == weight.local().sharding(dim)) return;
  throw_error<LayoutError>(
      {"parameter ", weight.name(), " ", weight.local().text(), ": its inputs ", x.text(),
       " are cut otherwise over tp (by segments, alike or padded), so a rank would multiply other elements than on one rank; "
       "give both the same ParameterSharding, and results of own kernels the marks of their inputs (Shape::set_sharding)"});
}

}  // namespace detail

/// y = x Wᵀ + b (out_in) or x W + b (in_out). x [tokens, in] -> [tokens, out]. Under tp, Column returns [tokens, out / tp] and
/// Row takes [tokens, in / tp]. Parameters: "weight" and, unless Bias or LinearOptions::bias is false, "bias" [out], both uniform
/// in ±1/√in unless LinearOptions has other initial values. Throws LayoutError if tp does not divide the sharded dim. A Row layer
/// also throws it if its inputs are sharded differently from its weight, or if several ranks hold the same inputs. Numerics: Row
/// sums tp terms in rank order; equal to one rank up to rounding of that sum. With TensorOptions::piece_bytes a sum over tp
/// follows its product in pieces (nn/summed_product.hpp), and a product follows its gather in pieces
/// (tensor/gather_in_pieces.hpp).
template <class Mode = Whole, StoredAs Stored = StoredAs::out_in, bool Bias = true>
class Linear : public Primitive<Linear<Mode, Stored, Bias>> {
  static constexpr bool column = std::is_same_v<Mode, Column>, row = std::is_same_v<Mode, Row>,
                        stored_in_out = Stored == StoredAs::in_out;
  static_assert(column || row || std::is_same_v<Mode, Whole>,
                "weft: Linear's Mode template parameter must be Column, Row or Whole");
  static constexpr int out_dim = stored_in_out ? 1 : 0, cut_dim = column ? out_dim : 1 - out_dim;
  using WeightParameter = std::conditional_t<column || row, Parameter<Shard<tp, cut_dim>>, Parameter<>>;
  using BiasParameter = std::conditional_t<column, Parameter<Shard<tp, 0>>, Parameter<>>;
  struct NoBias {
    NoBias(const auto&...) {}
  };

 public:
  static constexpr bool saves_input = true;
  /// Refuses other arguments.
  template <class... A>
  requires detail::WrongArguments<detail::LayerArguments<2, std::size_t, std::size_t, LinearOptions>, A...>
  explicit Linear(const A&...) : Linear(detail::refused_layer<Linear>()) {
    static_assert(
        sizeof...(A) > 99,
        "weft: Linear takes the context with its name, the inputs and the outputs, in the constructor of your Module: `Linear<> "
        "layer;`, layer(context / \"layer\", in, out), and options with their names, {.bias = false}");
  }
  template <class Context>
  Linear(const Context& context, std::size_t in, std::size_t out, const LinearOptions& options = {})
      : Linear(context, in, out, options, detail::linear_values(options, detail::construction_of(context).path, in, out)) {
    if constexpr (row) detail::require_inputs_once(weight.state(), cut_dim);
  }

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    if constexpr (arrives_in_pieces<X>) {
      if (in_pieces(context, x)) return multiply_pieces(context, x);
    }
    if constexpr (row) detail::require_inputs_of(x.shape(), weight.state(), cut_dim);
    auto inside = enter(context, x);
    auto w = weight.for_operand(inside);
    using Y = contract_t<decltype(inside), decltype(w), 0, stored_in_out ? 1 : 0>;
    if constexpr (!detail::contract_fits < decltype(inside), decltype(w), 0, stored_in_out ? 1 : 0 >) {
      return Result{detail::AlreadyRefused(), Nothing{}};
    } else {
      if constexpr (Bias)
        if (bias)
          return Result{
              detail::summed_product < stored_in_out ? 1 : 0 > (context, inside, w, bias_for<Y>(context, inside), segments_), x};
      return Result{detail::summed_product < stored_in_out ? 1 : 0 > (context, inside, w, Nothing{}, segments_), x};
    }
  }
  template <class Context, class X, class G>
  auto backward_input(const Context& context, X x, const G& g) {
    auto dx = to_layout_of<gradient_t<X>>(
        context,
        detail::summed_product < stored_in_out
            ? 0
            : 1 > (context, g, weight.template for_operand_type<entered_t<Context, X>>(g.device()), Nothing{}, segments_));
    return InputGradient<decltype(dx), Deferred<X, G>>{std::move(dx), {std::move(x), g}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    if constexpr (Bias && !detail::on_host<typename Context::execution_space>) {
      // A library sums the rows in the same pass; on hosts this needs one more pass in any case.
      if (bias && weight.trainable() && !in_pieces(context, deferred.input)) {
        const auto inside = enter(context, deferred.input);
        if constexpr (stored_in_out)
          return add_bias_gradient(context,
                                   accumulate_product_and_sums<kernels::Factor::right>(weight, inside, deferred.gradient));
        else
          return add_bias_gradient(context,
                                   accumulate_product_and_sums<kernels::Factor::left>(weight, deferred.gradient, inside));
      }
    }
    add_weight_gradient(context, deferred.input, deferred.gradient);
    if constexpr (Bias)
      if (bias && bias->trainable()) add_row_sums(context, deferred.gradient);
  }

  /// The output and its GELU, for a following GELU (GeluMlp); saves x.
  template <class Context, class X>
  auto forward_gelu(const Context& context, const X& x) const {
    static_assert(Bias && !row,
                  "weft: a GELU follows a Linear with a bias that is Whole or Column: a Row product is a term of a sum");
    if (in_pieces(context, x) || !bias) {
      auto before = forward(context, x).output;
      using Y = decltype(before);
      Y after(before.device(), before.shape());
      kernels::gelu_forward(before.device(), before.size(), before.data(), after.data());
      return std::pair{std::move(before), std::move(after)};
    }
    auto inside = enter(context, x);
    auto w = weight.for_operand(inside);
    using Y = contract_t<decltype(inside), decltype(w), 0, stored_in_out ? 1 : 0>;
    return linear_gelu < stored_in_out ? 1 : 0 > (inside, w, bias_for<Y>(context, inside));
  }
  /// The gradient of `before`, whose GELU was this layer's input x.
  template <class Context, class X, class G>
  auto backward_input_gelu(const Context&, X x, const G& g, const X& before) {
    static_assert(!column,
                  "weft: a GELU comes before a Linear that is Whole or Row: a Column layer's input has a gradient that is a sum");
    auto d_before =
        contract_gelu < stored_in_out ? 0 : 1 > (g, weight.template for_operand_type<entered_t<Context, X>>(g.device()), before);
    return InputGradient<decltype(d_before), Deferred<X, G>>{std::move(d_before), {std::move(x), g}};
  }

  /// The same in operations on Variables, inside of grad (operations/grad.hpp).
  template <class V>
  auto formula(const V& x) const {
    const auto inside = [&] {
      if constexpr (column) return to<Replicated<tp>>(x);
      else return x;
    }();
    auto y = contract < 0, stored_in_out ? 1 : 0 > (inside, beside(inside, weight));
    if constexpr (Bias && row) return bias ? add_row(y, to<Partial<tp>>(beside(y, *bias))) : y;
    else if constexpr (Bias) return bias ? add_row(y, beside(y, *bias)) : y;
    else return y;
  }

  WeightParameter weight;
  [[no_unique_address]] std::conditional_t<Bias, std::optional<BiasParameter>, NoBias> bias;

 private:
  template <class X, class G>
  struct Deferred {
    X input;
    G gradient;
  };
  template <class Context>
  Linear(const Context& context, std::size_t in, std::size_t out, const LinearOptions& options,
         const detail::LinearValues& values)
      : weight(context, "weight", stored_in_out ? Shape{in, out} : Shape{out, in}, values.weight, options.sharding),
        bias(make_bias(context, out, options, values.bias)),
        segments_(options.sharding.segments) {}
  template <class Context>
  static auto make_bias(const Context& context, std::size_t out, const LinearOptions& options, const InitialValues& values) {
    if constexpr (!Bias) return NoBias{};
    else if (!options.bias) return std::optional<BiasParameter>();
    else
      return std::optional<BiasParameter>(std::in_place, context, "bias", Shape{out}, values,
                                          column ? options.sharding : ParameterSharding{});
  }
  template <class Context, class X>
  static auto enter(const Context& context, const X& x) {
    if constexpr (column) return to<Replicated<tp>>(context, x);
    else return x;
  }
  template <class Context, class X>
  using entered_t = decltype(enter(std::declval<const Context&>(), std::declval<const X&>()));

  // Under sequence parallelism a Column layer's input is sharded by rows, stored that way, and gathered while it is multiplied:
  // before it, if sums have fixed terms.
  template <class X>
  static constexpr bool arrives_in_pieces = column&& detail::rows_cut_over_tp<X>;
  template <class Context, class X>
  static bool in_pieces(const Context& context, const X& x) {
    if constexpr (arrives_in_pieces<X>) return context.size(tp{}) > 1 && x.device().sum_terms() == 0;
    else return false;
  }
  template <class Context, class X>
  auto multiply_pieces(const Context& context, const X& x) const {
    using Inside = entered_t<Context, X>;
    auto w = weight.template for_operand_type<Inside>(x.device());
    using Y = contract_t<Inside, decltype(w), 0, stored_in_out ? 1 : 0>;
    Y y(x.device(), Shape{x.rows() * context.size(tp{}), stored_in_out ? w.columns() : w.rows()}.set_sharding(
                        1, w.shape().sharding(out_dim)));
    const typename Y::value_type* added = nullptr;
    if constexpr (Bias)
      if (bias) added = bias_for<Y>(context, x).data();  // the parameter's memory, without a copy
    detail::gathered_product<stored_in_out ? 1 : 0>(context.comm(tp{}), x, w, y, added);
    return Result{std::move(y), x};
  }
  template <class Context, class X, class G>
  void add_weight_gradient(const Context& context, const X& x, const G& g) {
    if (!weight.trainable()) return;
    if constexpr (arrives_in_pieces<X>) {
      if (in_pieces(context, x)) {
        using Inside = entered_t<Context, X>;
        using Product =
            std::conditional_t<stored_in_out, detail::product_of_rows_t<Inside, G>, detail::product_of_rows_t<G, Inside>>;
        const auto open = weight.template open_gradient<Product>(x.device());
        detail::accumulate_gathered_product<stored_in_out>(context.comm(tp{}), x, g, open.data, open.first);
        return;
      }
    }
    const auto inside = enter(context, x);
    if constexpr (stored_in_out) accumulate_product(context, weight, inside, g);
    else accumulate_product(context, weight, g, inside);
  }
  template <class Context, class G>
  void add_row_sums(const Context& context, const G& g) {
    using Sums = decltype(sum_rows(g));
    if (!detail::row_terms_of(context, g)) return add_bias_gradient(context, sum_rows(g));
    const auto sum = [&](std::size_t first, std::size_t count, auto* out, bool add) {
      kernels::column_sums<typename G::value_type>(g.device(), count, g.columns(), g.data() + first * g.columns(), g.columns(),
                                                   out, add);
    };
    if constexpr (row && Context::has(tp{})) detail::accumulate_rows<replace_t<Sums, Invariant<tp>>>(context, *bias, g, sum);
    else detail::accumulate_rows<Sums>(context, *bias, g, sum);
  }
  template <class Context, class S>
  void add_bias_gradient(const Context& context, const S& sums) {
    if constexpr (row) bias->accumulate(context, to<Invariant<tp>>(context, sums));
    else bias->accumulate(context, sums);
  }
  // A Row product is a term of a sum, so only one rank adds the bias.
  template <class Y, class Context, class X>
  auto bias_for(const Context& context, const X& inside) const {
    auto b = bias->template for_operand_type<Y>(inside.device());
    if constexpr (row) return to<Partial<tp>>(context, b);
    else return b;
  }

  std::vector<ParameterSharding::Segment> segments_;  // of the dim that tp shards
};

}  // namespace weft
