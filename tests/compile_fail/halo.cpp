// SPDX-License-Identifier: Apache-2.0
// Halos: forgotten, too narrow, and under operations that have no rule for them.
#include <weft/nn/group_norm.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/operations/window.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct along : UserAxis<0> {
  static constexpr std::string_view name = "along";
};
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over = decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<along>>(
    along{}, Communicator()));
using Rows = X<Shard<along, 2>>;

// section: forgotten
// The window of a convolution reaches over the edge of a rank's rows.
// expect: this window reaches over the edge of a rank's piece
// mention: to<Halo<axis, dim, before, after>>\(x\)
// mention: int before = 1|refused_window<.*, 1, 1, true>
struct Block : Module<Block> {
  Parameter<> w;
  explicit Block(const auto& context) : w(context, "w", {4, 3, 3, 3}, normal(1)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return max_pool2d<Window{2, 2}>(relu(conv2d<Window{3, 1, 1}>(x, w) * 2));
#else
    return max_pool2d<Window{2, 2}>(relu(conv2d<Window{3, 1, 1}>(to<Halo<along, 2, 1>>(x), w) * 2));
#endif
  }
};

auto go(const Over& context, Rows x) { return weft::forward(Block(context), context, x).output; }

// section: too_narrow
// A halo of one row serves one of two convolutions.
// expect: this window reaches over the edge of a rank's piece
struct Block : Module<Block> {
  Parameter<> v, w;
  explicit Block(const auto& context) : v(context, "v", {3, 3, 3, 3}, normal(1)), w(context, "w", {4, 3, 3, 3}, normal(1)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    const auto wide = to<Halo<along, 2, 1>>(x);
#else
    const auto wide = to<Halo<along, 2, 2>>(x);
#endif
    return conv2d<Window{3, 1, 1}>(relu(conv2d<Window{3, 1, 1}>(wide, v)), w);
  }
};

auto go(const Over& context, Rows x) { return weft::forward(Block(context), context, x).output; }

// section: too_wide_for_a_stride
// Rows of a neighbour would be outputs in its place and in another's.
// expect: this window reaches over the edge of a rank's piece
// mention: exactly so many for a stride
struct Block : Module<Block> {
  explicit Block(const auto&) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return max_pool2d<Window{3, 2, 1}>(to<Halo<along, 2, 1, 1>>(x));
#else
    return max_pool2d<Window{3, 2, 1}>(to<Halo<along, 2, 1, 0>>(x));
#endif
  }
};

auto go(const Over& context, Rows x) { return weft::forward(Block(context), context, x).output; }

// section: padding_of_a_whole_window
// Outputs of padding only would come twice, once on each of two ranks.
// expect: the padding of a window over cut images is less than its span
struct Block : Module<Block> {
  Parameter<> w;
  explicit Block(const auto& context) : w(context, "w", {4, 3, 3, 3}, normal(1)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return conv2d<Window{3, 1, 3}>(to<Halo<along, 2, 3>>(x), w);
#else
    return conv2d<Window{3, 1, 2}>(to<Halo<along, 2, 3>>(x), w);
#endif
  }
};

auto go(const Over& context, Rows x) { return weft::forward(Block(context), context, x).output; }

// section: sum_of_a_halo
// The neighbours' rows would count twice.
// expect: this operation has no rule for a Halo or its gradient
// mention: to<Shard<axis, dim>>\(x\)
#ifdef WEFT_FAIL
auto go(X<Halo<along, 2, 1>> x) { return sum_all(x); }
#else
auto go(X<Shard<along, 2>> x) { return sum_all(x); }
#endif

// section: sum_of_closed_and_periodic
// Two halos of one width, of which one goes on at the other end of the domain.
// expect: add: the two terms are placed differently
#ifdef WEFT_FAIL
auto go(X<Halo<along, 2, 1>> x, X<Halo<along, 2, 1, 1, Border::periodic>> y) { return add(x, y); }
#else
auto go(X<Halo<along, 2, 1>> x, X<Halo<along, 2, 1>> y) { return add(x, y); }
#endif

// section: periodic_halo_without_its_axis
// Without the axis in the mesh nobody would bring the rows of the other end.
// expect: a Halo with a periodic border needs its axis in the mesh
struct nowhere : UserAxis<1> {
  static constexpr std::string_view name = "nowhere";
};
auto go(const Over& context, X<Shard<along, 2>> x) {
#ifdef WEFT_FAIL
  return to<Halo<nowhere, 2, 1, 1, Border::periodic>>(context, x);
#else
  return to<Halo<along, 2, 1, 1, Border::periodic>>(context, x);
#endif
}

