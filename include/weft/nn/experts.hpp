// SPDX-License-Identifier: Apache-2.0
#pragma once
// The experts of a mixture: SwiGLU networks (arXiv:2002.05202), each applied to its rows of one matrix that is sorted by expert.
// A grouped product multiplies each expert's rows by its weight.
//
//   auto step = experts.forward(rows, counts);   // counts[e] rows of expert e

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/kernels/activation.hpp>
#include <weft/operations/products.hpp>

namespace weft::detail {

/// w2 (silu(w1 x) · w3 x) for `all` experts, an equal number on each rank of ep. Under etp w1 and w3 are sharded by rows, w2 by
/// columns. Parameters of expert e, named as in Hugging Face's Mixtral: "e.w1.weight", "e.w3.weight" [intermediate, width],
/// "e.w2.weight" [width, intermediate]. An expert without rows has a gradient of zero.
class Experts {
 public:
  /// `context`: of the expert mesh; or a dense one without it, then every rank has all experts.
  template <class Context>
  Experts(const Context& context, std::size_t all, std::size_t width, std::size_t intermediate, double standard_deviation,
          double output_deviation) {
    const std::size_t here = all / context.size(ep{});
    for (std::size_t e = 0; e < all; ++e) {
      const auto inner = context / std::to_string(e);
      if (e / here == context.rank(ep{})) {
        experts_.push_back({In(inner / "w1", "weight", {intermediate, width}, normal(standard_deviation)),
                            In(inner / "w3", "weight", {intermediate, width}, normal(standard_deviation)),
                            Out(inner / "w2", "weight", {width, intermediate}, normal(output_deviation))});
      } else {
        parameter_elsewhere(inner / "w1", "weight", {intermediate, width});
        parameter_elsewhere(inner / "w3", "weight", {intermediate, width});
        parameter_elsewhere(inner / "w2", "weight", {width, intermediate});
      }
    }
  }

  /// x [rows, width], sorted by expert, counts[e] rows of expert e (for separate terms, of each of its terms in order) -> [rows,
  /// width], terms of a sum over etp.
  template <class X>
  auto forward(const X& x, const std::vector<std::uint64_t>& counts) const {
    using H = hidden_t<X>;
    using Y = contract_t<H, decltype(experts_[0].w2.for_operand(x)), 0, 0>;
    const std::size_t rows = x.rows(), width = x.columns(), intermediate = experts_[0].w1.state().local()[0];
    H gate(x.device(), {rows, intermediate}), up(x.device(), {rows, intermediate});
    Y y(x.device(), {rows, width});
    each(counts, [&](const Expert& expert, std::size_t first, std::size_t count) {
      const X part = matrix_rows(x, first, count);
      run_matmul<0, 0>(part, expert.w1.for_operand(x), gate.data() + first * intermediate, false, nullptr);
      run_matmul<0, 0>(part, expert.w3.for_operand(x), up.data() + first * intermediate, false, nullptr);
    });
    const H active = activate(gate, up);
    each(counts, [&](const Expert& expert, std::size_t first, std::size_t count) {
      run_matmul<0, 0>(matrix_rows(active, first, count), expert.w2.for_operand(x), y.data() + first * width, false, nullptr);
    });
    return Result{std::move(y), Saved<X, H>{x, std::move(gate), std::move(up)}};
  }

