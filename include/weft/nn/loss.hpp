// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cross-entropy over a vocabulary that tp shards (loss parallel): the whole logits are never on one rank. The loss is the *sum*
// over this rank's tokens (LossSum). The executor divides it once by the count of the global batch, so it has the same divisor in
// every layout.
//
//   auto step = cross_entropy(context, logits, targets, vocabulary);   // {LossSum, softmax − onehot}

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/loss_sum.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/nn/norm.hpp>
#include <weft/nn/padded_logits.hpp>
#include <weft/nn/row_parts.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/around.hpp>
#include <weft/tensor/softmax_statistics.hpp>

namespace weft {

namespace detail {
// tp shards the vocabulary; any other axis shards the tokens or nothing.
template <class P>
constexpr bool vocabulary_fits =
    std::is_same_v<typename P::axis, tp> ? shard_dim<P> == 1 : shard_dim<P> <= 0 && kind_of<P> != Kind::replicated;
template <class X>
inline constexpr bool cut_by_vocabulary = false;
template <class T, class E, class... P>
inline constexpr bool cut_by_vocabulary<Tensor<T, E, P...>> = (vocabulary_fits<P> && ...);

// The saved inputs of a cross-entropy's gradient.
template <class Z, class Ids>
struct CrossEntropy {
  using Loss = typename LossOf<Z>::type;
  Z logits;
  Ids targets;
  Statistics<Z> maximum, sums;                   // sums [2, rows]: of powers, and the targets' logits
  std::size_t first, valid;                      // this rank's columns, without padding
  std::vector<SoftmaxStatistics<Z>> parts = {};  // of the parts of the rows, in place of logits, maximum and sums

