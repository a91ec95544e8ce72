// SPDX-License-Identifier: Apache-2.0
#pragma once
// Losses of samples, as sums over them (LossSum): cross-entropy for classes, squared error, binary cross-entropy. weft divides
// once by the count of the global batch; a sample's own loss is the mean over its elements, so that the whole is PyTorch's mean.
//
//   auto loss = cross_entropy(logits, labels);   // Variables, in a Module's forward: logits [samples, classes], labels [samples]

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <weft/autograd/loss_sum.hpp>
#include <weft/autograd/result.hpp>
#include <weft/autograd/row_terms.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/kernels/rows.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/tensor/fixed_terms.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

// True for halos, ghosts and their gradients, for which shard_dim prints an error.
template <class X>
inline constexpr bool any_overlap_refused = false;
template <class T, class E, class... P>
inline constexpr bool any_overlap_refused<Tensor<T, E, P...>> = ((overlaps<P> && shard_dim<P> < 0) || ...);

template <class X, class Y>
constexpr bool require_placed_samples() {
  using L = LossOf<X>;
  constexpr bool real = Real<typename X::value_type>, alike = !real || lie_alike<X, Y>, partial = any_partial<X>;
  static_assert(real,
                "weft: this loss's predictions are whole numbers, which have no gradient: give the predictions first and the "
                "targets second");
  static_assert(
      alike,
      "weft: this loss's predictions and targets do not lie alike: an axis cuts one of them and not the other, or they name "
      "different axes; bring them together, such as to<Shard<axis, 0>>(targets), on tensors (context, targets)");
  static_assert(
      !real || !alike || !partial,
      "weft: the loss of a Partial prediction: each rank has only a term of it, and the loss is not linear: reduce it first, "
      "to<Invariant<axis>>(x), on tensors (context, x)");
  static_assert(!real || !alike || partial || L::elements_fit,
                "weft: an axis cuts the elements of a sample, whose loss is of all of them: gather them first, "
                "to<Invariant<axis>>(x), on tensors (context, x); a domain axis, dx, dy or dz, may cut them");
  static_assert(
      !real || !alike || partial || !L::elements_fit || L::counted_once,
      "weft: the predictions are Replicated, so each rank of the axis would count their loss: compute it from an Invariant "
      "tensor, to<Invariant<axis>>(x), on tensors (context, x)");
  return real && alike && !partial && L::elements_fit && L::counted_once;
}
template <class X, class Y>
constexpr bool require_samples() {
  if constexpr (any_overlap_refused<X> || any_overlap_refused<Y>) return false;
  else return require_placed_samples<X, Y>();
}
// The elements of one sample on this rank.
inline std::size_t elements_of_sample(const char* loss, NamedOperand prediction, NamedOperand target) {
  require_same_shape(loss, prediction, target);
  const Shape& x = prediction.shape();
  if (x.rank() == 0) throw_error<ShapeError>({call_text(loss, {prediction, target}), ": expected [samples, ...]"});
  return x[0] == 0 ? 1 : x.size() / x[0];
}
/// Refuses a sample that a domain axis cuts, where no context gives its ranks.
template <class X>
constexpr void require_whole_samples() {
  static_assert(
      !LossOf<X>::in_space,
      "weft: a domain axis cuts the samples of this loss, and a tensor has no ranks to count their elements: in a Module's "
      "forward take the Variables, mse(x, y)");
}

/// (x - y)², and its derivative by x.
struct SquaredError {
  template <class A>
  KOKKOS_FUNCTION static double loss(A x, A y) {
    const double d = double(x) - double(y);
    return d * d;
  }
  template <class A>
  KOKKOS_FUNCTION static A slope(A x, A y) {
    return A(2) * (x - y);
  }
};
/// -y log σ(z) - (1 - y) log(1 - σ(z)), without overflow, and its derivative by z.
struct BinaryCrossEntropy {
  template <class A>
  KOKKOS_FUNCTION static double loss(A z, A y) {
    return double((z > A(0) ? z : A(0)) - z * y + Kokkos::log1p(Kokkos::exp(-Kokkos::abs(z))));
  }
  template <class A>
  KOKKOS_FUNCTION static A slope(A z, A y) {
    return A(1) / (A(1) + Kokkos::exp(-z)) - y;
  }
};

// Not in a function of a deduced type, in which nvcc takes no lambda.
template <class F, class Exec, class T, class U>
void loss_and_slope(Device<Exec>& device, std::size_t n, double elements, const T* x, const U* y, double* sum, T* slope) {
  using A = accumulate_t<T>;
  using B = accumulate_t<U>;
  kernels::detail::sum_blocks(
      device, {"loss", n * (sizeof(T) + sizeof(U))}, n, sum, KOKKOS_LAMBDA(std::size_t begin, std::size_t end) {
        double total = 0;
        for (std::size_t i = begin; i < end; ++i) total += F::loss(A(x[i]), A(B(y[i])));
        return total / elements;
      });
  const A share = A(1 / elements);
  for_each_index(
      device, {"loss", n * (2 * sizeof(T) + sizeof(U))}, n,
      KOKKOS_LAMBDA(const std::size_t i) { slope[i] = T(F::slope(A(x[i]), A(B(y[i]))) * share); });
}

