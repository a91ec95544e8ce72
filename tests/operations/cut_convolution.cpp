// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/cut_convolution.hpp weft/operations/cut_passes.hpp weft/operations/cut_pooling.hpp
// covers: weft/operations/exchanged_window.hpp weft/tensor/halo.hpp
// Convolutions, pooling and enlargement of pieces whose exchanges are hidden: equal to one rank, with the bits of an exchange
// that is waited for, and faster than it with a delay in every message. One FLOP takes one second there, and ranks have clocks of
// these seconds.
#include <weft/operations/cut_convolution.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/operations/cut_passes.hpp>
#include <weft/operations/cut_pooling.hpp>
#include <weft/operations/exchanged_window.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/tensor/halo.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/testing/delay_messages.hpp>
#include <weft/weft.hpp>

#include "support/pieces_of_whole.hpp"

using namespace weft;
using namespace weft_test;

namespace {

using detail::ConvolutionKind;
using testing::detail::Made, testing::detail::Numbers, testing::detail::Root, testing::detail::distance;

/// A convolution of images, and the rows that each rank has along each dim.
struct Case {
  Shape images;
  std::size_t out;
  PerDim kernel;
  ConvolutionOptions options;
  std::vector<std::vector<std::size_t>> pieces;
  bool waits = true;  ///< whether an exchange before the padding takes these pieces, too
  Shape weights(ConvolutionKind kind) const {
    Shape shape = Shape::of_rank(images.rank());
    shape[0] = kind == ConvolutionKind::plain ? out : images[1];
    shape[1] = kind == ConvolutionKind::plain       ? images[1] / options.groups
               : kind == ConvolutionKind::depthwise ? 1
                                                    : out / options.groups;
    for (std::size_t dim = 2; dim < shape.rank(); ++dim) shape[dim] = kernel[dim - 2];
    return shape;
  }
};

/// The placement of the first axis that cuts images; Nothing if none does.
template <class X>
struct FirstCut {
  using type = Nothing;
};
template <class T, class E, class P, class... R>
struct FirstCut<Tensor<T, E, P, R...>> {
  using type = typename std::conditional_t<(shard_dim<P> >= 2), std::type_identity<P>, FirstCut<Tensor<T, E, R...>>>::type;
};
/// x with the rows of its neighbours along one axis, whose ranks then have samples. Waits for them.
template <class P, class V>
auto with_rows(const V& x, const detail::HaloRows& rows) {
  using X = typename V::tensor_type;
  using Y = replace_t<X, Shard<typename P::axis, 0>>;
  constexpr std::size_t dim = shard_dim<P>;
  const detail::HaloCall call{"conv", P::axis::name};
  auto wide = rows.none() ? relabel<Y>(x.value())
                          : detail::bring_halo<Y>(x.context().comm(typename P::axis()), call, x.value(), dim, rows);
  return record(x, std::move(wide), detail::from(x, [call, rows](const auto& context, const auto& g) {
                  using G = gradient_t<X>;
                  return rows.none() ? relabel<G>(g)
                                     : detail::send_halo_home<G>(context.comm(typename P::axis()), call, g, dim, rows);
                }));
}
/// f(images, options) of images with all their halos: an exchange for each axis, which is waited for.
template <int dims, class V, class Plan, class F>
auto waiting(const Case& c, const ConvolutionOptions& options, const V& x, Plan* plan, F&& f) {
  using P = typename FirstCut<typename V::tensor_type>::type;
  if constexpr (std::is_same_v<P, Nothing>) {
    return f(x, options);
  } else {
    constexpr std::size_t at = shard_dim<P> - 2;
    const auto cut =
        plan({{"conv", P::axis::name}, at, x.shape()[at + 2]}, x.context().comm(typename P::axis()), c.kernel[at], options);
    const PerDim& behind = options.padding_after.count() == 0 ? options.padding : options.padding_after;
    std::array<std::size_t, dims> before, after, more;
    for (std::size_t dim = 0; dim < dims; ++dim)
      before[dim] = options.padding[dim], after[dim] = behind[dim], more[dim] = options.output_padding[dim];
    before[at] = cut.before, after[at] = cut.after, more[at] = cut.output_padding;
    ConvolutionOptions sides = options;
    sides.padding = PerDim::of(before), sides.padding_after = PerDim::of(after), sides.output_padding = PerDim::of(more);
    const auto y = waiting<dims>(c, sides, with_rows<P>(x, cut.rows), plan, f);
    return detail::relabelled<replace_t<typename std::remove_const_t<decltype(y)>::tensor_type, P>>(y);
  }
}

template <int dims, ConvolutionKind kind, bool hidden>
struct Layer : Module<Layer<dims, kind, hidden>> {
  static constexpr bool transposed = kind == ConvolutionKind::transposed;
  Parameter<> weight, bias;
  const Case& of;
  Layer(const auto& at, const Case& c)
      : weight(at, "weight", c.weights(kind), normal(0.4)),
        bias(at, "bias", {transposed ? c.out : c.weights(kind)[0]}, normal(0.4)),
        of(c) {}
  /// The first result of a piece that begins at `row`.
  static std::size_t result_of(const Case& c, std::size_t dim, std::size_t row) {
    return transposed ? row * c.options.stride[dim] : row / c.options.stride[dim];
  }
  auto forward(const auto& x) const {
    const auto convolve = [&](const auto& images, const ConvolutionOptions& options) {
      return detail::convolution_of<kind>("conv", dims, options, images, weight, bias);
    };
    if constexpr (!detail::cut_in_space<typename std::remove_cvref_t<decltype(x)>::tensor_type>) return convolve(x, of.options);
    else if constexpr (hidden) return detail::exchanged_convolution<dims, kind>("conv", of.kernel, of.options, x, weight, bias);
    else return waiting<dims>(of, of.options, x, transposed ? detail::cut_transposed : detail::cut_window, convolve);
  }
};

enum class Pooled { maximum, mean };
/// Pooling of coarse numbers, of which many are equal.
template <int dims, Pooled of_windows, bool hidden>
struct Pool : Module<Pool<dims, of_windows, hidden>> {
  static constexpr double steps = 2;
  const Case& of;
  Pool(const auto&, const Case& c) : of(c) {}
  static std::size_t result_of(const Case& c, std::size_t dim, std::size_t row) { return row / c.options.stride[dim]; }
  auto forward(const auto& x) const {
    const auto pool = [&](const auto& images, const ConvolutionOptions& options) {
      const PoolingOptions sides{of.kernel, options.stride, options.padding, options.padding_after};
      if constexpr (of_windows == Pooled::maximum) return detail::max_pool("pool", dims, images, sides);
      else return detail::average_pool("pool", dims, images, sides);
    };
    const PoolingOptions options{of.kernel, of.options.stride, of.options.padding, of.options.padding_after};
    if constexpr (!detail::cut_in_space<typename std::remove_cvref_t<decltype(x)>::tensor_type>) return pool(x, of.options);
    else if constexpr (!hidden) return waiting<dims>(of, of.options, x, detail::cut_window, pool);
    else if constexpr (of_windows == Pooled::maximum) return detail::max_pool_over_images<dims>("pool", x, options);
    else return detail::average_pool_over_images<dims>("pool", x, options);
  }
};
/// Linear enlargement by the options' strides.
struct Enlarge : Module<Enlarge> {
  const Case& of;
  Enlarge(const auto&, const Case& c) : of(c) {}
  static std::size_t result_of(const Case& c, std::size_t dim, std::size_t row) { return row * c.options.stride[dim]; }
  auto forward(const auto& x) const { return upsample(x, {.factor = of.options.stride, .mode = UpsampleMode::linear}); }
};

template <class L>
constexpr bool is_transposed() {
  if constexpr (requires { L::transposed; }) return L::transposed;
  else return false;
}
/// The distance of a layer's images' numbers is 1 / steps; 0: any numbers.
template <class L>
constexpr double steps_of() {
  if constexpr (requires { L::steps; }) return L::steps;
  else return 0;
}

struct Outcome {
  Shape results;
  Numbers y, dx, weight, bias;
};

/// A forward and a backward of a piece that begins at `first`; its outputs begin at `first` / stride. Without `results`, those
/// of the whole.
template <class L, class... P, class Bind>
Outcome outcome_of(DefaultDevice& device, const Case& c, const Shape& piece, std::vector<std::size_t> first, const Shape* results,
                   Bind&& bind) {
  Made made(device);
  const auto context = bind(
      Root(device, testing::detail::environment({}, piece), testing::detail::engine(made), testing::detail::construction(made)));
  L layer(context, c);
  const auto step = weft::detail::step_context(context);
  Tensor<double, testing::detail::Exec, P...> x(device, piece);
  Numbers values = numbers_of_piece(piece, first, c.images, 0.1);
  if constexpr (steps_of<L>() != 0)
    for (double& value : values) value = std::round(value * steps_of<L>()) / steps_of<L>();
  copy_from_host(x, std::span<const double>(values));
  auto forward = weft::forward(layer, step, x);
  Outcome outcome{forward.output.shape(), copy_to_host(forward.output), {}, {}, {}};
  for (std::size_t dim = 2; dim < first.size(); ++dim) first[dim] = L::result_of(c, dim - 2, first[dim]);
  gradient_t<decltype(forward.output)> g(device, outcome.results);
  copy_from_host(
      g, std::span<const double>(numbers_of_piece(outcome.results, first, results == nullptr ? outcome.results : *results, 0.7)));
  outcome.dx = copy_to_host(weft::backward(layer, step, std::move(forward.saved), g));
  for (const auto* state : parameters_of(made)) {
    const Tensor<double, testing::detail::Exec> sums(device, state->local(), state->gradient());
    (state->name() == "weight" ? outcome.weight : outcome.bias) = copy_to_host(sums);
  }
  return outcome;
}

template <int dims>
auto on(const Communicator& x, [[maybe_unused]] const Communicator& y, [[maybe_unused]] const Communicator& z) {
  return [&](const Root& root) {
    const auto one = root.with<Shard<dp, 0>>(dp{}, Communicator(std::make_shared<comm::SelfGroup>("dp", "threads")))
                         .template with<Shard<dx, 2>>(dx{}, x);
    if constexpr (dims == 1) return one;
    else if constexpr (dims == 2) return one.template with<Shard<dy, 3>>(dy{}, y);
    else return one.template with<Shard<dy, 3>>(dy{}, y).template with<Shard<dz, 4>>(dz{}, z);
  };
}
template <int dims, class L>
Outcome outcome_on(DefaultDevice& device, const Case& c, const Shape& piece, const std::vector<std::size_t>& first,
                   const Shape& whole, const Communicator& x, const Communicator& y, const Communicator& z) {
  using S = Shard<dp, 0>;
  if constexpr (dims == 1) return outcome_of<L, S, Shard<dx, 2>>(device, c, piece, first, &whole, on<1>(x, y, z));
  else if constexpr (dims == 2)
    return outcome_of<L, S, Shard<dx, 2>, Shard<dy, 3>>(device, c, piece, first, &whole, on<2>(x, y, z));
  else return outcome_of<L, S, Shard<dx, 2>, Shard<dy, 3>, Shard<dz, 4>>(device, c, piece, first, &whole, on<3>(x, y, z));
}

void add(Numbers& sums, const Numbers& terms) {
  sums.resize(terms.size());
  for (std::size_t i = 0; i < terms.size(); ++i) sums[i] += terms[i];
}

/// Results and gradients of L in pieces, of one rank, and of Waiting.
template <int dims, class L, class Waiting>
void pieces_equal_one_rank(const Case& c) {
  INFO("images ", c.images.text());
  Outcome whole;
  std::size_t ranks = 1;
  for (const auto& rows : c.pieces) ranks *= rows.size();
  std::mutex mutex;
  Numbers weight, bias;
  double bits = 0, off = 0;
  const int code = run<comm::Threads>(RunOptions{.ranks = int(ranks)}, [&](World& world) {
    if (world.rank() == 0)
      whole = outcome_of<L>(world.device(), c, c.images, std::vector<std::size_t>(dims + 2, 0), nullptr,
                            [](const Root& root) { return root; });
    world.communicator().barrier();
    const auto degree = [&](std::size_t dim) { return dim < c.pieces.size() ? c.pieces[dim].size() : 1; };
    const Mesh mesh(world, axes<dp, dx, dy, dz>, {.dx = degree(0), .dy = degree(1), .dz = degree(2)});
    const std::size_t at[] = {std::size_t(mesh.rank(dx{})), std::size_t(mesh.rank(dy{})), std::size_t(mesh.rank(dz{}))};
    Shape piece = c.images;
    std::vector<std::size_t> first(dims + 2, 0);
    for (std::size_t dim = 0; dim < dims; ++dim) {
      piece[dim + 2] = c.pieces[dim][at[dim]];
      for (std::size_t before = 0; before < at[dim]; ++before) first[dim + 2] += c.pieces[dim][before];
    }
    const auto outcome = [&]<class M>(std::type_identity<M>) {
      return outcome_on<dims, M>(world.device(), c, piece, first, whole.results, mesh.comm(dx{}), mesh.comm(dy{}),
                                 mesh.comm(dz{}));
    };
    const Outcome mine = outcome(std::type_identity<L>()), waiting = c.waits ? outcome(std::type_identity<Waiting>()) : mine;
    const std::lock_guard lock(mutex);
    auto results_first = first;
    for (std::size_t dim = 0; dim < dims; ++dim) results_first[dim + 2] = L::result_of(c, dim, first[dim + 2]);
    off = std::max(off, distance(mine.y, piece_of_whole(whole.y, mine.results, results_first, whole.results)));
    off = std::max(off, distance(mine.dx, piece_of_whole(whole.dx, piece, first, c.images)));
    CHECK(mine.results == waiting.results);
    bits = std::max({bits, distance(mine.y, waiting.y), distance(mine.dx, waiting.dx)});
    CHECK(distance(mine.weight, waiting.weight) < 1e-13);
    add(weight, mine.weight), add(bias, mine.bias);
  });
  REQUIRE(code == 0);
  CHECK(off < 1e-13);
  // At corners the gradients of both axes meet, and their sums have another order.
  const auto cut = [](const std::vector<std::size_t>& pieces) { return pieces.size() > 1; };
  // The products of a transposed convolution have an order of their sums that depends on the rows of the strip.
  if (!is_transposed<L>() && c.options.mode == PaddingMode::zeros && std::count_if(c.pieces.begin(), c.pieces.end(), cut) <= 1)
    CHECK(bits == 0);
  CHECK(bits < 1e-13);
  CHECK(distance(weight, whole.weight) < 1e-13);
  CHECK(distance(bias, whole.bias) < 1e-13);
}

template <int dims, ConvolutionKind kind = ConvolutionKind::plain>
void equals_one_rank(const Case& c) {
  pieces_equal_one_rank<dims, Layer<dims, kind, true>, Layer<dims, kind, false>>(c);
}

template <int dims>
void pools_equal_one_rank(const Case& c) {
  pieces_equal_one_rank<dims, Pool<dims, Pooled::maximum, true>, Pool<dims, Pooled::maximum, false>>(c);
  pieces_equal_one_rank<dims, Pool<dims, Pooled::mean, true>, Pool<dims, Pooled::mean, false>>(c);
}
template <int dims>
void enlarged_equals_one_rank(const Case& c) {
  pieces_equal_one_rank<dims, Enlarge, Enlarge>(c);
}

using Sizes = std::vector<std::vector<std::size_t>>;

}  // namespace

