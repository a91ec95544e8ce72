// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/cut_convolution.hpp weft/operations/exchanged_window.hpp weft/tensor/halo.hpp
// Convolutions of pieces whose exchanges are hidden: equal to one rank, with the bits of an exchange that is waited for, and
// faster than it with a delay in every message. One FLOP takes one second there, and ranks have clocks of these seconds.
#include <weft/operations/cut_convolution.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/operations/exchanged_window.hpp>
#include <weft/tensor/halo.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/testing/delay_messages.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

using detail::ConvolutionKind;
using testing::detail::Made, testing::detail::Numbers, testing::detail::Root;

/// A convolution of images, and the rows that each rank has along each dim.
struct Case {
  Shape images;
  std::size_t out;
  PerDim kernel;
  ConvolutionOptions options;
  std::vector<std::vector<std::size_t>> pieces;
  bool waits = true;  ///< whether an exchange before the padding takes these pieces, too
  Shape weights(bool depthwise) const {
    Shape shape = Shape::of_rank(images.rank());
    shape[0] = depthwise ? images[1] : out;
    shape[1] = depthwise ? 1 : images[1] / options.groups;
    for (std::size_t dim = 2; dim < shape.rank(); ++dim) shape[dim] = kernel[dim - 2];
    return shape;
  }
};

template <int dims, ConvolutionKind kind, bool hidden>
struct Layer : Module<Layer<dims, kind, hidden>> {
  Parameter<> weight, bias;
  const Case& of;
  Layer(const auto& at, const Case& c)
      : weight(at, "weight", c.weights(kind == ConvolutionKind::depthwise), normal(0.4)),
        bias(at, "bias", {c.weights(kind == ConvolutionKind::depthwise)[0]}, normal(0.4)),
        of(c) {}
  auto forward(const auto& x) const {
    const auto convolve = [&](const auto& images, const ConvolutionOptions& options) {
      return detail::convolution_of<kind>("conv", dims, options, images, weight, bias);
    };
    if constexpr (!detail::cut_in_space<typename std::remove_cvref_t<decltype(x)>::tensor_type>) return convolve(x, of.options);
    else if constexpr (hidden) return detail::exchanged_convolution<dims, kind>("conv", of.kernel, of.options, x, weight, bias);
    else return detail::exchanged<dims>("conv", of.options, x, detail::plan_of(detail::cut_window, of.kernel), convolve);
  }
};

/// f(place in `shape`, place in the whole), slowest dim first.
template <class F>
void for_each_place(const Shape& shape, const std::vector<std::size_t>& first, const Shape& whole, F&& f) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::size_t rest = i, there = 0, stride = 1;
    for (std::size_t dim = shape.rank(); dim-- > 0;) {
      there += (rest % shape[dim] + first[dim]) * stride;
      rest /= shape[dim], stride *= whole[dim];
    }
    f(i, there);
  }
}
Numbers numbers(const Shape& shape, const std::vector<std::size_t>& first, const Shape& whole, double shift) {
  Numbers all(shape.size());
  for_each_place(shape, first, whole,
                 [&](std::size_t i, std::size_t there) { all[i] = std::sin(double(there) * double(there) * 0.37 + shift); });
  return all;
}
Numbers part(const Numbers& of, const Shape& shape, const std::vector<std::size_t>& first, const Shape& whole) {
  Numbers all(shape.size());
  for_each_place(shape, first, whole, [&](std::size_t i, std::size_t there) { all[i] = of[there]; });
  return all;
}
double apart(const Numbers& a, const Numbers& b) {
  REQUIRE(a.size() == b.size());
  double most = 0, off = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(b[i])), off = std::max(off, std::abs(a[i] - b[i]));
  return off / std::max(most, 1e-300);
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
  copy_from_host(x, std::span<const double>(numbers(piece, first, c.images, 0.1)));
  auto forward = weft::forward(layer, step, x);
  Outcome outcome{forward.output.shape(), copy_to_host(forward.output), {}, {}, {}};
  for (std::size_t dim = 2; dim < first.size(); ++dim) first[dim] /= c.options.stride[dim - 2];
  gradient_t<decltype(forward.output)> g(device, outcome.results);
  copy_from_host(g,
                 std::span<const double>(numbers(outcome.results, first, results == nullptr ? outcome.results : *results, 0.7)));
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

