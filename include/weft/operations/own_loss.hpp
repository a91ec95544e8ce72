// SPDX-License-Identifier: Apache-2.0
#pragma once
// A custom loss in a Module's forward: the sum of one number for each sample (or token), which the engine divides once by the
// count of the global batch.
//
//   auto forward(const auto& x, const auto& batch) const { return sum_losses(sum_squares(x - batch[wanted])) + 0.1 * penalty; }

#include <cstddef>
#include <utility>

#include <weft/autograd/layer_check.hpp>
#include <weft/autograd/loss_sum.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/context/loss_weight.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/products.hpp>

namespace weft {

namespace detail {

/// The gradient of each of the losses X, [rows]: that of their sum, g [1], and 0 where `targets` (null: none) is negative.
template <AnyTensor X, AnyTensor G, class I>
gradient_t<X> gradient_of_losses(const X& losses, const G& g, const I* targets) {
  using T = typename X::value_type;
  gradient_t<X> gradient(losses.device(), losses.shape());
  T* out = gradient.data();
  const auto* of_sum = g.data();
  for_each_index(
      losses.device(), {"loss", losses.size() * sizeof(T)}, losses.size(),
      KOKKOS_LAMBDA(const std::size_t i) { out[i] = targets != nullptr && targets[i] < 0 ? T(0.0f) : T(of_sum[0]); });
  return gradient;
}

}  // namespace detail

/// The sum of the losses [samples], one number for each sample of the batch (or k for each). Never a mean: weft divides by the
/// model's count of the global batch. Placements as sum_losses(context, losses, targets).
template <class C, class X>
auto sum_losses(const Variable<C, X>& losses) {
  auto sum = sum_losses(losses.context(), losses.value());
  if constexpr (detail::is_refused<decltype(sum)>) return sum;
  else
    return detail::record(losses, std::move(sum), detail::from(losses, [x = losses.value()](const auto&, const auto& g) {
                            return detail::gradient_of_losses(x, g, static_cast<const std::int32_t*>(nullptr));
                          }));
}
/// The same over the tokens whose target is not negative.
template <class C, class X, class Ids>
auto sum_losses(const Variable<C, X>& losses, const Variable<C, Ids>& targets) {
  auto sum = sum_losses(losses.context(), losses.value(), targets.value());
  if constexpr (detail::is_refused<decltype(sum)>) return sum;
  else
    return detail::record(losses, std::move(sum),
                          detail::from(losses, [x = losses.value(), of = targets.value()](const auto&, const auto& g) {
                            return detail::gradient_of_losses(x, g, of.data());
                          }));
}
template <class... Targets>
detail::AlreadyRefused sum_losses(detail::AlreadyRefused refused, const Targets&...) {
  return refused;
}
/// Two losses of the same batch, added.
template <class C, class E, class... P>
auto operator+(const Variable<C, LossSum<E, P...>>& a, const Variable<C, LossSum<E, P...>>& b) {
  const auto same = [](const auto&, const auto& g) { return g; };
  return detail::record(a, a.value() + b.value(), detail::from(a, same), detail::from(b, same));
}
/// A loss times its weight beside another one, `cross_entropy(z, labels) + 0.1 * mse(x, y)`: a constant expression, or a
/// LossWeight that the Module keeps.
template <class C, class E, class... P>
auto operator*(LossWeight weight, const Variable<C, LossSum<E, P...>>& loss) {
  return detail::record(loss, detail::MakesLosses::make<LossSum<E, P...>>(scale(loss.value().sum(), weight.value())),
                        detail::from(loss, [factor = weight.value()](const auto&, const auto& g) { return scale(g, factor); }));
}
template <class C, class E, class... P>
auto operator*(const Variable<C, LossSum<E, P...>>& loss, LossWeight weight) {
  return weight * loss;
}
/// The opposite of a loss, or the difference of two.
template <class C, class E, class... P>
auto operator-(const Variable<C, LossSum<E, P...>>& loss) {
  return -1.0 * loss;
}
template <class C, class E, class... P>
auto operator-(const Variable<C, LossSum<E, P...>>& a, const Variable<C, LossSum<E, P...>>& b) {
  return a + -1.0 * b;
}
template <class C, class E, class... P>
detail::AlreadyRefused operator/(const Variable<C, LossSum<E, P...>>&, double) {
  static_assert(detail::never<C>,
                "weft: a loss divided by a number, which would be divided twice if that is a count: weft divides a loss once, by "
                "the samples of the global batch, or by the model's count(batch); the weight of one loss beside another "
                "is a constant factor, 0.5 * loss");
  return {};
}
#define WEFT_NO_LOSS(op, first, second)                                                                                   \
  template <class C, class E, class... P>                                                                                 \
  detail::AlreadyRefused operator op(first, second) {                                                                     \
    static_assert(detail::never<C>, "weft: operator" #op                                                                  \
                                    ": a number beside a loss, which is a sum over samples: it would count once, and "    \
                                    "changes no gradient; a second loss is sum_losses(x) of one number for each sample"); \
    return {};                                                                                                            \
  }
#define WEFT_LOSS_OF(C, E, P) const Variable<C, LossSum<E, P...>>&
WEFT_NO_LOSS(+, WEFT_LOSS_OF(C, E, P), double)
WEFT_NO_LOSS(+, double, WEFT_LOSS_OF(C, E, P))
WEFT_NO_LOSS(-, WEFT_LOSS_OF(C, E, P), double)
WEFT_NO_LOSS(-, double, WEFT_LOSS_OF(C, E, P))
#undef WEFT_NO_LOSS

// A loss with a value, or two losses where they have no sum.
#define WEFT_NO_LOSS_AND(op, parameters, first, second)                                                                      \
  template <class C, class E, class... P, parameters>                                                                        \
  detail::AlreadyRefused operator op(first, second) {                                                                        \
    static_assert(detail::never<C>, "weft: operator" #op                                                                     \
                                    " of a loss and a value: a loss is a sum over samples, which has constant weights: "     \
                                    "0.5 * loss, or a LossWeight. Multiply or divide the samples' losses, one number each, " \
                                    "before sum_losses(x)");                                                                 \
    return {};                                                                                                               \
  }
#define WEFT_VALUE(C, Y) const Variable<C, Y>&
#define WEFT_PARAMETER(R) const Parameter<R...>&
WEFT_NO_LOSS_AND(*, AnyTensor Y, WEFT_LOSS_OF(C, E, P), WEFT_VALUE(C, Y))
WEFT_NO_LOSS_AND(*, AnyTensor Y, WEFT_VALUE(C, Y), WEFT_LOSS_OF(C, E, P))
WEFT_NO_LOSS_AND(/, AnyTensor Y, WEFT_LOSS_OF(C, E, P), WEFT_VALUE(C, Y))
WEFT_NO_LOSS_AND(/, AnyTensor Y, WEFT_VALUE(C, Y), WEFT_LOSS_OF(C, E, P))
WEFT_NO_LOSS_AND(+, AnyTensor Y, WEFT_LOSS_OF(C, E, P), WEFT_VALUE(C, Y))
WEFT_NO_LOSS_AND(+, AnyTensor Y, WEFT_VALUE(C, Y), WEFT_LOSS_OF(C, E, P))
WEFT_NO_LOSS_AND(-, AnyTensor Y, WEFT_LOSS_OF(C, E, P), WEFT_VALUE(C, Y))
WEFT_NO_LOSS_AND(-, AnyTensor Y, WEFT_VALUE(C, Y), WEFT_LOSS_OF(C, E, P))
WEFT_NO_LOSS_AND(*, Placement... R, WEFT_LOSS_OF(C, E, P), WEFT_PARAMETER(R))
WEFT_NO_LOSS_AND(*, Placement... R, WEFT_PARAMETER(R), WEFT_LOSS_OF(C, E, P))
WEFT_NO_LOSS_AND(*, class... Q, WEFT_LOSS_OF(C, E, P), WEFT_LOSS_OF(C, E, Q))
WEFT_NO_LOSS_AND(/, class... Q, WEFT_LOSS_OF(C, E, P), WEFT_LOSS_OF(C, E, Q))
#undef WEFT_PARAMETER
#undef WEFT_VALUE
#undef WEFT_LOSS_OF
#undef WEFT_NO_LOSS_AND

}  // namespace weft
