// SPDX-License-Identifier: Apache-2.0
#pragma once
// A mixture of experts, which replaces an MLP: each token is processed by the top k of `experts` networks. The layer is
// independent of the mesh: under ExpertParallel the experts are distributed over the ranks of ep (and sharded over etp);
// otherwise every rank has all of them.
//
//   Residual(Sequential(RmsNorm(...), Mixture(context / "block_sparse_moe", width, intermediate, {.experts = 8, .top_k = 2})))

#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/autograd/row_terms.hpp>
#include <weft/kernels/routing.hpp>
#include <weft/mesh/layout.hpp>
#include <weft/nn/expert_exchange.hpp>
#include <weft/nn/experts.hpp>
#include <weft/nn/router.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {
// The context of the experts: that of the expert mesh under ExpertParallel, otherwise the dense one.
template <class Context>
auto expert_context(const Context& context) {
  if constexpr (Context::has(ep{})) return context.expert_mesh();
  else return context;
}
}  // namespace detail

/// x [tokens, width] -> Σ over a token's experts of weight · expert(x), with placement Shard<tp, 0> under tp (rows are sharded so
/// that each token is routed once; Residual brings the output to x's layout). Parameters "gate.weight" [experts, width] and
/// "experts.e.w1.weight", "experts.e.w2.weight", "experts.e.w3.weight" (Hugging Face's Mixtral). Without ExpertParallel every
/// rank holds all experts, also under tp. Rows must be divisible by tp (ShapeError), experts by ep and intermediate by etp
/// (LayoutError). Numerics: sums over a token's experts are in the order of their scores; equal to one rank up to the rounding of
/// sums of weight gradients and over etp, unless RouterOptions::level makes the result depend on the layout.
class Mixture : public Primitive<Mixture> {
 public:
  template <class Context>
  Mixture(const Context& context, std::size_t width, std::size_t intermediate, const RouterOptions& options,
          double standard_deviation = 0.02, double output_deviation = 0.02)
      : router(context / "gate", width, options, standard_deviation),
        experts(make_experts(context, width, intermediate, options, standard_deviation, output_deviation)) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    require_not_partial<X>();
    const auto rows = to<Shard<tp, 0>>(context, x);
    using Rows = std::remove_const_t<decltype(rows)>;
    using T = typename Rows::value_type;
    using Exec = typename Rows::execution_space;
    using Indices = Tensor<std::int32_t, Exec>;
    auto& device = rows.device();
    const std::size_t width = rows.columns(), k = router.options().top_k;
    // The receiving rank pads rows that are sent.
    auto routed = router.forward(context, rows, Context::has(ep{}) ? 1 : detail::expert_grain<T>);
    const auto there = [&](const Indices& sorted, const std::vector<std::int32_t>& host) {
      return sorted ? sorted : detail::to_device<std::int32_t>(device, {host.size()}, host);
    };
    const Indices order = there(routed.order, routed.assignments.order), place = there(routed.place, routed.assignments.place);
    Rows packed(device, {order.size(), width});  // [rows kept, width], by expert
    kernels::gather_rows<T>(device, order.size(), width, order.data(), k, rows.data(), nullptr, packed.data());
    auto visit = visit_experts<Rows>(context, packed, routed.assignments.counts,
                                     [&](const auto& visitors, const auto& counts) { return experts.forward(visitors, counts); });
    Rows y(device, rows.shape());
    kernels::sum_places<T>(device, rows.rows(), width, place.data(), k, visit.back.data(), routed.weights.data(), y.data());
    using V = decltype(visit);
    return Result{std::move(y),
                  Saved<X, Rows, decltype(routed), V, Indices>{rows, std::move(routed), std::move(visit), order, place}};
  }

  template <class Context, class S, class G>
  auto backward_input(const Context& context, S saved, const G& g) {
    using X = typename S::input_type;
    using Rows = decltype(saved.rows);
    require_gradient_of<Rows, G>();
    using T = typename Rows::value_type;
    using A = accumulate_t<T>;
    auto& device = g.device();
    const auto& routed = saved.routed;
    const std::size_t rows = g.rows(), width = g.columns(), k = router.options().top_k, kept = saved.order.size();
    Tensor<A, typename Rows::execution_space> d_weights(device, {rows, k});
    kernels::dot_places<T>(device, rows, width, saved.place.data(), k, saved.visit.back.data(), g.data(), d_weights.data());
    auto gate = router.backward_input(context, saved.rows, routed, d_weights);
    Rows packed(device, {kept, width});
    kernels::gather_rows<T>(device, kept, width, saved.order.data(), k, g.data(), routed.weights.data(), packed.data());
    auto split = visit_back(context, saved.visit, packed);
    Rows dx(device, g.shape());
    kernels::sum_places<T>(device, rows, width, saved.place.data(), k, split.input_gradient.data(),
                           static_cast<const A*>(nullptr), dx.data());
    kernels::accumulate<A, T>(device, dx.size(), gate.input_gradient.data(), dx.data());
    auto home = to_layout_of<gradient_t<X>>(context, dx);
    using D = Deferred<decltype(gate.deferred), typename decltype(split)::deferred_type>;
    return InputGradient<decltype(home), D>{
        std::move(home),
        {std::move(gate.deferred), std::move(split.deferred), saved.visit.counts, std::move(saved.routed.assignments)}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    const auto tokens = deferred.gate.second;
    router.backward_weight(context, std::move(deferred.gate));
    if constexpr (!Context::has(ep{}))
      if (detail::row_terms_of(context, tokens)) {
        const std::size_t k = router.options().top_k;
        return experts.backward_weight_in_terms(context, deferred.experts, tokens,
                                                [&](std::size_t expert, std::size_t first, std::size_t count) {
                                                  return deferred.assignments.run_of(expert, first * k, count * k);
                                                });
      }
    experts.backward_weight(std::move(deferred.experts), deferred.counts);
  }

  /// The part of the objective that is in the gradient but not in the output: this rank's share of the auxiliary losses of that
  /// forward.
  template <class S>
  static double added_loss(const S& saved) {
    return saved.routed.added_loss;
  }

  detail::Router router;
  detail::Experts experts;

 private:
  struct NoExchange {};
  template <class Rows, class E, class S>
  struct Visit {
    Rows back;  // outputs in the order of the packed rows
    E exchange;
    S saved;
    std::vector<std::uint64_t> counts;  // rows of the experts here
  };
  template <class X, class Rows, class R, class V, class Indices>
  struct Saved {
    using input_type = X;
    Rows rows;
    R routed;
    V visit;
    Indices order, place;
  };
  template <class G, class E>
  struct Deferred {
    G gate;
    E experts;
    std::vector<std::uint64_t> counts;
    detail::Assignments assignments;
  };

  template <class Context>
  static detail::Experts make_experts(const Context& context, std::size_t width, std::size_t intermediate,
                                      const RouterOptions& options, double standard_deviation, double output_deviation) {
    detail::require_experts(options.experts, intermediate, context.size(ep{}), context.size(etp{}));
    return detail::Experts(detail::expert_context(context / "experts"), options.experts, width, intermediate, standard_deviation,
                           output_deviation);
  }

  template <class Rows, class Context, class F>
  static auto visit_experts(const Context& context, const Rows& packed, const std::vector<std::uint64_t>& counts, F&& work) {
    if constexpr (Context::has(ep{})) {
      detail::Exchange<typename Rows::execution_space> exchange(context, packed.device(), counts,
                                                                detail::expert_grain<typename Rows::value_type>);
      auto result = work(exchange.to_experts(context, to_expert_mesh(packed)), exchange.counts());
      auto back = to_dense_mesh<Rows>(exchange.from_experts(context, result.output));
      using S = typename decltype(result)::saved_type;
      return Visit<Rows, decltype(exchange), S>{std::move(back), exchange, std::move(result.saved), exchange.counts()};
    } else {
      auto result = work(packed, counts);
      using S = typename decltype(result)::saved_type;
      return Visit<Rows, NoExchange, S>{std::move(result.output), {}, std::move(result.saved), counts};
    }
  }
  template <class Context, class V, class Rows>
  auto visit_back(const Context& context, V& visit, const Rows& packed) {
    if constexpr (Context::has(ep{})) {
      auto split = experts.backward_input(std::move(visit.saved), visit.exchange.to_experts(context, to_expert_mesh(packed)),
                                          visit.counts);
      auto back = to_dense_mesh<Rows>(visit.exchange.from_experts(context, split.input_gradient));
      return InputGradient{std::move(back), std::move(split.deferred)};
    } else {
      return experts.backward_input(std::move(visit.saved), packed, visit.counts);
    }
  }
};

}  // namespace weft
