// SPDX-License-Identifier: Apache-2.0
#pragma once
// Discrete Fourier transforms along dims that no axis cuts. weft has no complex elements: a complex tensor has a last dim of 2,
// its real and imaginary parts. All transforms are linear, so a Partial tensor stays Partial.
//
//   auto spectrum = rfft<2, 3>(field);       // [samples, channels, height, width] -> [..., height, width / 2 + 1, 2]
//   auto again = irfft<2, 3>(spectrum, w);   // w: the width, which half a spectrum does not state

#include <cstddef>
#include <utility>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/fourier.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

// One dim's transform, without the extents.
struct FourierStep {
  kernels::FourierLine from, to;
  bool inverse;
  double scale;
};
using kernels::FourierLine;

// The shape of the result. Throws ShapeError for an operand that is not of the line's kind.
inline Shape fourier_shape(const char* operation, NamedOperand x, int dim, std::size_t n, FourierLine from, FourierLine to) {
  const Shape& shape = x.shape();
  const std::size_t rank = shape.rank(), at = std::size_t(dim);
  const bool pairs = from != FourierLine::real;
  if (pairs && (rank < 2 || shape[rank - 1] != 2 || at + 1 >= rank))
    throw_error<ShapeError>(
        {call_text(operation, {x}), ": expected a last dim of 2, the real and imaginary parts, behind dim ", dim});
  if (n == 0 || shape[at] != kernels::FourierShape::extent(from, n))
    throw_error<ShapeError>({call_text(operation, {x}), ": dim ", dim, " has ", shape[at], " elements, and a transform of ", n,
                             " takes ", kernels::FourierShape::extent(from, n == 0 ? 1 : n)});
  const bool more = !pairs && to != FourierLine::real, less = pairs && to == FourierLine::real;
  if (more && rank == Shape::max_rank)
    throw_error<ShapeError>({call_text(operation, {x}), ": the result would have more than ", Shape::max_rank, " dims"});
  Shape out = Shape::of_rank(rank + more - less);
  for (std::size_t d = 0; d < out.rank(); ++d) {
    out[d] = d == at ? kernels::FourierShape::extent(to, n) : d < rank ? shape[d] : 2;
    if (d < rank) out.set_sharding(d, shape.sharding(d));
  }
  return out;
}
template <int Dim, class X>
X fourier(const char* operation, const X& x, std::size_t n, const FourierStep& step) {
  require_real<typename X::value_type>();
  along_whole<Dim>(operation, x);
  X out(x.device(), fourier_shape(operation, x, Dim, n, step.from, step.to));
  const auto around = along(operation, x, Dim);
  kernels::fourier<typename X::value_type>(x.device(),
                                           {.outer = around.outer,
                                            .n = n,
                                            .inner = step.from == FourierLine::real ? around.inner : around.inner / 2,
                                            .from = step.from,
                                            .to = step.to,
                                            .inverse = step.inverse,
                                            .scale = step.scale},
                                           x.data(), out.data());
  return out;
}
// The step that gives the gradient of the operand from that of the result.
constexpr FourierStep adjoint(const FourierStep& step) {
  using enum FourierLine;
  const auto turned = [&](FourierLine line, bool source) { return line != half ? line : source ? half_alone : half_counted; };
  return {turned(step.to, true), turned(step.from, false), !step.inverse, step.scale};
}
// On tensors and Variables, also inside of grad.
template <int Dim, class V>
auto fourier_step(const char* operation, const V& x, std::size_t n, const FourierStep& step) {
  const auto transformed = [=](const auto& value) { return fourier<Dim>(operation, value, n, step); };
  if constexpr (AnyTensor<V>) return transformed(x);
  else
    return linear_pair(
        transformed, [=](const auto& g) { return fourier<Dim>("fft_gradient", g, n, adjoint(step)); }, x);
}
template <int Dim, int... More, class V>
auto complex_steps(const char* operation, const V& x, bool inverse) {
  require_dim(operation, x.shape(), Dim);
  const std::size_t n = x.shape()[Dim];
  auto y = fourier_step<Dim>(operation, x, n,
                             {FourierLine::complex, FourierLine::complex, inverse, inverse && n != 0 ? 1.0 / double(n) : 1.0});
  if constexpr (sizeof...(More) == 0) return y;
  else return complex_steps<More...>(operation, y, inverse);
}
// The real transform along the last of these dims, the complex one along the others.
template <int... Dims, class V>
auto real_steps(const V& x) {
  constexpr int dims[] = {Dims...}, last = dims[sizeof...(Dims) - 1];
  require_dim("rfft", x.shape(), last);
  auto y = fourier_step<last>("rfft", x, x.shape()[last], {FourierLine::real, FourierLine::half, false, 1});
  if constexpr (sizeof...(Dims) == 1) return y;
  else if constexpr (sizeof...(Dims) == 2) return complex_steps<dims[0]>("rfft", y, false);
  else return complex_steps<dims[0], dims[1]>("rfft", y, false);
}
template <int... Dims, class V>
auto real_steps_back(const V& z, std::size_t n) {
  constexpr int dims[] = {Dims...}, last = dims[sizeof...(Dims) - 1];
  const FourierStep step{FourierLine::half, FourierLine::real, true, n == 0 ? 1 : 1 / double(n)};
  if constexpr (sizeof...(Dims) == 1) return fourier_step<last>("irfft", z, n, step);
  else if constexpr (sizeof...(Dims) == 2) return fourier_step<last>("irfft", complex_steps<dims[0]>("irfft", z, true), n, step);
  else return fourier_step<last>("irfft", complex_steps<dims[0], dims[1]>("irfft", z, true), n, step);
}