// section: gradient_of_a_halo_dropped
// The rows that a rank computed for its neighbours have gradients too: they go home, and are not dropped.
// expect: backward returned a gradient that is not the dual of its input
#ifdef WEFT_FAIL
struct Twice : Primitive<Twice> {
  auto forward(const auto& context, const auto& x) const { return Result{scale(to<Shard<along, 2>>(context, x), 2), Nothing{}}; }
  auto backward(const auto&, Nothing, const auto& g) { return InputGradient{scale(g, 2), Nothing{}}; }
};
#else
struct Twice : Primitive<Twice> {
  auto forward(const auto& context, const auto& x) const { return Result{scale(to<Shard<along, 2>>(context, x), 2), Nothing{}}; }
  auto backward(const auto& context, Nothing, const auto& g) {
    return InputGradient{to<HaloTerms<along, 2, 1>>(context, scale(g, 2)), Nothing{}};
  }
};
#endif
auto go(const Over& context, X<Halo<along, 2, 1>> x, X<Shard<along, 2>> g) {
  Twice twice;
  const auto out = twice.forward(context, x);
  auto result = twice.backward(context, out.saved, g);
  require_gradient_of<X<Halo<along, 2, 1>>, decltype(result.input_gradient)>();
}

// section: gradient_of_cut_columns_as_samples
// The fault of pytorch#191926: the input is cut along an image's columns, and its gradient is labelled as cut along the samples.
// expect: backward returned a gradient that is not the dual of its input
struct Doubled : Primitive<Doubled> {
  auto forward(const auto&, const auto& x) const { return Result{scale(x, 2), Nothing{}}; }
  auto backward(const auto&, Nothing, const auto& g) {
#ifdef WEFT_FAIL
    return InputGradient{relabel<X<Shard<along, 0>>>(scale(g, 2)), Nothing {}};
#else
    return InputGradient{scale(g, 2), Nothing{}};
#endif
  }
};
auto go(const Over& context, X<Shard<along, 3>> x) {
  Doubled doubled;
  const auto out = doubled.forward(context, x);
  auto result = doubled.backward(context, out.saved, out.output);
  require_gradient_of<X<Shard<along, 3>>, decltype(result.input_gradient)>();
}

// section: gradient_of_a_one_sided_halo_mirrored
// The fault of anemoi-core#1415: the way back takes the rows that the way there sent to the other side. Both agree only if the
// neighbours exchange alike.
// expect: backward returned a gradient that is not the dual of its input
struct Doubled : Primitive<Doubled> {
  auto forward(const auto&, const auto& x) const { return Result{scale(x, 2), Nothing{}}; }
  auto backward(const auto& context, Nothing, const auto& g) {
#ifdef WEFT_FAIL
    return InputGradient{to<HaloTerms<along, 2, 0, 2>>(context, scale(g, 2)), Nothing {}};
#else
    (void)context;
    return InputGradient{scale(g, 2), Nothing{}};
#endif
  }
};
auto go(const Over& context, X<Halo<along, 2, 2, 0>> x, X<HaloTerms<along, 2, 2, 0>> g) {
  Doubled doubled;
  const auto out = doubled.forward(context, x);
  auto result = doubled.backward(context, out.saved, g);
  require_gradient_of<X<Halo<along, 2, 2, 0>>, decltype(result.input_gradient)>();
}

// section: group_norm_of_rows_that_another_axis_cuts
// Statistics are summed over domain axes only.
// expect: GroupNorm needs whole images
// mention: over a domain axis
#ifdef WEFT_FAIL
auto go(const Over& context, X<Shard<along, 2>> x, GroupNorm<> norm) { return norm.forward(context, x).output; }
#else
auto go(const Over& context, X<Shard<along, 0>> x, GroupNorm<> norm) { return norm.forward(context, x).output; }
#endif

// section: upsample_of_a_tensor_without_ranks
// A tensor names no ranks to bring rows of.
// expect: upsample needs whole images
// mention: images of Variables over a domain axis
#ifdef WEFT_FAIL
auto go(X<Shard<dx, 2>> x) { return upsample(x, {.mode = UpsampleMode::linear}); }
#else
auto go(X<Shard<dp, 0>> x) { return upsample(x, {.mode = UpsampleMode::linear}); }
#endif

// section: a_cut_over_an_axis_of_parameters
// A field of space is cut over the axes of space.
// expect: data::Cut<axis, dim> is for a domain axis
#ifdef WEFT_FAIL
template struct weft::data::Field<"state", float, data::Cut<tp, 2>>;
#else
template struct weft::data::Field<"state", float, data::Cut<dx, 2>>;
#endif

// section: a_dim_cut_twice
// expect: a field's data::Cut options name each axis and each dim once
#ifdef WEFT_FAIL
template struct weft::data::Field<"state", float, data::Cut<dx, 2>, data::Cut<dy, 2>>;
#else
template struct weft::data::Field<"state", float, data::Cut<dx, 2>, data::Cut<dy, 3>>;
#endif

// section: mse_of_cut_samples_without_a_context
// The elements of a sample are counted over the ranks, which a tensor does not name.
// expect: a domain axis cuts the samples of this loss, and a tensor has no ranks
#ifdef WEFT_FAIL
auto go(X<Shard<dx, 2>> x) { return mse(x, x); }
#else
auto go(X<Shard<dp, 0>> x) { return mse(x, x); }
#endif
