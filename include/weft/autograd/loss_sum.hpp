// SPDX-License-Identifier: Apache-2.0
#pragma once
// A loss: the sum over tokens, as a type that only sums make. The executor divides it once, by the count of the global batch, so
// a loss that was divided already would be divided twice. The axes on which the sum is Partial follow from the placement of the
// tokens.
//
//   auto losses = ...;                                            // [tokens], one number for each token
//   return Result{sum_losses(context, losses, targets), saved};   // in the back's forward; its backward gets a gradient [1]

#include <type_traits>
#include <utility>

#include <weft/autograd/row_terms.hpp>
#include <weft/context/context.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {
// If an axis cuts the tokens, each of its ranks has a term of the sum.
template <class P>
inline constexpr bool cuts_space = is_domain_axis<typename P::axis>&& shard_dim<P> > 0;
template <class P>
using loss_placement_t =
    std::conditional_t<shard_dim<P> == 0 || cuts_space<P>, Partial<typename P::axis>, Invariant<typename P::axis>>;
struct MakesLosses;
}  // namespace detail

/// The output of a model's back. Only sum_losses and cross_entropy make one.
template <class Exec, Placement... P>
class LossSum {
 public:
  using sum_type = Tensor<double, Exec, P...>;

  LossSum() = default;
  /// The sum, [1], in double.
  const sum_type& sum() const { return sum_; }
  explicit operator bool() const { return bool(sum_); }

  /// Adds a second loss of the same tokens.
  friend LossSum operator+(const LossSum& a, const LossSum& b) {
    LossSum both(sum_type(a.sum_.device(), {1}));
    kernels::add<double>(a.sum_.device(), 1, a.sum_.data(), b.sum_.data(), both.sum_.data());
    return both;
  }

 private:
  friend detail::MakesLosses;
  explicit LossSum(sum_type sum) : sum_(std::move(sum)) {}
  sum_type sum_;
};

namespace detail {

template <class X>
struct LossOf;
template <class T, class E, class... P>
struct LossOf<Tensor<T, E, P...>> {
  using type = LossSum<E, loss_placement_t<P>...>;
  static constexpr bool one_each = ((shard_dim<P> <= 0) && ...), counted_once = ((kind_of<P> != Kind::replicated) && ...);
  // A domain axis may cut the elements of a sample, whose loss is a sum over them.
  static constexpr bool elements_fit = ((shard_dim<P> <= 0 || cuts_space<P>)&&...), in_space = (cuts_space<P> || ...);
};

struct MakesLosses {
  template <class L>
  static L make(typename L::sum_type sum) {
    return L(std::move(sum));
  }
};

template <class X>
inline constexpr bool is_loss = false;
template <class E, class... P>
inline constexpr bool is_loss<LossSum<E, P...>> = true;

template <class E, class... P>
struct GradientOf<LossSum<E, P...>> {
  using type = gradient_t<typename LossSum<E, P...>::sum_type>;
};

// The ranks that share the rows of a data rank in a tensor placed as X.
template <class X, class Context>
std::size_t row_sharers(const Context& context) {
  return (shard_dim<placement_t<X, cp>> == 0 ? context.size(cp{}) : 1) *
         (shard_dim<placement_t<X, tp>> == 0 ? context.size(tp{}) : 1);
}
// The number of tokens on this rank of a tensor placed as X; 0 if the context does not have it.
template <class X, class Context>
std::size_t tokens_here(const Context& context) {
  return context.env.rows / row_sharers<X>(context);
}

// Whether the tokens are cut by the same axes as the rows of X.
template <class X, class Ids>
inline constexpr bool tokens_fit = false;
template <class T, class I, class E, class... PX, class... PI>
inline constexpr bool tokens_fit<Tensor<T, E, PX...>, Tensor<I, E, PI...>> =
    (((shard_dim<PX> == 0) == (shard_dim<placement_t<Tensor<I, E, PI...>, typename PX::axis>> == 0)) && ...);
template <class X, class Ids>
constexpr void require_tokens_of() {
  static_assert(tokens_fit<X, Ids>,
                "weft: the targets are not those of these rows: an axis cuts one of them and not the other; bring them together, "
                "such as to<Shard<tp, 0>>(targets) under sequence parallelism, on tensors (context, targets)");
}

/// *sum = the sum of the losses whose target is not negative, in double. A function of its own: nvcc takes no kernel in a
/// function whose result type is deduced.
template <class Exec, class T, class I>
void sum_counted(Device<Exec>& device, std::size_t tokens, const T* losses, const I* targets, double* sum) {
  kernels::detail::sum_blocks(
      device, {"loss", tokens * (sizeof(T) + sizeof(I))}, tokens, sum, KOKKOS_LAMBDA(std::size_t begin, std::size_t end) {
        double total = 0;
        for (std::size_t i = begin; i < end; ++i) total += targets[i] < 0 ? 0.0 : double(accumulate_t<T>(losses[i]));
        return total;
      });
}
/// *sum = the sum of all losses, in double.
template <class Exec, class T>
void sum_every(Device<Exec>& device, std::size_t count, const T* losses, double* sum) {
  kernels::detail::sum_blocks(
      device, {"loss", count * sizeof(T)}, count, sum, KOKKOS_LAMBDA(std::size_t begin, std::size_t end) {
        double total = 0;
        for (std::size_t i = begin; i < end; ++i) total += double(accumulate_t<T>(losses[i]));
        return total;
      });
}
}  // namespace detail