template <class V>
inline constexpr bool is_fourier_operand = is_tensor<V>;
template <class C, class X>
inline constexpr bool is_fourier_operand<Variable<C, X>> = is_fourier_operand<X>;
template <class C, class X>
inline constexpr bool is_fourier_operand<Constant<C, X>> = is_fourier_operand<X>;
template <class V>
concept FourierOperand = is_fourier_operand<V>;

}  // namespace detail

namespace operations {

/// The transform of z [..., 2] along one to three dims, of which no axis cuts any, as torch.fft.fftn and ifftn: exp(-2πi jk / n)
/// without a factor, and exp(+2πi jk / n) / n back. Placed as z, also Partial. Numerics: lines in accumulate_t. A dim of n
/// elements takes n log n steps for a product of small factors, n p for a prime factor p. Gradients: the other transform.
template <int... Dims, detail::FourierOperand V>
requires(sizeof...(Dims) >= 1 && sizeof...(Dims) <= 3) auto fft(const V& z) {
  return detail::complex_steps<Dims...>("fft", z, false);
}
template <int... Dims, detail::FourierOperand V>
requires(sizeof...(Dims) >= 1 && sizeof...(Dims) <= 3) auto ifft(const V& z) {
  return detail::complex_steps<Dims...>("ifft", z, true);
}
/// The transform of a real x, of whose last of these dims the first n / 2 + 1 numbers are kept, with one more dim of 2 at the
/// end, as torch.fft.rfftn.
template <int... Dims, detail::FourierOperand V>
requires(sizeof...(Dims) >= 1 && sizeof...(Dims) <= 3) auto rfft(const V& x) { return detail::real_steps<Dims...>(x); }
/// The real tensor with this half of a spectrum [..., n / 2 + 1, ..., 2] and n elements along the last of these dims, as
/// torch.fft.irfftn. Imaginary parts that a real tensor does not have are ignored. Throws ShapeError for an n that the half does
/// not fit.
template <int... Dims, detail::FourierOperand V>
requires(sizeof...(Dims) >= 1 && sizeof...(Dims) <= 3) auto irfft(const V& z, std::size_t n) {
  return detail::real_steps_back<Dims...>(z, n);
}

}  // namespace operations

}  // namespace weft