TEST_CASE("uneven pieces, strides, dilations and groups along one axis") {
  equals_one_rank<1>({{3, 2, 16}, 4, 3, {.padding = 1}, Sizes{{5, 4, 7}}});
  equals_one_rank<1>({{2, 2, 17}, 2, 5, {.stride = 2, .padding = 2}, Sizes{{6, 4, 7}}});
  equals_one_rank<1>({{2, 2, 16}, 2, 3, {.stride = 3, .padding = 2}, Sizes{{6, 3, 7}}});
  equals_one_rank<1>({{2, 2, 16}, 2, 4, {.padding = 1, .padding_after = 2}, Sizes{{5, 4, 7}}});
  equals_one_rank<2>({{2, 4, 13, 5}, 6, {3, 5}, {.padding = {2, 0}, .dilation = {2, 1}, .groups = 2}, Sizes{{4, 5, 4}, {5}}});
  equals_one_rank<2, ConvolutionKind::depthwise>({{2, 3, 6, 11}, 3, {3, 5}, {.padding = {1, 2}}, Sizes{{6}, {4, 3, 4}}});
}
TEST_CASE("windows without a halo, with a halo on one side, and wider than their stride needs") {
  equals_one_rank<1>({{2, 2, 12}, 3, 1, {}, Sizes{{4, 5, 3}}});
  equals_one_rank<1>({{2, 2, 12}, 3, 2, {.stride = 2}, Sizes{{4, 6, 2}}});
  equals_one_rank<1>({{2, 2, 12}, 3, 3, {.stride = 2, .padding = 1}, Sizes{{4, 6, 2}}});
  equals_one_rank<1>({{2, 2, 12}, 3, 3, {}, Sizes{{4, 5, 3}}});
  equals_one_rank<1>({{2, 2, 13}, 3, 5, {.stride = 4, .padding = 2}, Sizes{{4, 4, 5}}});
}
TEST_CASE("pieces with fewer rows than the window") {
  equals_one_rank<1>({{2, 2, 9}, 3, 7, {.padding = 3}, Sizes{{3, 3, 3}}});
  equals_one_rank<1>({{2, 2, 8}, 3, 5, {.padding = 2}, Sizes{{2, 4, 2}}});
  equals_one_rank<2>({{2, 2, 6, 5}, 3, 5, {.padding = 2}, Sizes{{3, 3}, {2, 3}}});
}
TEST_CASE("pieces with fewer rows than the halo, whose rows come from the second and third neighbours") {
  equals_one_rank<1>({{2, 2, 8}, 3, 9, {.padding = 4}, Sizes{{2, 2, 2, 2}}});
  equals_one_rank<1>({{2, 2, 10}, 3, 11, {.padding = 5}, Sizes{{5, 2, 3}}});
  equals_one_rank<1>({{2, 2, 10}, 2, 9, {.padding = 4}, Sizes{{3, 1, 1, 3, 2}}});
  equals_one_rank<1>({{2, 2, 9}, 2, 5, {.padding = 6, .dilation = 3, .padding_after = 4}, Sizes{{2, 3, 4}}});
  equals_one_rank<1>({{2, 2, 13}, 2, 9, {.stride = 2, .padding = 4}, Sizes{{2, 4, 2, 5}}});
  equals_one_rank<1>({{2, 2, 13}, 3, 6, {}, Sizes{{2, 1, 3, 7}}});
  equals_one_rank<2>({{2, 2, 5, 6}, 3, {7, 9}, {.padding = {3, 4}}, Sizes{{2, 3}, {3, 3}}});
  equals_one_rank<2, ConvolutionKind::depthwise>(
      {{1, 2, 7, 5}, 2, {5, 3}, {.padding = 4, .dilation = {2, 4}}, Sizes{{2, 2, 3}, {2, 3}}});
  equals_one_rank<3>({{1, 1, 4, 5, 4}, 2, 7, {.padding = 3}, Sizes{{2, 2}, {2, 3}, {1, 3}}});
}
TEST_CASE("the same over a ring of ranks, and with paddings that copy the border") {
  constexpr auto ring = PaddingMode::periodic;
  equals_one_rank<1>({{2, 2, 8}, 3, 9, {.padding = 4, .mode = ring}, Sizes{{2, 2, 2, 2}}});
  equals_one_rank<1>({{2, 2, 10}, 3, 11, {.padding = 5, .mode = ring}, Sizes{{5, 2, 3}}});
  equals_one_rank<1>({{2, 2, 5}, 2, 3, {.padding = 4, .dilation = 4, .mode = ring}, Sizes{{2, 3}}});
  equals_one_rank<1>({{2, 2, 11}, 2, 9, {.stride = 2, .padding = 3, .mode = ring, .padding_after = 4}, Sizes{{2, 2, 4, 3}}});
  equals_one_rank<2>({{2, 2, 5, 6}, 3, {7, 9}, {.padding = {3, 4}, .mode = ring}, Sizes{{2, 3}, {3, 3}}});
  for (const PaddingMode mode : {PaddingMode::reflect, PaddingMode::replicate}) {
    equals_one_rank<1>({{2, 2, 13}, 3, 9, {.padding = 4, .mode = mode}, Sizes{{5, 2, 1, 5}}});
    equals_one_rank<2>({{2, 2, 13, 6}, 3, {9, 7}, {.padding = {4, 3}, .mode = mode}, Sizes{{5, 2, 1, 5}, {6}}});
  }
  const ConvolutionOptions replicate{.padding = 4, .mode = PaddingMode::replicate};
  equals_one_rank<1>({{2, 2, 7}, 3, 9, replicate, Sizes{{2, 2, 3}}, false});
  equals_one_rank<2>({{2, 2, 7, 5}, 3, 9, replicate, Sizes{{2, 2, 3}, {2, 3}}, false});
}
TEST_CASE("corners: two and three axes, and one sample") {
  equals_one_rank<2>({{2, 2, 9, 11}, 3, {3, 5}, {.padding = {1, 2}}, Sizes{{4, 5}, {6, 5}}});
  equals_one_rank<2>({{1, 2, 12, 9}, 3, {5, 3}, {.stride = {2, 1}, .padding = {2, 1}}, Sizes{{4, 8}, {2, 3, 4}}});
  equals_one_rank<2, ConvolutionKind::depthwise>({{3, 2, 9, 11}, 2, 3, {.padding = 2, .dilation = 2}, Sizes{{4, 5}, {6, 5}}});
  equals_one_rank<3>({{2, 1, 6, 7, 8}, 2, {3, 3, 5}, {.padding = {1, 1, 2}}, Sizes{{2, 4}, {3, 4}, {5, 3}}});
}
TEST_CASE("paddings that copy elements") {
  for (const PaddingMode mode : {PaddingMode::periodic, PaddingMode::reflect, PaddingMode::replicate}) {
    equals_one_rank<1>({{2, 2, 16}, 2, 5, {.padding = 2, .mode = mode}, Sizes{{5, 4, 7}}});
    equals_one_rank<2>({{2, 2, 9, 11}, 3, {3, 5}, {.padding = {1, 2}, .mode = mode}, Sizes{{4, 5}, {6, 5}}});
    equals_one_rank<2>(
        {{2, 2, 12, 5}, 3, {4, 3}, {.padding = {1, 1}, .mode = mode, .padding_after = {2, 1}}, Sizes{{4, 5, 3}, {5}}});
    equals_one_rank<3>({{2, 1, 6, 7, 4}, 2, 3, {.padding = 1, .mode = mode}, Sizes{{2, 4}, {3, 4}, {4}}});
  }
}
TEST_CASE("transposed convolutions: uneven pieces, rows that reach over their outputs on either side, corners") {
  constexpr auto up = ConvolutionKind::transposed;
  equals_one_rank<1, up>({{3, 2, 16}, 4, 4, {.stride = 2, .padding = 1}, Sizes{{5, 4, 7}}});
  equals_one_rank<1, up>({{2, 4, 11}, 6, 3, {.padding = 2, .dilation = 2, .groups = 2}, Sizes{{5, 3, 3}}});
  equals_one_rank<1, up>({{2, 2, 9}, 2, 5, {.stride = 3, .padding = 4, .output_padding = 2}, Sizes{{4, 2, 3}}});
  equals_one_rank<1, up>({{2, 2, 9}, 2, 5, {.stride = 2, .padding_after = 1}, Sizes{{2, 3, 4}}});
  equals_one_rank<1, up>({{2, 2, 8}, 3, 7, {.padding = 3}, Sizes{{3, 5}}});
  equals_one_rank<1, up>({{2, 2, 9}, 3, 7, {.padding = 3}, Sizes{{3, 3, 3}}});
  equals_one_rank<1, up>({{2, 2, 9}, 3, 2, {.stride = 5, .padding = 1, .output_padding = 4}, Sizes{{3, 2, 4}}});
  equals_one_rank<1, up>({{2, 2, 9}, 3, 2, {.stride = 2}, Sizes{{3, 2, 4}}});
  equals_one_rank<2, up>({{2, 2, 7, 5}, 3, {4, 3}, {.stride = {2, 1}, .padding = 1}, Sizes{{3, 4}, {2, 3}}});
  equals_one_rank<2, up>({{1, 2, 7, 9}, 3, {5, 4}, {.stride = {1, 2}, .padding = {2, 1}}, Sizes{{3, 4}, {2, 3, 4}}});
  equals_one_rank<3, up>({{2, 1, 5, 4, 6}, 2, {3, 4, 3}, {.stride = {1, 2, 1}, .padding = 1}, Sizes{{2, 3}, {2, 2}, {2, 4}}});
}
TEST_CASE("pooling: uneven pieces, equal elements on both sides of a cut, windows wider than a piece, corners") {
  pools_equal_one_rank<1>({{3, 2, 16}, 2, 3, {.padding = 1}, Sizes{{5, 4, 7}}});
  pools_equal_one_rank<1>({{2, 2, 17}, 2, 5, {.stride = 2, .padding = 2}, Sizes{{6, 4, 7}}});
  pools_equal_one_rank<1>({{2, 2, 16}, 2, 4, {.stride = 3, .padding = 1, .padding_after = 2}, Sizes{{6, 3, 7}}});
  pools_equal_one_rank<1>({{2, 2, 9}, 2, 7, {.padding = 3}, Sizes{{3, 3, 3}}});
  pools_equal_one_rank<1>({{2, 2, 13}, 2, 5, {}, Sizes{{4, 4, 5}}});
  pools_equal_one_rank<1>({{8, 4, 6}, 4, 5, {.padding = 2}, Sizes{{1, 2, 3}}, false});  // some windows have negative numbers only
  pools_equal_one_rank<2>({{2, 2, 9, 11}, 2, {3, 5}, {.padding = {1, 2}}, Sizes{{4, 5}, {6, 5}}});
  pools_equal_one_rank<2>({{1, 2, 12, 9}, 2, {5, 3}, {.stride = {2, 1}, .padding = {2, 1}}, Sizes{{4, 8}, {2, 3, 4}}});
  pools_equal_one_rank<3>({{2, 1, 6, 7, 8}, 1, {3, 3, 4}, {.padding = {1, 1, 2}}, Sizes{{2, 4}, {3, 4}, {5, 3}}});
}
TEST_CASE("linear enlargement: uneven pieces, pieces of one row, corners") {
  enlarged_equals_one_rank<1>({{3, 2, 9}, 2, 1, {.stride = 2}, Sizes{{4, 1, 4}}});
  enlarged_equals_one_rank<1>({{2, 2, 9}, 2, 1, {.stride = 5}, Sizes{{1, 6, 2}}});
  enlarged_equals_one_rank<2>({{2, 2, 7, 5}, 2, 1, {.stride = {2, 3}}, Sizes{{3, 4}, {2, 3}}});
  enlarged_equals_one_rank<2>({{1, 2, 7, 9}, 2, 1, {.stride = {1, 2}}, Sizes{{3, 4}, {2, 3, 4}}});
  enlarged_equals_one_rank<3>({{2, 1, 5, 4, 6}, 1, 1, {.stride = {2, 3, 4}}, Sizes{{2, 3}, {1, 3}, {2, 4}}});
}