/// Result{sum over samples of the mean over elements of F::loss, the derivative by x}; `elements`: of a whole sample.
template <class F, class X, class Y>
auto elementwise_loss(const X& x, const Y& y, double elements) {
  using Loss = typename LossOf<X>::type;
  using T = typename X::value_type;
  using U = typename Y::value_type;
  refuse_loose_rows(x, "a loss by elements");
  typename Loss::sum_type sum(x.device(), {1});
  gradient_t<X> slope(x.device(), x.shape());
  loss_and_slope<F>(x.device(), x.size(), elements, static_cast<const T*>(x.data()), static_cast<const U*>(y.data()), sum.data(),
                    slope.data());
  return Result{MakesLosses::make<Loss>(std::move(sum)), std::move(slope)};
}

// Each rank has whole rows of logits, or tp cuts the classes.
template <class X>
inline constexpr bool classes_fit = false;
template <class T, class E, class... P>
inline constexpr bool classes_fit<Tensor<T, E, P...>> =
    ((shard_dim<P> <= 0 || (shard_dim<P> == 1 && std::is_same_v<typename P::axis, tp>)) && ...);

template <class Z, class N>
constexpr bool require_classes() {
  constexpr bool real = Real<typename Z::value_type>, partial = any_partial<Z>, fit = classes_fit<Z>,
                 counted_once = LossOf<Z>::counted_once, of_rows = tokens_fit<Z, N>;
  static_assert(real,
                "weft: cross_entropy of logits that are whole numbers, which have no gradient: give the logits first and the "
                "labels second");
  if constexpr (real) require_not_partial<Z>();
  static_assert(
      !real || partial || fit,
      "weft: cross_entropy of classes: an axis other than tp cuts the classes (dim 1), or one cuts a later dim: gather "
      "them first, to<Invariant<axis>>(logits), on tensors (context, logits); for points of a field that dx "
      "cuts write sum_losses(to<Invariant<dx>>(mean<1>(mean<2>(-sum<1>(targets * log_softmax<1>(logits)))))), with a target "
      "for each class");
  static_assert(!real || partial || !fit || counted_once,
                "weft: cross_entropy of Replicated logits: each rank of the axis would count their loss: compute it from an "
                "Invariant tensor, to<Invariant<axis>>(logits), on tensors (context, logits)");
  if constexpr (real && !partial && fit && counted_once) require_tokens_of<Z, N>();
  return real && !partial && fit && counted_once && of_rows;
}

/// factor * g, with the loss's gradient g [1]; x's elements may be cut in ways that g does not show.
template <class X, class G>
X scaled_by_loss(const X& x, const G& g) {
  X out(x.device(), x.shape());
  kernels::multiply_scalar(x.device(), x.size(), static_cast<const typename X::value_type*>(x.data()), g.data(), out.data());
  return out;
}

template <class Context, class Z, class N>
auto cross_entropy_of_classes(const Context& context, const Z& logits, const N& labels) {
  using Loss = typename LossOf<Z>::type;
  using T = typename Z::value_type;
  using S = Tensor<accumulate_t<T>, typename Z::execution_space>;
  constexpr bool cut = std::is_same_v<placement_t<Z, tp>, Shard<tp, 1>>;
  if (logits.shape().rank() != 2 || labels.shape().rank() != 1 || labels.size() != logits.shape()[0])
    throw_error<ShapeError>(
        {call_text("cross_entropy", {logits, labels}), ": expected logits [samples, classes] and labels [samples]"});
  const std::size_t rows = logits.rows(), columns = logits.columns(), ranks = cut ? context.size(tp{}) : 1,
                    first = cut ? context.rank(tp{}) * columns : 0;
  if (logits.shape().sharding(1) != DimSharding::even)
    throw_error<LayoutError>({"cross_entropy: the classes of ", logits.shape().text(), " are not cut evenly"});
  const auto wanted = ids_of(labels, columns * ranks, {"cross_entropy", "label", " of sample ", " classes"});
  auto& device = logits.device();
  S maximum(device, {rows}), sums(device, {2, rows});
  auto *sum = sums.data(), *target = sums.data() + rows;
  kernels::row_max<T>(device, rows, columns, columns, logits.data(), maximum.data());
  if constexpr (cut) context.comm(tp{}).all_reduce(raw(maximum), Reduction::max);
  kernels::softmax_sums<T>(device, rows, columns, columns, logits.data(), maximum.data(), wanted.data(), std::int64_t(first), sum,
                           target);
  refuse_loose_rows(logits, "a cross-entropy of classes");
  if constexpr (cut) {
    refuse_loose_sum(device, "the classes of a cross-entropy");
    context.comm(tp{}).all_reduce(raw(sums));
  }
  typename Loss::sum_type loss(device, {1});
  gradient_t<Z> difference(device, logits.shape());
  kernels::cross_entropy_finish<T>(device, rows, columns, columns, logits.data(), maximum.data(), sum, target, wanted.data(),
                                   std::int64_t(first), loss.data(), difference.data());
  return Result{MakesLosses::make<Loss>(std::move(loss)), std::move(difference)};
}

}  // namespace detail