  // (softmax − onehot) times *factor (null: 1), or times each row's factor (step 1), into the memory of `gradient`.
  void write_gradient(const double* factor, typename Z::value_type* gradient, std::size_t step = 0) const {
    kernels::cross_entropy_gradient(logits.device(), logits.rows(), logits.columns(), valid, logits.data(), maximum.data(),
                                    sums.data(), targets.data(), std::int64_t(first), factor, gradient, step);
  }
};

// The log-probabilities of the rows of Z: a number a row, on every rank that has columns of it.
template <class Z>
struct LogProbabilityOf;
template <class T, class E, class... P>
struct LogProbabilityOf<Tensor<T, E, P...>> {
  using type = Tensor<accumulate_t<T>, E, std::conditional_t<shard_dim<P> == 1, Invariant<typename P::axis>, P>...>;
};

// The statistics of the rows of logits. The first `own` columns are this rank's part of the vocabulary.
template <class Context, class Z, class Ids>
auto row_statistics(const Context& context, Z logits, const Ids& targets, std::size_t vocabulary, std::size_t own) {
  const std::size_t first = context.rank(tp{}) * own, valid = first >= vocabulary ? 0 : std::min(own, vocabulary - first);
  const Communicator* ranks = nullptr;
  if constexpr (Context::has(tp{})) ranks = &context.comm(tp{});
  require_whole_terms(logits.device(), vocabulary, context.size(tp{}));
  auto of = softmax_statistics(ranks, logits, valid, first, targets.data());
  return CrossEntropy<Z, Ids>{std::move(logits), targets, std::move(of.maximum), std::move(of.sums), first, valid};
}

template <class Z, class Ids>
void require_targets_of_rows(const char* name, const Z& logits, const Ids& targets) {
  require_not_partial<Z>();
  static_assert(cut_by_vocabulary<Z>,
                "weft: cross_entropy under tp needs logits sharded along the vocabulary (Shard<tp, 1>); Replicated logits would "
                "count each term of the softmax tp times, and no other axis may cut the vocabulary: to<Invariant<axis>>(logits)");
  require_matrix(name, logits);
  if (targets.size() != logits.rows())
    throw_error<ShapeError>({call_text(name, {logits, targets}), ": expected logits [tokens, vocabulary] and targets [tokens]"});
}

// The loss, and the inputs of its gradient.
template <class Context, class Z, class Ids>
auto cross_entropy_of(const Context& context, Z logits, const Ids& targets, std::size_t vocabulary, std::size_t own) {
  require_targets_of_rows("cross_entropy", logits, targets);
  using State = CrossEntropy<Z, Ids>;
  using T = typename Z::value_type;
  State state = row_statistics(context, std::move(logits), targets, vocabulary, own);
  const Z& z = state.logits;
  typename State::Loss::sum_type loss(z.device(), {1});
  const auto *const powers = state.sums.data(), *const of_targets = powers + z.rows();
  sum_losses_of_rows(context, z, z.rows(), loss, [&](std::size_t first, std::size_t count, double* sum) {
    kernels::cross_entropy_finish<T>(z.device(), count, z.columns(), state.valid, z.data() + first * z.columns(),
                                     state.maximum.data() + first, powers + first, of_targets + first, targets.data() + first,
                                     std::int64_t(state.first), sum, nullptr);
  });
  return Result{MakesLosses::make<typename State::Loss>(std::move(loss)), std::move(state)};
}

// The logits of a part of the rows of x, [count, vocabulary / tp], with the part's targets and statistics: as they were computed
// before (`statistics`), or, if it is null, computed here.
template <class Context, class X, class W, class Ids, class S>
auto part_of_cross_entropy(const Context& context, const X& x, const W& w, const Ids& targets, std::size_t vocabulary,
                           std::size_t first, std::size_t count, const S* statistics) {
  auto z = padded_logits(rows_of(x, first, count), w);
  const auto mine = rows_of(targets, first, count);
  require_targets_of_rows("cross_entropy", z, mine);
  if (statistics == nullptr) return row_statistics(context, std::move(z), mine, vocabulary, w.rows());
  using Z = decltype(z);
  const std::size_t begin = context.rank(tp{}) * w.rows(),
                    valid = begin >= vocabulary ? 0 : std::min(w.rows(), vocabulary - begin);
  return CrossEntropy<Z, Ids>{std::move(z), mine, statistics->maximum, statistics->sums, begin, valid};
}

// cross_entropy_of(padded_logits(x, w)) in parts of the rows: the logits of one part are in memory at a time, and only the
// statistics are saved.
template <class Context, class X, class W, class Ids>
auto cross_entropy_in_parts(const Context& context, const X& x, const W& w, const Ids& targets, std::size_t vocabulary,
                            std::size_t parts) {
  using Z = contract_t<X, W, 0, 0>;
  using State = CrossEntropy<Z, Ids>;
  if (targets.size() != x.rows())
    throw_error<ShapeError>({call_text("cross_entropy", {x, targets}), ": expected rows [tokens, width] and targets [tokens]"});
  auto& device = x.device();
  State saved{{}, targets, {}, {}, 0, 0};
  const Tensor<double, typename Z::execution_space> losses(device, {parts});
  for_each_part(x.rows(), parts, [&](std::size_t first, std::size_t count) {
    const State part = part_of_cross_entropy<Context, X, W, Ids, SoftmaxStatistics<Z>>(context, x, w, targets, vocabulary, first,
                                                                                       count, nullptr);
    kernels::cross_entropy_finish<typename Z::value_type>(
        device, count, part.logits.columns(), part.valid, part.logits.data(), part.maximum.data(), part.sums.data(),
        part.sums.data() + count, part.targets.data(), std::int64_t(part.first), losses.data() + saved.parts.size(), nullptr);
    saved.parts.push_back({part.maximum, part.sums});
  });
  typename State::Loss::sum_type loss(device, {1});
  add_numbers(device, saved.parts.size(), losses.data(), loss.data());
  return Result{MakesLosses::make<typename State::Loss>(std::move(loss)), std::move(saved)};
}

// Calls f(first, count, dz) with the gradient of the logits of each part of the rows.
template <class Context, class X, class W, class State, class F>
void for_each_logits_gradient(const Context& context, const X& x, const W& w, const State& saved, std::size_t vocabulary,
                              const double* factor, F&& f) {
  std::size_t at = 0;
  for_each_part(x.rows(), saved.parts.size(), [&](std::size_t first, std::size_t count) {
    const auto part = part_of_cross_entropy(context, x, w, saved.targets, vocabulary, first, count, &saved.parts[at++]);
    using Z = std::remove_cvref_t<decltype(part.logits)>;
    gradient_t<Z> dz(part.logits.device(), part.logits.shape(), part.logits.buffer());
    part.write_gradient(factor, dz.data());
    f(first, count, dz);
  });
}

// The log-probability of each row's target, 0 without one.
template <class Z, class Ids>
auto target_log_probabilities(const CrossEntropy<Z, Ids>& state) {
  typename LogProbabilityOf<Z>::type y(state.logits.device(), {state.logits.rows()});
  write_log_probabilities(y.device(), y.size(), state.sums.data(), state.targets.data(), y.data());
  return y;
}

// (onehot - softmax) times each row's g.
template <class Z, class Ids, class G>
auto log_probability_gradient(const CrossEntropy<Z, Ids>& state, const G& g) {
  const auto factors = scale(cast<double>(g), -1);
  gradient_t<Z> dz(state.logits.device(), state.logits.shape());
  state.write_gradient(factors.data(), dz.data(), 1);
  return dz;
}
}  // namespace detail

/// The sum over tokens of log Σ exp(z) − z[target], as Result{LossSum, softmax − onehot}. logits [tokens, vocabulary / tp];
/// targets [tokens], negative ones are ignored; columns from `vocabulary` on are padding and are ignored. Communication under tp:
/// the row maxima, then sums and target logits together. Statistics in accumulate_t. Throws ShapeError unless there is one target
/// per row.
template <class Context, AnyTensor Z, AnyTensor Ids>
auto cross_entropy(const Context& context, const Z& logits, const Ids& targets, std::size_t vocabulary) {
  auto result = detail::cross_entropy_of(context, logits, targets, vocabulary, logits.columns());
  gradient_t<Z> difference(logits.device(), logits.shape());
  result.saved.write_gradient(nullptr, difference.data());
  return Result{std::move(result.output), std::move(difference)};
}

/// The same in a Module's forward: logits [tokens, vocabulary / tp] and targets [tokens], both Variables.
template <class C, class Z, class Ids>
auto cross_entropy(const Variable<C, Z>& logits, const Variable<C, Ids>& targets, std::size_t vocabulary) {
  auto result = detail::cross_entropy_of(logits.context(), logits.value(), targets.value(), vocabulary, logits.value().columns());
  return detail::record(logits, std::move(result.output),
                        detail::from(logits, [state = std::move(result.saved)](const auto&, const auto& g) {
                          gradient_t<Z> dz(state.logits.device(), state.logits.shape());
                          state.write_gradient(g.data(), dz.data());
                          return dz;
                        }));
}

/// The log-probability of each row's target, z[target] − log Σ exp(z): [tokens] in accumulate_t, 0 for a negative target. logits
/// [tokens, vocabulary / tp] and targets [tokens]; columns from `vocabulary` on are padding. For losses of policies, whose
/// weights are factors: sum_losses(-weights * log_probability(...), targets). A log-probability has the bits that generate gives
/// in a batch-invariant run (NumericsOptions). Placements: as the rows; every rank of tp has all. Communication under tp: the row
/// maxima, then sums and target logits together. Throws ShapeError unless there is one target per row. The derivative by the
/// logits is onehot − softmax.
template <class Context, AnyTensor Z, AnyTensor Ids>
auto log_probability(const Context& context, const Z& logits, const Ids& targets, std::size_t vocabulary) {
  detail::require_targets_of_rows("log_probability", logits, targets);
  return detail::target_log_probabilities(detail::row_statistics(context, logits, targets, vocabulary, logits.columns()));
}
/// The same in a Module's forward or in a loss of your own, of Variables.
template <class C, class Z, class Ids>
auto log_probability(const Variable<C, Z>& logits, const Variable<C, Ids>& targets, std::size_t vocabulary) {
  detail::require_targets_of_rows("log_probability", logits.value(), targets.value());
  auto state = detail::row_statistics(logits.context(), logits.value(), targets.value(), vocabulary, logits.value().columns());
  auto y = detail::target_log_probabilities(state);
  return detail::record(logits, std::move(y), detail::from(logits, [state = std::move(state)](const auto&, const auto& g) {
                          return detail::log_probability_gradient(state, g);
                        }));
}

/// The last layers of a language model: norm, projection to the vocabulary by `table` (tied to the embedding or separate),
/// cross-entropy. forward(context, x, targets) -> loss; logits(context, x) for sampling. With LossOptions::chunks the logits are
/// computed for a part of the rows at a time: in forward, for the gradient of x, and for that of the table.
template <class Norm>
class LanguageHead : public Primitive<LanguageHead<Norm>> {
 public:
  using Table = Parameter<Shard<tp, 0>>;
  static constexpr bool loss_is_a_sum = true;  ///< so a training step skips the check