template <int dims, ConvolutionKind kind = ConvolutionKind::plain>
void equals_one_rank(const Case& c) {
  INFO("images ", c.images.text());
  Outcome whole;
  std::size_t ranks = 1;
  for (const auto& rows : c.pieces) ranks *= rows.size();
  std::mutex mutex;
  Numbers weight, bias;
  double bits = 0, off = 0;
  const int code = run<comm::Threads>(RunOptions{.ranks = int(ranks)}, [&](World& world) {
    if (world.rank() == 0)
      whole = outcome_of<Layer<dims, kind, true>>(world.device(), c, c.images, std::vector<std::size_t>(dims + 2, 0), nullptr,
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
    const auto outcome = [&]<bool hidden>(std::bool_constant<hidden>) {
      return outcome_on<dims, Layer<dims, kind, hidden>>(world.device(), c, piece, first, whole.results, mesh.comm(dx{}),
                                                         mesh.comm(dy{}), mesh.comm(dz{}));
    };
    const Outcome mine = outcome(std::true_type()), waiting = c.waits ? outcome(std::false_type()) : mine;
    const std::lock_guard lock(mutex);
    auto results_first = first;
    for (std::size_t dim = 0; dim < dims; ++dim) results_first[dim + 2] /= c.options.stride[dim];
    off = std::max(off, apart(mine.y, part(whole.y, mine.results, results_first, whole.results)));
    off = std::max(off, apart(mine.dx, part(whole.dx, piece, first, c.images)));
    CHECK(mine.results == waiting.results);
    bits = std::max({bits, apart(mine.y, waiting.y), apart(mine.dx, waiting.dx)});
    CHECK(apart(mine.weight, waiting.weight) < 1e-13);
    add(weight, mine.weight), add(bias, mine.bias);
  });
  REQUIRE(code == 0);
  CHECK(off < 1e-13);
  // At corners the gradients of both axes meet, and their sums have another order.
  const auto cut = [](const std::vector<std::size_t>& pieces) { return pieces.size() > 1; };
  if (c.options.mode == PaddingMode::zeros && std::count_if(c.pieces.begin(), c.pieces.end(), cut) <= 1) CHECK(bits == 0);
  CHECK(bits < 1e-13);
  CHECK(apart(weight, whole.weight) < 1e-13);
  CHECK(apart(bias, whole.bias) < 1e-13);
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
template <bool hidden>
Seconds seconds_of(std::size_t x, std::size_t y, double part, const Case& c = {{2, 4, 32, 64}, 4, 3, {.padding = 1}, {}}) {
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
    Layer<2, ConvolutionKind::plain, hidden> layer(context, c);
    const auto step = weft::detail::step_context(context);
    using Exec = testing::detail::Exec;
    const Tensor<double, Exec, Shard<dp, 0>, Shard<dx, 2>, Shard<dy, 3>> images(world.device(), piece);
    copy_from_host(images, std::span<const double>(numbers(piece, {0, 0, 0, 0}, piece, 0.1)));
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

TEST_CASE("80 % of the delays of messages are hidden, and none are if each exchange is waited for") {
  for (const std::size_t y : {1, 2}) {
    const Seconds seconds = seconds_of<true>(2, y, y == 1 ? 0.7 : 0.3);
    MESSAGE("2 x " << y << " ranks: " << seconds.fast << " s, with " << seconds.in_transit << " s of messages " << seconds.slow
                   << " s: hidden " << seconds.hidden());
    CHECK(seconds.in_transit > 0.1 * seconds.fast);
    CHECK(seconds.hidden() >= 0.8);
  }
  const Seconds ring =
      seconds_of<true>(2, 1, 0.3, {{2, 4, 32, 64}, 4, {7, 3}, {.padding = {3, 1}, .mode = PaddingMode::periodic}, {}});
  MESSAGE("a halo in two messages: " << ring.fast << " s, with " << ring.in_transit << " s of messages: hidden "
                                     << ring.hidden());
  CHECK(ring.in_transit > 0.1 * ring.fast);
  CHECK(ring.hidden() >= 0.8);
  const Seconds waiting = seconds_of<false>(2, 1, 0.7);
  MESSAGE("waited for: hidden " << waiting.hidden());
  CHECK(waiting.hidden() <= 0.2);
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