namespace {

/// A clock that the FLOPs of a rank's products move, by a second each, and its waits for messages.
class FlopClock final : public testing::RankClock {
 public:
  explicit FlopClock(const Rehearsal& notes) : notes_(notes) {}
  double now() const override { return notes_.product_flops + waited_; }
  void wait_until(double end, const std::function<void()>&) override { waited_ += std::max(0.0, end - now()); }

 private:
  const Rehearsal& notes_;
  double waited_ = 0;
};

/// Seconds of a forward and a backward of one convolution, without delays and with delays, and the delays in one of them.
struct Seconds {
  double fast = 0, slow = 0, in_transit = 0;
  double hidden() const { return 1 - (slow - fast) / in_transit; }
};

/// A message takes `part` of a forward.
template <class L>
Seconds seconds_of(const Case& c, std::size_t x, std::size_t y, double part) {
  const auto network = std::make_shared<testing::SlowNetwork>();
  std::vector<Rehearsal> notes(x * y);
  Seconds seconds;
  const int code = run<comm::Threads>(RunOptions{.ranks = int(x * y), .threads_per_rank = 1}, [&](World& world) {
    world.device().count(notes[std::size_t(world.rank())]);
    const auto clock = std::make_shared<FlopClock>(notes[std::size_t(world.rank())]);
    World slow(testing::delay_messages(world.communicator(), network, clock), world.device());
    const Mesh mesh(slow, axes<dp, dx, dy, dz>, {.dx = x, .dy = y});
    Shape piece = c.images;
    piece[2] /= x, piece[3] /= y;
    Made made(world.device());
    const auto context = on<2>(mesh.comm(dx{}), mesh.comm(dy{}),
                               mesh.comm(dz{}))(Root(world.device(), testing::detail::environment({}, piece),
                                                     testing::detail::engine(made), testing::detail::construction(made)));
    L layer(context, c);
    const auto step = weft::detail::step_context(context);
    using Exec = testing::detail::Exec;
    const Tensor<double, Exec, Shard<dp, 0>, Shard<dx, 2>, Shard<dy, 3>> images(world.device(), piece);
    copy_from_host(images, std::span<const double>(numbers_of_piece(piece, {0, 0, 0, 0}, piece, 0.1)));
    double forward_s = 0, in_transit = 0;
    const auto once = [&](double delay_s) {
      world.communicator().barrier();
      network->set({});
      world.communicator().barrier();
      slow.communicator().barrier();  // the clocks of all ranks have one time
      network->set({.seconds = delay_s});
      world.communicator().barrier();
      const double before = testing::delayed(mesh.comm(dx{})).seconds, begin = clock->now();
      auto forward = weft::forward(layer, step, images);
      forward_s = clock->now() - begin;
      weft::backward(layer, step, std::move(forward.saved), forward.output);
      in_transit = testing::delayed(mesh.comm(dx{})).seconds - before;
      return clock->now() - begin;
    };
    const double fast = once(0), slowly = once(part * forward_s);
    if (world.rank() == 0) seconds = {fast, slowly, in_transit};
  });
  REQUIRE(code == 0);
  return seconds;
}

}  // namespace