/// x [tokens, ...] with 0 in the rows of tokens that do not count (targets [tokens] < 0), for the gradient of losses. Placed as
/// x.
template <AnyTensor X, AnyTensor Ids>
X mask_rows(const X& x, const Ids& targets) {
  detail::require_tokens_of<X, Ids>();
  if (x.shape().rank() == 0 || x.shape()[0] != targets.size())
    throw_error<ShapeError>({"mask_rows: ", x.shape().text(), " for ", targets.size(), " targets"});
  X y(x.device(), x.shape());
  const std::size_t width = targets.size() == 0 ? 0 : x.size() / targets.size();
  const auto* in = x.data();
  auto* out = y.data();
  const auto* target = targets.data();
  detail::for_each_entry(
      x.device(), {"loss", 2 * x.size() * sizeof(typename X::value_type)}, targets.size(), width,
      KOKKOS_LAMBDA(const std::size_t row, const std::size_t i) {
        out[row * width + i] = target[row] < 0 ? typename X::value_type(0.0f) : in[row * width + i];
      });
  return y;
}

namespace detail {
/// Refuses tensors that are not one loss a token.
template <class X>
constexpr bool require_losses() {
  using L = LossOf<X>;
  constexpr bool real = Real<typename X::value_type>, partial = any_partial<X>;
  static_assert(real, "weft: sum_losses of whole numbers, which have no gradient: losses are numbers with a fraction");
  static_assert(!real || !partial,
                "weft: sum_losses: the losses are Partial: each rank has only a term of each token's loss (a sum over its own "
                "columns?), whose loss is of the whole: reduce first, to<Invariant<axis>>(losses), on tensors (context, losses)");
  static_assert(!real || partial || L::one_each,
                "weft: sum_losses takes one loss a token, but these are cut along dim 1: add up over columns first");
  static_assert(!real || partial || !L::one_each || L::counted_once,
                "weft: sum_losses: the losses are Replicated, so each rank of the axis would count them: compute them from an "
                "Invariant tensor, or to<Invariant<axis>>(losses), on tensors (context, losses)");
  return real && !partial && L::one_each && L::counted_once;
}
/// Refuses targets that would be weights, whose gradient would be lost.
template <class Ids>
constexpr bool require_targets() {
  constexpr bool whole = !Real<typename Ids::value_type>;
  static_assert(whole,
                "weft: sum_losses: targets are whole numbers, and those of tokens that do not count are negative; the weights of "
                "losses are factors, sum_losses(losses * weights, targets)");
  return whole;
}
}  // namespace detail

/// The sum of the losses [tokens] of this rank's tokens that count (targets [tokens] >= 0); those of other tokens are left out
/// (their gradient: mask_rows). It is never a mean: weft divides by the number of targets that count in the global batch. On each
/// axis the losses may be Shard<axis, 0> (the targets are then cut too, and the sum is Partial) or Invariant (every rank has all
/// of them). Throws ShapeError unless there is one number for each token. Numerics: added in double, in an order that depends
/// only on the number of tokens.
template <class Context, AnyTensor X, AnyTensor Ids>
auto sum_losses(const Context& context, const X& losses, const Ids& targets) {
  using L = detail::LossOf<X>;
  if constexpr (!detail::require_losses<X>() || !detail::require_targets<Ids>()) {
    return detail::AlreadyRefused();
  } else {
    detail::require_tokens_of<X, Ids>();
    const std::size_t rows = context.env.rows, given = losses.size() * detail::row_sharers<X>(context);
    // A sample of a batch of fields may have several rows with a target each.
    const bool fits =
        rows == 0 || given == rows || (detail::sequence_length(context.env) == 1 && given != 0 && given % rows == 0);
    if (losses.size() != targets.size() || !fits)
      throw_error<ShapeError>({"sum_losses of ", losses.shape().text(), " for ", targets.size(),
                               " tokens: it takes one loss a token; a mean or a sum that the model takes itself is not a loss"});
    typename L::type::sum_type sum(losses.device(), {1});
    detail::sum_losses_of_rows(context, losses, losses.size(), sum, [&](std::size_t first, std::size_t count, double* out) {
      detail::sum_counted(losses.device(), count, losses.data() + first, targets.data() + first, out);
    });
    return detail::MakesLosses::make<typename L::type>(std::move(sum));
  }
}

/// The same if every sample counts: losses [samples], one number for each sample of this rank, or the same number of them for
/// each. Throws ShapeError otherwise.
template <class Context, AnyTensor X>
auto sum_losses(const Context& context, const X& losses) {
  using L = detail::LossOf<X>;
  if constexpr (!detail::require_losses<X>()) {
    return detail::AlreadyRefused();
  } else {
    const std::size_t rows = context.env.rows, given = losses.size() * detail::row_sharers<X>(context);
    if (rows != 0 && (given == 0 || given % rows != 0))
      throw_error<ShapeError>(
          {"sum_losses of ", losses.shape().text(), " for ", detail::tokens_here<X>(context),
           " samples: it takes one loss a sample; a mean or a sum that the model takes itself is not a loss"});
    typename L::type::sum_type sum(losses.device(), {1});
    detail::sum_losses_of_rows(context, losses, losses.size(), sum, [&](std::size_t first, std::size_t count, double* out) {
      detail::sum_every(losses.device(), count, losses.data() + first, out);
    });
    return detail::MakesLosses::make<typename L::type>(std::move(sum));
  }
}

}  // namespace weft
