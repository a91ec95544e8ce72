// SPDX-License-Identifier: Apache-2.0
#pragma once
// Discrete Fourier transforms along dims that no axis cuts. weft has no complex elements: a complex tensor has a last dim of 2,
// its real and imaginary parts. All transforms are linear, so a Partial tensor stays Partial.
//
//   auto spectrum = rfft<2, 3>(field);       // [samples, channels, height, width] -> [..., height, width / 2 + 1, 2]
//   auto again = irfft<2, 3>(spectrum, w);   // w: the width, which half a spectrum does not state

#include <algorithm>
#include <array>
#include <cstddef>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/fourier.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

// One dim's transform, of n numbers.
struct FourierStep {
  std::size_t dim, n;
  kernels::FourierLine from, to;
  bool inverse;
  double scale;
};
using kernels::FourierLine;

// The shape of the result. Throws ShapeError for an operand that is not of the line's kind.
inline Shape fourier_shape(const char* operation, NamedOperand x, const FourierStep& step) {
  const auto [dim, n, from, to, inverse, scale] = step;
  const Shape& shape = x.shape();
  const std::size_t rank = shape.rank();
  const bool pairs = from != FourierLine::real;
  if (pairs && (rank < 2 || shape[rank - 1] != 2 || dim + 1 >= rank))
    throw_error<ShapeError>(
        {call_text(operation, {x}), ": expected a last dim of 2, the real and imaginary parts, behind dim ", dim});
  if (n == 0 || shape[dim] != kernels::FourierShape::extent(from, n))
    throw_error<ShapeError>({call_text(operation, {x}), ": dim ", dim, " has ", shape[dim], " elements, and a transform of ", n,
                             " takes ", kernels::FourierShape::extent(from, n == 0 ? 1 : n)});
  const bool more = !pairs && to != FourierLine::real, less = pairs && to == FourierLine::real;
  if (more && rank == Shape::max_rank)
    throw_error<ShapeError>({call_text(operation, {x}), ": the result would have more than ", Shape::max_rank, " dims"});
  Shape out = Shape::of_rank(rank + more - less);
  for (std::size_t d = 0; d < out.rank(); ++d) {
    out[d] = d == dim ? kernels::FourierShape::extent(to, n) : d < rank ? shape[d] : 2;
    if (d < rank) out.set_sharding(d, shape.sharding(d));
  }
  return out;
}
// A slice is what the first dims hold that no step transforms. On hosts a few slices take all steps before the next ones do, so
// that the numbers between the steps stay in a cache.
template <int... Dims, class X>
X fourier(const char* operation, const X& x, const std::array<FourierStep, sizeof...(Dims)>& steps) {
  using T = typename X::value_type;
  using Exec = typename X::execution_space;
  constexpr std::size_t count = sizeof...(Dims), first_dim = std::size_t(std::min({Dims...})),
                        cached = 1 << 18;  // bytes between steps
  require_real<T>();
  (along_whole<Dims>(operation, x), ...);
  auto& device = x.device();
  std::array<Shape, count> shapes;  // of the results
  for (std::size_t i = 0; i < count; ++i)
    shapes[i] = fourier_shape(operation, i == 0 ? NamedOperand(x) : NamedOperand(shapes[i - 1]), steps[i]);
  const X out(device, shapes.back());
  const std::size_t slices = Around(x.shape(), first_dim).outer;
  if (out.size() == 0 || slices == 0) return out;
  std::size_t between = 0, together = slices;
  for (std::size_t i = 0; i + 1 < count; ++i) between = std::max(between, shapes[i].size() / slices);
  if constexpr (on_host<Exec>)
    if (count > 1) {
      const std::size_t room = cached * std::size_t(threads_of(device.exec()));
      together = std::clamp<std::size_t>(room / (between * sizeof(T)), 1, slices);
    }
  const Buffer memory = device.allocate(std::min<std::size_t>(count - 1, 2) * together * between * sizeof(T));
  for (std::size_t slice = 0; slice < slices; slice += together) {
    const std::size_t here = std::min(together, slices - slice);
    const T* from = x.data() + slice * (x.size() / slices);
    for (std::size_t i = 0; i < count; ++i) {
      const FourierStep& step = steps[i];
      T* const to = i + 1 == count ? out.data() + slice * (out.size() / slices)
                                   : static_cast<T*>(memory.get()) + i % 2 * together * between;
      const Around around(i == 0 ? x.shape() : shapes[i - 1], step.dim);
      kernels::fourier<T>(device,
                          {.outer = around.outer / slices * here,
                           .n = step.n,
                           .inner = step.from == FourierLine::real ? around.inner : around.inner / 2,
                           .from = step.from,
                           .to = step.to,
                           .inverse = step.inverse,
                           .scale = step.scale},
                          from, to);
      from = to;
    }
  }
  return out;
}
// The steps that give the gradient of the operand from that of the result.
template <std::size_t N>
std::array<FourierStep, N> adjoint(const std::array<FourierStep, N>& steps) {
  using enum FourierLine;
  const auto turned = [&](FourierLine line, bool source) { return line != half ? line : source ? half_alone : half_counted; };
  std::array<FourierStep, N> back;
  for (std::size_t i = 0; i < N; ++i) {
    const FourierStep& step = steps[N - 1 - i];
    back[i] = {step.dim, step.n, turned(step.to, true), turned(step.from, false), !step.inverse, step.scale};
  }
  return back;
}
// On tensors and Variables, also inside of grad.
template <int... Dims, class V>
auto fourier_steps(const char* operation, const V& x, const std::array<FourierStep, sizeof...(Dims)>& steps) {
  const auto transformed = [=](const auto& value) { return fourier<Dims...>(operation, value, steps); };
  if constexpr (AnyTensor<V>) return transformed(x);
  else
    return linear_pair(
        transformed, [=](const auto& g) { return fourier<Dims...>("fft_gradient", g, adjoint(steps)); }, x);
}
template <class V>
FourierStep complex_step(const char* operation, const V& x, int dim, bool inverse) {
  require_dim(operation, x.shape(), dim);
  const std::size_t n = x.shape()[std::size_t(dim)];
  return {std::size_t(dim), n, FourierLine::complex, FourierLine::complex, inverse, inverse && n != 0 ? 1 / double(n) : 1};
}
template <int... Dims, class V>
auto complex_steps(const char* operation, const V& x, bool inverse) {
  return fourier_steps<Dims...>(operation, x, {complex_step(operation, x, Dims, inverse)...});
}
// The real transform along the last of these dims, the complex one along the others.
template <int... Dims, class V>
auto real_steps(const V& x) {
  constexpr std::size_t count = sizeof...(Dims);
  constexpr std::array dims{Dims...};
  std::array<FourierStep, count> steps{complex_step("rfft", x, dims.back(), false)};
  steps[0].from = FourierLine::real, steps[0].to = FourierLine::half;
  for (std::size_t i = 1; i < count; ++i) steps[i] = complex_step("rfft", x, dims[i - 1], false);
  return fourier_steps<Dims...>("rfft", x, steps);
}
template <int... Dims, class V>
auto real_steps_back(const V& z, std::size_t n) {
  std::array steps{complex_step("irfft", z, Dims, true)...};
  FourierStep& last = steps.back();
  last = {last.dim, n, FourierLine::half, FourierLine::real, true, n == 0 ? 1 : 1 / double(n)};
  return fourier_steps<Dims...>("irfft", z, steps);
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
/// The inverse of fft, divided by the number of elements of a transform, as torch.fft.ifftn.
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