namespace {

/// Kernels whose results are FLOPs on the clock, which has only those of products.
template <class Kernels>
struct Counted : Kernels {
  explicit Counted(const auto& s) : Kernels{s} {}
  void forward(auto& device, const double* x, auto*... y) const {
    work(device);
    Kernels::forward(device, x, y...);
  }
  void input_gradient(auto& device, double* dx, const auto*... g) const {
    work(device);
    Kernels::input_gradient(device, dx, g...);
  }
  void work(auto& device) const {
    device.notes()->product(double(this->s.out_pixels() * planes(this->s)), 1, 1, 0, DataType::float64);
  }
  static std::size_t planes(const kernels::ConvolutionShape& s) { return s.samples * s.in; }
  static std::size_t planes(const kernels::UpsampleShape& s) { return s.planes; }
};
struct CountedPool : Module<CountedPool> {
  const Case& of;
  CountedPool(const auto&, const Case& c) : of(c) {}
  auto forward(const auto& x) const {
    using X = typename std::remove_cvref_t<decltype(x)>::tensor_type;
    const PoolingOptions options{of.kernel, of.options.stride, of.options.padding, of.options.padding_after};
    const detail::CutPooling<2> cut("pool", x, options, 0);
    const Shape shape = detail::pooled(x.shape(), cut.s);
    auto& device = x.value().device();
    const Tensor<std::int32_t, testing::detail::Exec> places(device, shape);
    using Maximum = Counted<detail::MaxPooling<double>>;
    return detail::cut_outputs<detail::PlacedWindows>(Maximum(cut.s), cut.axes, x, X(device, shape), places);
  }
};
struct CountedEnlarge : Module<CountedEnlarge> {
  const Case& of;
  CountedEnlarge(const auto&, const Case& c) : of(c) {}
  auto forward(const auto& x) const {
    using X = typename std::remove_cvref_t<decltype(x)>::tensor_type;
    const detail::CutEnlargement cut({.factor = of.options.stride, .mode = UpsampleMode::linear}, x);
    const X y(x.value().device(), detail::enlarged(x.shape(), cut.s));
    return detail::cut_outputs<detail::EnlargedLines>(Counted<detail::Enlarging<double>>(cut.s), cut.axes, x, y);
  }
};

template <class L>
void hides_delays(const std::string& name, const Case& c) {
  for (const std::size_t y : {1, 2}) {
    const Seconds seconds = seconds_of<L>(c, 2, y, y == 1 ? 0.7 : 0.3);
    MESSAGE(name << ", 2 x " << y << " ranks: " << seconds.fast << " s, with " << seconds.in_transit << " s of messages "
                 << seconds.slow << " s: hidden " << seconds.hidden());
    CHECK(seconds.in_transit > 0.1 * seconds.fast);
    CHECK(seconds.hidden() >= 0.8);
  }
}
template <class L>
void waits(const Case& c) {
  const Seconds waiting = seconds_of<L>(c, 2, 1, 0.7);
  MESSAGE("waited for: hidden " << waiting.hidden());
  CHECK(waiting.hidden() <= 0.2);
}

}  // namespace