  LanguageHead(Norm final_norm, Table vocabulary_table) : norm(std::move(final_norm)), table(std::move(vocabulary_table)) {}

  template <class Context, class X, class Ids>
  auto forward(const Context& context, const X& x, const Ids& targets) const {
    auto normed = weft::forward(norm, context, x);
    auto inside = to<Replicated<tp>>(context, normed.output);
    const auto w = table.for_operand(inside);
    const std::size_t parts = context.engine.loss_chunks, vocabulary = table.state().global()[0];
    auto result = parts > 1 && inside.rows() > 0
                      ? detail::cross_entropy_in_parts(context, inside, w, targets, vocabulary, std::min(parts, inside.rows()))
                      : detail::cross_entropy_of(context, detail::padded_logits(inside, w), targets, vocabulary, w.rows());
    using N = typename decltype(normed)::saved_type;
    using D = typename decltype(result)::saved_type;
    return Result{std::move(result.output), Saved<X, N, decltype(normed.output), D>{
                                                std::move(normed.saved), std::move(normed.output), std::move(result.saved)}};
  }
  /// The logits [tokens, vocabulary / tp], including padding.
  template <class Context, class X>
  auto logits(const Context& context, const X& x) const {
    auto inside = to<Replicated<tp>>(context, weft::forward(norm, context, x).output);
    return matmul(inside, table.for_operand(inside));
  }
  /// The same, recorded: model.forward in your own training loop.
  template <class C, class X>
  auto logits(const Variable<C, X>& x) const {
    return matmul(to<Replicated<tp>>(norm(x)), table);
  }
  /// `g` [1], one over the number of tokens, scales softmax − onehot, which overwrites the logits.
  template <class Context, class S, class G>
  auto backward_input(const Context& context, S saved, const G& g) {
    using Z = std::remove_cvref_t<decltype(saved.cross.logits)>;
    auto inside = to<Replicated<tp>>(context, saved.normed);
    const auto w = table.for_operand(inside);
    gradient_t<Z> dz;
    using Inner = decltype(detail::padded_logits_input_gradient(context, dz, w));
    Inner inner;
    if (saved.cross.parts.empty()) {
      const auto& logits = saved.cross.logits;
      dz = gradient_t<Z>(logits.device(), logits.shape(), logits.buffer());
      saved.cross.write_gradient(g.data(), dz.data());
      inner = detail::padded_logits_input_gradient(context, dz, w);
    } else {
      inner = Inner(inside.device(), inside.shape());
      const auto store = [&](std::size_t first, std::size_t, const gradient_t<Z>& part) {
        const Inner rows = detail::padded_logits_input_gradient(context, part, w);
        using T = typename Inner::value_type;
        inner.mark_summed(rows.summed());
        detail::copy_rows(inner.device(), 1, rows.size(), static_cast<const T*>(rows.data()), rows.size(),
                          inner.data() + first * inner.columns(), rows.size());
      };
      detail::for_each_logits_gradient(context, inside, w, saved.cross, table.state().global()[0], g.data(), store);
    }
    auto split = weft::backward_input(norm, context, std::move(saved.norm),
                                      to_layout_of<gradient_t<decltype(saved.normed)>>(context, std::move(inner)));
    using D = Deferred<typename decltype(split)::deferred_type, decltype(inside), gradient_t<Z>, decltype(saved.cross), G>;
    if (saved.cross.parts.empty()) saved.cross = {};  // the gradient has all that is needed
    return InputGradient{detail::input_gradient_of<typename S::input_type>(std::move(split.input_gradient)),
                         D{std::move(split.deferred), std::move(inside), std::move(dz), std::move(saved.cross), g}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    const auto add = [&](std::size_t first, std::size_t count, const auto& part) {
      detail::accumulate_padded_product(context, table, part, detail::rows_of(deferred.inside, first, count));
    };
    if (deferred.cross.parts.empty()) detail::accumulate_padded_product(context, table, deferred.gradient, deferred.inside);
    else if (table.trainable())
      detail::for_each_logits_gradient(context, deferred.inside, table.for_operand(deferred.inside), deferred.cross,
                                       table.state().global()[0], deferred.scale.data(), add);
    weft::backward_weight(norm, context, std::move(deferred.norm));
  }

  Norm norm;
  Table table;

 private:
  template <class X, class N, class Y, class D>
  struct Saved {
    using input_type = X;
    N norm;
    Y normed;
    D cross;
  };
  template <class N, class I, class Z, class D, class G>
  struct Deferred {
    N norm;
    I inside;
    Z gradient;  // of the logits; empty if they are computed in parts, by `cross` and `scale`
    D cross;
    G scale;
  };
};

}  // namespace weft