namespace operations {

/// The sum over samples of the mean over a sample's elements of (x - y)², as Result{LossSum, derivative by x}. x and y
/// [samples, ...] have equal placements: Invariant, or cut along the samples, where the sum is Partial; of Variables also cut
/// along other dims over domain axes, which then add up the number of elements and, at last, the sum. Added in double.
template <AnyTensor X, AnyTensor Y>
auto mse(const X& x, const Y& y) {
  detail::require_whole_samples<X>();
  if constexpr (detail::require_samples<X, Y>())
    return detail::elementwise_loss<detail::SquaredError>(x, y, double(detail::elements_of_sample("mse", x, y)));
  else return Result{detail::AlreadyRefused(), detail::AlreadyRefused()};
}
/// The same of -y log σ(z) - (1 - y) log(1 - σ(z)), for logits z and targets y in [0, 1] of any element type.
template <AnyTensor Z, AnyTensor Y>
auto bce_with_logits(const Z& z, const Y& y) {
  detail::require_whole_samples<Z>();
  if constexpr (detail::require_samples<Z, Y>())
    return detail::elementwise_loss<detail::BinaryCrossEntropy>(z, y,
                                                                double(detail::elements_of_sample("bce_with_logits", z, y)));
  else return Result{detail::AlreadyRefused(), detail::AlreadyRefused()};
}

/// The sum over samples of log Σ exp(z) - z[label], as Result{LossSum, softmax - onehot}. Logits [samples, classes], of which tp
/// may cut the classes evenly; labels [samples], whole numbers of any type. Throws UsageError for a label that is no class (on a
/// GPU, whose labels the host does not see, its loss is log Σ exp(z)). Communication if tp cuts classes: the row maxima, then
/// sums and label logits together. Statistics in accumulate_t.
template <class Context, AnyTensor Z, AnyTensor N>
auto cross_entropy(const Context& context, const Z& logits, const N& labels) {
  if constexpr (detail::require_classes<Z, N>()) return detail::cross_entropy_of_classes(context, logits, labels);
  else return Result{detail::AlreadyRefused(), detail::AlreadyRefused()};
}

template <class C, class X, class Y>
auto mse(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (!detail::require_samples<X, Y>()) {
    return detail::AlreadyRefused();
  } else {
    const std::size_t here = detail::elements_of_sample("mse", x.value(), y.value());
    auto found =
        detail::elementwise_loss<detail::SquaredError>(x.value(), y.value(), detail::count_over_space<X, 1>(x.context(), here));
    const auto difference = std::move(found.saved);
    auto from_x = detail::from(x, [difference](const auto&, const auto& g) { return detail::scaled_by_loss(difference, g); });
    if constexpr (!detail::Real<typename Y::value_type>) return detail::record(x, std::move(found.output), std::move(from_x));
    else
      return detail::record(x, std::move(found.output), std::move(from_x),
                            detail::from(y, [difference](const auto&, const auto& g) {
                              return cast<typename Y::value_type>(scale(detail::scaled_by_loss(difference, g), -1));
                            }));
  }
}
/// The derivative by a target is -z.
template <class C, class Z, class Y>
auto bce_with_logits(const Variable<C, Z>& z, const Variable<C, Y>& y) {
  if constexpr (!detail::require_samples<Z, Y>()) {
    return detail::AlreadyRefused();
  } else {
    const double elements =
        detail::count_over_space<Z, 1>(z.context(), detail::elements_of_sample("bce_with_logits", z.value(), y.value()));
    auto found = detail::elementwise_loss<detail::BinaryCrossEntropy>(z.value(), y.value(), elements);
    auto from_z = detail::from(
        z, [difference = std::move(found.saved)](const auto&, const auto& g) { return detail::scaled_by_loss(difference, g); });
    if constexpr (!detail::Real<typename Y::value_type>) return detail::record(z, std::move(found.output), std::move(from_z));
    else
      return detail::record(z, std::move(found.output), std::move(from_z),
                            detail::from(y, [z = z.value(), elements](const auto&, const auto& g) {
                              return cast<typename Y::value_type>(scale(detail::scaled_by_loss(z, g), -1 / elements));
                            }));
  }
}
template <class C, class Z, class N>
auto cross_entropy(const Variable<C, Z>& logits, const Variable<C, N>& labels) {
  auto found = cross_entropy(logits.context(), logits.value(), labels.value());
  if constexpr (std::is_same_v<decltype(found.output), detail::AlreadyRefused>) return detail::AlreadyRefused();
  else
    return detail::record(logits, std::move(found.output),
                          detail::from(logits, [difference = std::move(found.saved)](const auto&, const auto& g) {
                            return detail::scaled_by_loss(difference, g);
                          }));
}

}  // namespace operations

}  // namespace weft