TEST_CASE("80 % of the delays of messages are hidden, and none are if each exchange is waited for") {
  constexpr auto plain = ConvolutionKind::plain, up = ConvolutionKind::transposed;
  const Case same{{2, 4, 32, 64}, 4, 3, {.padding = 1}, {}}, doubled{{2, 4, 32, 64}, 4, 4, {.stride = 2, .padding = 1}, {}};
  hides_delays<Layer<2, plain, true>>("convolution", same);
  hides_delays<Layer<2, up, true>>("transposed convolution", doubled);
  hides_delays<CountedPool>("pooling", same);
  hides_delays<CountedEnlarge>("linear enlargement", doubled);
  const Case ring{{2, 4, 32, 64}, 4, {7, 3}, {.padding = {3, 1}, .mode = PaddingMode::periodic}, {}};
  const Seconds seconds = seconds_of<Layer<2, plain, true>>(ring, 2, 1, 0.3);
  MESSAGE("a halo in two messages: " << seconds.fast << " s, with " << seconds.in_transit << " s of messages: hidden "
                                     << seconds.hidden());
  CHECK(seconds.in_transit > 0.1 * seconds.fast);
  CHECK(seconds.hidden() >= 0.8);
  waits<Layer<2, plain, false>>(same);
  waits<Layer<2, up, false>>(doubled);
}
TEST_CASE("windows side by side have no exchange") {
  const Case c{{2, 4, 32, 64}, 4, 2, {.stride = 2}, {}};
  CHECK(seconds_of<CountedPool>(c, 2, 2, 0.3).in_transit == 0);
  CHECK(seconds_of<Layer<2, ConvolutionKind::transposed, true>>(c, 2, 2, 0.3).in_transit == 0);
}
TEST_CASE("a transposed convolution with a padding as wide as its window is refused") {
  const Case c{{1, 1, 8}, 1, 2, {.stride = 3, .padding = 2}, Sizes{{4, 4}}};
  const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
    const Mesh mesh(world, axes<dp, dx, dy, dz>, {.dx = 2});
    std::string text;
    try {
      outcome_on<1, Layer<1, ConvolutionKind::transposed, true>>(world.device(), c, {1, 1, 4}, {0, 0, 0}, c.images,
                                                                 mesh.comm(dx{}), mesh.comm(dy{}), mesh.comm(dz{}));
    } catch (const ShapeError& error) {
      text = error.what();
    }
    CHECK_MESSAGE(text.find("conv over images that an axis cuts: a window of 2 elements with stride 3 and padding 2: the padding "
                            "has fewer elements than the window") != std::string::npos,
                  text);
  });
  CHECK(code == 0);
}
TEST_CASE("a piece with no more rows than its border reflects is refused") {
  const Case c{{1, 1, 4}, 1, 5, {.padding = 2, .mode = PaddingMode::reflect}, Sizes{{2, 2}}};
  const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
    const Mesh mesh(world, axes<dp, dx, dy, dz>, {.dx = 2});
    const std::string sides = world.rank() == 0 ? "2 and 0" : "0 and 2";
    std::string text;
    try {
      outcome_on<1, Layer<1, ConvolutionKind::plain, true>>(world.device(), c, {1, 1, 2}, {0, 0, 0}, c.images, mesh.comm(dx{}),
                                                            mesh.comm(dy{}), mesh.comm(dz{}));
    } catch (const ShapeError& error) {
      text = error.what();
    }
    CHECK_MESSAGE(text.find("conv([1, 1, 2]) over images that an axis cuts: a padding of " + sides +
                            " elements at the ends of dim 2, of which this rank has 2; PaddingMode::reflect takes less than "
                            "the extent") != std::string::npos,
                  text);
  });
  CHECK(code == 0);
}
