// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements that move along a dim that no axis cuts: padded at both ends (pad), in reverse order (flip), shifted in a circle
// (roll). All are linear, so a Partial tensor stays Partial.
//
//   auto ring = pad<2, 3>(images, 1, 1, PaddingMode::periodic);   // [samples, channels, height + 2, width + 2]
//   auto slope = (roll<1>(x, -1) - roll<1>(x, 1)) / (2 * step);   // of a periodic line

#include <algorithm>
#include <cstddef>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/move_along.hpp>
#include <weft/kernels/padding.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

using kernels::PaddingMode;

namespace detail {

// Throws ShapeError if the elements have no source.
inline void require_padding(NamedOperand x, int dim, std::size_t before, std::size_t after, PaddingMode mode) {
  const std::size_t extent = x.shape()[std::size_t(dim)], more = before > after ? before : after;
  if (more >= std::size_t(1) << 31)
    throw_error<ShapeError>({call_text("pad", {x}), ": ", more, " elements, which are more than 2147483647"});
  const bool fits = mode == PaddingMode::zeros || more == 0 || (mode == PaddingMode::reflect ? more < extent : extent != 0);
  if (!fits)
    throw_error<ShapeError>({call_text("pad", {x}), ": ", before, " elements before and ", after, " after dim ", dim, " of ",
                             extent, mode == PaddingMode::reflect ? ", which has fewer to reflect" : ", which has none to copy"});
}
template <int Dim, class X>
void require_padding_along(const X& x, std::size_t before, std::size_t after, PaddingMode mode) {
  along_whole<Dim>("pad", x);
  require_padding(x, Dim, before, after, mode);
}
/// These dims of x [..., dims..., ...] and all between them, padded.
template <int... Dims>
kernels::PaddedDims padded_dims(const Shape& x, std::size_t before, std::size_t after, PaddingMode mode) {
  constexpr std::size_t first = std::size_t(std::min({Dims...})), last = std::size_t(std::max({Dims...}));
  static_assert(kernels::PaddedDims::most >= Shape::max_rank);
  kernels::PaddedDims out;
  out.count = last - first + 1;
  for (std::size_t dim = 0; dim < x.rank(); ++dim) {
    const bool padded = ((dim == std::size_t(Dims)) || ...);
    if (dim < first) out.outer *= x[dim];
    else if (dim > last) out.inner *= x[dim];
    else out.dims[dim - first] = {mode, padded ? before : 0, x[dim], x[dim] + (padded ? before + after : 0)};
  }
  return out;
}
// Whether no dim is named twice.
template <int... Dims>
constexpr bool differ() {
  std::size_t pairs = 0;
  for (const int a : {Dims...})
    for (const int b : {Dims...}) pairs += a == b;
  return pairs == sizeof...(Dims);
}

// The elements that a shift in either direction moves by, below the extent.
inline std::size_t rolled_by(std::ptrdiff_t shift, std::size_t extent) {
  if (extent == 0) return 0;
  const std::size_t size = std::size_t(shift < 0 ? -(shift + 1) : shift) % extent;
  return shift < 0 ? extent - 1 - size : size;
}

}  // namespace detail

namespace operations {

/// x with `before` and `after` more elements at the ends of each of these dims, which no axis may cut: zeros, or copies of
/// elements, as torch.nn.functional.pad with mode "constant", "circular", "reflect" or "replicate". Partial stays Partial. Throws
/// ShapeError for copies that a dim has no elements for. The gradient is pad_gradient<Dim, More...>(x.shape(), before, mode, g).
template <int Dim, int... More, AnyTensor X>
X pad(const X& x, std::size_t before, std::size_t after, PaddingMode mode = PaddingMode::zeros) {
  constexpr bool once = detail::differ<Dim, More...>();
  static_assert(once, "weft: pad: a dim is named twice: write pad<2, 3>(x, before, after), each dim once");
  detail::require_padding_along<Dim>(x, before, after, mode);
  (detail::require_padding_along<More>(x, before, after, mode), ...);
  Shape shape = x.shape();
  for (const int dim : {Dim, More...}) shape = detail::with_extent(shape, dim, shape[std::size_t(dim)] + before + after);
  X out(x.device(), shape);
  kernels::pad<typename X::value_type>(x.device(), "copy", detail::padded_dims<Dim, More...>(x.shape(), before, after, mode),
                                       x.data(), out.data());
  return out;
}
/// The sum of the elements of g that are copies of an element, in accumulate_t, rounded once.
template <int Dim, int... More, AnyTensor G>
G pad_gradient(const Shape& x, std::size_t before, PaddingMode mode, const G& g) {
  G out(g.device(), x);
  const std::size_t after = g.shape()[Dim] - before - x[Dim];
  kernels::fold<typename G::value_type>(g.device(), "copy", detail::padded_dims<Dim, More...>(x, before, after, mode), g.data(),
                                        out.data());
  return out;
}

/// x with the elements of dim `Dim`, which no axis may cut, in reverse order. The gradient is flip<Dim>(g).
template <int Dim, AnyTensor X>
X flip(const X& x) {
  const auto around = detail::along_whole<Dim>("flip", x);
  X out(x.device(), x.shape());
  kernels::move_along<typename X::value_type>(x.device(), around, kernels::Flipped{around.extent}, x.data(), out.data());
  return out;
}

/// x with element k of dim `Dim`, which no axis may cut, at k + shift; those beyond the end come first, as torch.roll. The
/// gradient is roll<Dim>(g, -shift).
template <int Dim, AnyTensor X>
X roll(const X& x, std::ptrdiff_t shift) {
  const auto around = detail::along_whole<Dim>("roll", x);
  X out(x.device(), x.shape());
  kernels::move_along<typename X::value_type>(
      x.device(), around, kernels::Rolled{around.extent, detail::rolled_by(shift, around.extent)}, x.data(), out.data());
  return out;
}

// The same on Variables, also inside of grad. Nothing is kept for backward but shapes.
template <int Dim, int... More, class C, class X>
auto pad(const Variable<C, X>& x, std::size_t before, std::size_t after, PaddingMode mode = PaddingMode::zeros) {
  return detail::linear_pair([=](const auto& value) { return pad<Dim, More...>(value, before, after, mode); },
                             [=, shape = x.shape()](const auto& g) { return pad_gradient<Dim, More...>(shape, before, mode, g); },
                             x);
}
template <int Dim, class C, class X>
auto flip(const Variable<C, X>& x) {
  const auto flipped = [](const auto& value) { return flip<Dim>(value); };
  return detail::linear_pair(flipped, flipped, x);
}
template <int Dim, class C, class X>
auto roll(const Variable<C, X>& x, std::ptrdiff_t shift) {
  detail::require_dim("roll", x.shape(), Dim);
  const std::ptrdiff_t by = std::ptrdiff_t(detail::rolled_by(shift, x.shape()[Dim]));
  return detail::linear_pair([by](const auto& value) { return roll<Dim>(value, by); },
                             [by](const auto& g) { return roll<Dim>(g, -by); }, x);
}

}  // namespace operations

}  // namespace weft