  /// g [rows, width] -> the gradient of x, terms of a sum over etp.
  template <class S, class G>
  auto backward_input(S saved, const G& g, const std::vector<std::uint64_t>& counts) const {
    using X = decltype(saved.x);
    using H = decltype(saved.gate);
    const std::size_t rows = g.rows(), width = g.columns(), intermediate = saved.gate.columns();
    auto& device = g.device();
    const H active = activate(saved.gate, saved.up);
    H d_active(device, {rows, intermediate}), d_gate(device, {rows, intermediate}), d_up(device, {rows, intermediate});
    each(counts, [&](const Expert& expert, std::size_t first, std::size_t count) {
      run_matmul<0, 1>(matrix_rows(g, first, count), expert.w2.for_operand(g), d_active.data() + first * intermediate, false,
                       nullptr);
    });
    kernels::swiglu_backward(device, rows, intermediate, saved.gate.data(), intermediate, saved.up.data(), intermediate,
                             d_active.data(), d_gate.data(), intermediate, d_up.data(), intermediate);
    gradient_t<X> dx(device, {rows, width});
    each(counts, [&](const Expert& expert, std::size_t first, std::size_t count) {
      run_matmul<0, 1>(matrix_rows(d_gate, first, count), expert.w1.for_operand(g), dx.data() + first * width, false, nullptr);
      run_matmul<0, 1>(matrix_rows(d_up, first, count), expert.w3.for_operand(g), dx.data() + first * width, true, nullptr);
    });
    return InputGradient<gradient_t<X>, Deferred<X, H, G>>{std::move(dx),
                                                           {std::move(saved.x), active, std::move(d_gate), std::move(d_up), g}};
  }
  // An expert without rows still opens a gradient of zero, since other ranks wait for it. Separate terms of an expert are not
  // added here (see Exchange).
  template <class D>
  void backward_weight(D deferred, const std::vector<std::uint64_t>& counts) {
    const std::size_t terms = counts.size() / experts_.size();
    std::size_t at = 0;
    each(counts, [&](const Expert& held, std::size_t first, std::size_t count) {
      auto& expert = const_cast<Expert&>(held);
      if (at++ % terms != 0) {
        next_term(deferred.x.device(), expert.w1.state());
        next_term(deferred.x.device(), expert.w3.state());
        next_term(deferred.x.device(), expert.w2.state());
      }
      const auto x = matrix_rows(deferred.x, first, count);
      accumulate_product(expert.w1, matrix_rows(deferred.d_gate, first, count), x);
      accumulate_product(expert.w3, matrix_rows(deferred.d_up, first, count), x);
      accumulate_product(expert.w2, matrix_rows(deferred.g, first, count), matrix_rows(deferred.active, first, count));
    });
  }
  /// The same on a dense mesh, as sums of fixed terms over the rows of `tokens` (autograd/row_terms.hpp): run(e, first, count) is
  /// the pair of the first and the number of the sorted rows of expert e that belong to tokens [first, first + count).
  template <class Context, class D, AnyTensor X, class Run>
  void backward_weight_in_terms(const Context& context, const D& deferred, const X& tokens, const Run& run) {
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      const auto add = [&](auto& parameter, const auto& l, const auto& r) {
        accumulate_product_of_rows(context, parameter, tokens, l, r,
                                   [&](std::size_t first, std::size_t count) { return run(e, first, count); });
      };
      add(experts_[e].w1, deferred.d_gate, deferred.x);
      add(experts_[e].w3, deferred.d_up, deferred.x);
      add(experts_[e].w2, deferred.g, deferred.active);
    }
  }

 private:
  using In = Parameter<Shard<etp, 0>>;
  using Out = Parameter<Shard<etp, 1>>;
  struct Expert {
    In w1, w3;
    Out w2;
  };
  template <class X>
  using hidden_t = contract_t<X, decltype(std::declval<const In&>().for_operand(std::declval<const X&>())), 0, 0>;
  template <class X, class H>
  struct Saved {
    X x;
    H gate, up;
  };
  template <class X, class H, class G>
  struct Deferred {
    X x;
    H active, d_gate, d_up;
    G g;
  };

  template <class F>
  void each(const std::vector<std::uint64_t>& counts, const F& f) const {
    const std::size_t terms = counts.size() / experts_.size();
    std::size_t first = 0;
    for (std::size_t at = 0; at < counts.size(); ++at) {
      f(experts_[at / terms], first, static_cast<std::size_t>(counts[at]));
      first += static_cast<std::size_t>(counts[at]);
    }
  }
  template <class H>
  static H activate(const H& gate, const H& up) {
    H active(gate.device(), gate.shape());
    kernels::swiglu_forward(gate.device(), gate.rows(), gate.columns(), gate.data(), gate.columns(), up.data(), up.columns(),
                            active.data());
    return active;
  }

  std::vector<Expert> experts_;
};

}  // namespace weft::detail
