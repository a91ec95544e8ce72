// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions and pooling of images whose dims an axis cuts. The window is part of the type, so the compiler checks that a halo
// is wide enough, and the result's type states the rows that remain. One exchange may serve several windows.
//
//   auto y = conv2d<Window{3, 1, 1}>(to<Halo<dx, 2, 2>>(x), v, a);   // of two rows on each side one remains
//   auto z = conv2d<Window{3, 1, 1}>(relu(y), w, b);                 // Shard<dx, 2>, as x
//
// On such an axis a window works as if its ranks had separate samples: the weights are Replicated, their gradient is Partial.
// Ranks at the border of the domain pad their images there, others have rows of their neighbours.

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/operations/convolution.hpp>
#include <weft/operations/exchanged_rows.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/refused.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/halo.hpp>

namespace weft {

/// A window of a convolution or of pooling, the same along each dim of an image. Padding: zeros of a convolution and of a mean,
/// nothing of a maximum.
struct Window {
  int kernel = 3, stride = 1, padding = 0, dilation = 1;
  /// The rows from its first to its last.
  constexpr int span() const { return (kernel - 1) * dilation + 1; }
  /// The rows of the neighbours that a rank's outputs depend on.
  constexpr int before() const { return padding; }
  constexpr int after() const { return std::max(0, span() - padding - stride); }
  /// Whether the outputs of a rank's rows follow those of the previous ranks.
  constexpr bool keeps_cuts() const { return kernel > 0 && stride > 0 && dilation > 0 && padding >= 0 && padding < span(); }
};

namespace detail {

// The rule on one axis for a window over dims 2 to dims + 1. Other placements are those of the operation.
template <Window w, int dims, class P>
struct Windowed {
  using Piece = PieceOf<P>;
  static constexpr bool cuts_images = Piece::dim >= 2;
  static constexpr int before = Piece::before - w.before(), after = Piece::after - w.after();
  static constexpr bool fits = !cuts_images || (kind_of<P> != Kind::halo_terms && Piece::dim < dims + 2 && w.keeps_cuts() &&
                                                before >= 0 && after >= 0 && (w.stride == 1 || (before == 0 && after == 0)));
  // A place in the type of the operation's operand, which sees samples.
  using as_samples = std::conditional_t<cuts_images, Shard<typename P::axis, 0>, P>;
  template <bool rest, class = void>
  struct Remains {
    using type = Shard<typename P::axis, Piece::dim>;
  };
  template <class Unused>
  struct Remains<true, Unused> {
    using type = Halo<typename P::axis, Piece::dim, before, after, Piece::border>;
  };
  // The placement of the result, if the operation gave Q for samples.
  template <class Q>
  using of = typename std::conditional_t<cuts_images, Remains<(before + after > 0)>, std::type_identity<Q>>::type;
};

template <Window w, int dims, class X>
struct WindowedTensor;
template <Window w, int dims, class T, class E, class... P>
struct WindowedTensor<w, dims, Tensor<T, E, P...>> {
  static constexpr bool fits = (Windowed<w, dims, P>::fits && ...);
  using as_samples = Tensor<T, E, typename Windowed<w, dims, P>::as_samples...>;
  template <class Y>
  struct Placed;
  template <class S, class... Q>
  struct Placed<Tensor<S, E, Q...>> {
    using type = Tensor<S, E, typename Windowed<w, dims, P>::template of<Q>...>;
  };
  template <class Y>
  using result = typename Placed<Y>::type;
};

/// The padding of this rank's images: on the sides at the border of the domain, and on those that no axis cuts.
struct WindowSides {
  PerDim before, after;
};

template <Window w, int dims, class C, class X>
WindowSides window_sides(const char* operation, const Variable<C, X>& x) {
  std::array<std::size_t, dims> before, after;
  before.fill(std::size_t(w.padding)), after.fill(std::size_t(w.padding));
  const auto& context = x.context();
  C::for_each_axis([&]<class A>(A axis) {
    using P = placement_t<X, A>;
    constexpr int dim = Windowed<w, dims, P>::Piece::dim;
    if constexpr (dim >= 2 && dim < dims + 2) {
      const HaloRows rows = halo_rows<P>(context.comm(axis));
      if (x.shape().rank() > std::size_t(dim) && !rows.last)
        require_rows_of_stride(operation, A::name, {x.value()}, x.shape()[dim] - rows.before - rows.after, std::size_t(w.stride));
      if (!rows.first) before[dim - 2] = 0;
      if (!rows.last) after[dim - 2] = 0;
    }
  });
  return {PerDim::of(before), PerDim::of(after)};
}

// Prints the operand and the rows that it needs of each neighbour.
template <class X, int before, int after, bool keeps_cuts>
AlreadyRefused refused_window() {
  static_assert(
      keeps_cuts,
      "weft: the padding of a window over cut images is less than its span: outputs of padding only would come on two ranks");
  static_assert(
      !keeps_cuts || !AnyTensor<X>,
      "weft: this window reaches over the edge of a rank's piece: an axis cuts a dim of the images, and the operand lacks "
      "rows of the neighbours; bring them first, to<Halo<axis, dim, before, after>>(x), exactly so many for a stride; "
      "see X, before and after in this function's template arguments");
  return {};
}

// f(images, sides) of images of which each rank has samples.
template <Window w, int dims, class C, class X, class F>
auto windowed(const char* operation, const Variable<C, X>& x, F&& f) {
  using Rule = WindowedTensor<w, dims, X>;
  if constexpr (!Rule::fits) {
    return refused_window<X, w.before(), w.after(), w.keeps_cuts()>();
  } else {
    const auto y = f(relabelled<typename Rule::as_samples>(x), window_sides<w, dims>(operation, x));
    using V = std::remove_const_t<decltype(y)>;
    if constexpr (is_silent<V>) return AlreadyRefused();
    else return relabelled<typename Rule::template result<typename V::tensor_type>>(y);
  }
}

void require_kernel(const char* operation, const Shape& weights, std::size_t dims, std::size_t kernel);
template <Window w, int dims, ConvolutionKind kind, class C, class X, class W, class... B>
auto windowed_convolution(const char* operation, const Variable<C, X>& x, W&& weights, B&&... bias) {
  return windowed<w, dims>(operation, x, [&](const auto& images, const WindowSides& sides) {
    using V = std::remove_cvref_t<W>;
    if constexpr (is_variable<V>) require_kernel(operation, weights.shape(), dims, w.kernel);
    else if constexpr (is_parameter_object<V>)
      require_kernel(operation, weights.for_operand(images.value()).shape(), dims, w.kernel);
    const ConvolutionOptions options{
        .stride = w.stride, .padding = sides.before, .dilation = w.dilation, .padding_after = sides.after};
    return convolution_of<kind>(operation, dims, options, images, std::forward<W>(weights), std::forward<B>(bias)...);
  });
}
template <Window w>
PoolingOptions pooling_options(const WindowSides& sides) {
  return {.kernel = w.kernel, .stride = w.stride, .padding = sides.before, .padding_after = sides.after};
}

}  // namespace detail

namespace operations {

/// conv2d(x, weights, bias, {.stride = w.stride, .padding = w.padding, .dilation = w.dilation}) of images whose dims may be cut,
/// x Halo<axis, dim, before, after> with at least the window's before() and after() rows, or Shard<axis, dim> if both are 0. The
/// result has the halo's other rows, Shard<axis, dim> if none remain; with a stride none do. Pieces may have different extents;
/// all but the last are multiples of the stride. Throws ShapeError for others, and for weights of another kernel. Numerics: each
/// output as on one rank; gradients of the weights are terms of a sum.
template <Window w, class C, class X, class W, class... B>
auto conv2d(const Variable<C, X>& x, W&& weights, B&&... bias) {
  return detail::windowed_convolution<w, 2, detail::ConvolutionKind::plain>("conv2d", x, std::forward<W>(weights),
                                                                            std::forward<B>(bias)...);
}
template <Window w, class C, class X, class W, class... B>
auto conv1d(const Variable<C, X>& x, W&& weights, B&&... bias) {
  return detail::windowed_convolution<w, 1, detail::ConvolutionKind::plain>("conv1d", x, std::forward<W>(weights),
                                                                            std::forward<B>(bias)...);
}
template <Window w, class C, class X, class W, class... B>
auto conv3d(const Variable<C, X>& x, W&& weights, B&&... bias) {
  return detail::windowed_convolution<w, 3, detail::ConvolutionKind::plain>("conv3d", x, std::forward<W>(weights),
                                                                            std::forward<B>(bias)...);
}
template <Window w, class C, class X, class W, class... B>
auto depthwise_conv1d(const Variable<C, X>& x, W&& weights, B&&... bias) {
  return detail::windowed_convolution<w, 1, detail::ConvolutionKind::depthwise>("depthwise_conv1d", x, std::forward<W>(weights),
                                                                                std::forward<B>(bias)...);
}
template <Window w, class C, class X, class W, class... B>
auto depthwise_conv2d(const Variable<C, X>& x, W&& weights, B&&... bias) {
  return detail::windowed_convolution<w, 2, detail::ConvolutionKind::depthwise>("depthwise_conv2d", x, std::forward<W>(weights),
                                                                                std::forward<B>(bias)...);
}
template <Window w, class C, class X, class W, class... B>
auto depthwise_conv3d(const Variable<C, X>& x, W&& weights, B&&... bias) {
  return detail::windowed_convolution<w, 3, detail::ConvolutionKind::depthwise>("depthwise_conv3d", x, std::forward<W>(weights),
                                                                                std::forward<B>(bias)...);
}

/// max_pool2d(x, {.kernel = w.kernel, .stride = w.stride, .padding = w.padding}) of images whose dims may be cut, placed as for
/// conv2d. The padding is at most half of the window.
template <Window w, class C, class X>
auto max_pool2d(const Variable<C, X>& x) {
  static_assert(w.dilation == 1, "weft: a window of pooling has no dilation");
  return detail::windowed<w, 2>("max_pool2d", x, [](const auto& images, const detail::WindowSides& sides) {
    return detail::max_pool("max_pool2d", 2, images, detail::pooling_options<w>(sides));
  });
}
template <Window w, class C, class X>
auto max_pool1d(const Variable<C, X>& x) {
  static_assert(w.dilation == 1, "weft: a window of pooling has no dilation");
  return detail::windowed<w, 1>("max_pool1d", x, [](const auto& images, const detail::WindowSides& sides) {
    return detail::max_pool("max_pool1d", 1, images, detail::pooling_options<w>(sides));
  });
}
template <Window w, class C, class X>
auto max_pool3d(const Variable<C, X>& x) {
  static_assert(w.dilation == 1, "weft: a window of pooling has no dilation");
  return detail::windowed<w, 3>("max_pool3d", x, [](const auto& images, const detail::WindowSides& sides) {
    return detail::max_pool("max_pool3d", 3, images, detail::pooling_options<w>(sides));
  });
}
/// The mean of each window, as max_pool2d.
template <Window w, class C, class X>
auto avg_pool2d(const Variable<C, X>& x) {
  static_assert(w.dilation == 1, "weft: a window of pooling has no dilation");
  return detail::windowed<w, 2>("avg_pool2d", x, [](const auto& images, const detail::WindowSides& sides) {
    return detail::average_pool("avg_pool2d", 2, images, detail::pooling_options<w>(sides));
  });
}
template <Window w, class C, class X>
auto avg_pool1d(const Variable<C, X>& x) {
  static_assert(w.dilation == 1, "weft: a window of pooling has no dilation");
  return detail::windowed<w, 1>("avg_pool1d", x, [](const auto& images, const detail::WindowSides& sides) {
    return detail::average_pool("avg_pool1d", 1, images, detail::pooling_options<w>(sides));
  });
}
template <Window w, class C, class X>
auto avg_pool3d(const Variable<C, X>& x) {
  static_assert(w.dilation == 1, "weft: a window of pooling has no dilation");
  return detail::windowed<w, 3>("avg_pool3d", x, [](const auto& images, const detail::WindowSides& sides) {
    return detail::average_pool("avg_pool3d", 3, images, detail::pooling_options<w>(sides));
  });
}

// An operand that was refused already: one error is enough.
#define WEFT_REFUSED_WINDOW(name)                                                      \
  template <Window w, class... More>                                                   \
  detail::AlreadyRefused name(const detail::AlreadyRefused& refused, const More&...) { \
    return refused;                                                                    \
  }
WEFT_REFUSED_WINDOW(conv1d)
WEFT_REFUSED_WINDOW(conv2d)
WEFT_REFUSED_WINDOW(conv3d)
WEFT_REFUSED_WINDOW(depthwise_conv1d)
WEFT_REFUSED_WINDOW(depthwise_conv2d)
WEFT_REFUSED_WINDOW(depthwise_conv3d)
WEFT_REFUSED_WINDOW(max_pool1d)
WEFT_REFUSED_WINDOW(max_pool2d)
WEFT_REFUSED_WINDOW(max_pool3d)
WEFT_REFUSED_WINDOW(avg_pool1d)
WEFT_REFUSED_WINDOW(avg_pool2d)
WEFT_REFUSED_WINDOW(avg_pool3d)
#undef WEFT_REFUSED_WINDOW

}  // namespace operations

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/window_impl.hpp>
#endif
