// SPDX-License-Identifier: Apache-2.0
// Random numbers of a forward: Philox at the global element, the same over dp, tp, cp and domain axes with rows, columns and
// space cut, other numbers for another path, seed or step, and mean and deviation. Also the masks of dropout over domain axes.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <weft/comm/self.hpp>
#include <weft/comm/threads.hpp>
#include <weft/core/philox.hpp>
#include <weft/nn/dropout.hpp>
#include <weft/nn/noise.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, double>>;
using X = Tensor<double, Exec>;

Root root(DefaultDevice& device, std::uint64_t seed = 3, std::uint64_t step = 0) {
  detail::Environment environment;
  environment.seed = seed;
  environment.step = step;
  environment.rows = environment.length = 8;
  return Root(device, environment);
}
std::vector<double> normal(const Root& context, const std::string& name, const Shape& shape = {8, 6}) {
  return copy_to_host(Noise(context / name).normal(context, X(context.device(), shape)));
}

/// Noise of rows and of columns that tp cuts.
struct Noisy : Module<Noisy> {
  Noise first, second;
  explicit Noisy(const auto& context) : first(context / "first"), second(context / "second") {}
  auto forward(const auto& x) const {
    const auto cut = to<Shard<tp, 1>>(x * first.normal(x) + first.uniform(x));
    return to<Invariant<tp>>(cut * second.normal(cut) + second.uniform(cut));
  }
};
/// The same without an axis that cuts columns.
struct NoisyRows : Module<NoisyRows> {
  Noise noise;
  explicit NoisyRows(const auto& context) : noise(context / "noise") {}
  auto forward(const auto& x) const { return exp(x * noise.normal(x)) + noise.uniform(x); }
};

}  // namespace

TEST_CASE("noise is Philox at the element, of seed, path and step") {
  DefaultDevice device;
  const auto numbers = normal(root(device), "noise");
  const std::uint64_t key = key_of(std::uint64_t(3), site_of("noise"), std::uint64_t(0));
  for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == Philox::normal(key, i));
  const auto uniform = copy_to_host(Noise(root(device) / "noise").uniform(root(device), X(device, {8, 6})));
  for (std::size_t i = 0; i < uniform.size(); ++i) CHECK(uniform[i] == double(Philox::uniform(key, i)));
  CHECK(normal(root(device), "noise", {8, 2, 3}) == numbers);
  CHECK(normal(root(device), "other") != numbers);
  CHECK(normal(root(device, 4), "noise") != numbers);
  CHECK(normal(root(device, 3, 1), "noise") != numbers);
}

TEST_CASE("mean and deviation") {
  DefaultDevice device;
  const auto numbers = normal(root(device), "noise", {8, 4000});
  double sum = 0, squares = 0;
  for (const double value : numbers) sum += value, squares += value * value;
  const double n = double(numbers.size());
  CHECK(std::abs(sum / n) < 4 / std::sqrt(n));
  CHECK(std::abs(squares / n - 1) < 4 * std::sqrt(2 / n));
}

TEST_CASE("noise of every layout is that of one rank") {
  const auto noisy = [](const auto& context) { return Noisy(context); };
  CHECK(testing::check_layer(noisy, {8, 6}).compared != 0);
  testing::check_layer_on<tp, Invariant<tp>>(2, noisy, {8, 6});
  const auto rows = [](const auto& context) { return NoisyRows(context); };
  testing::check_layer_on<dp>(2, rows, {8, 6});
  testing::check_layer_on<tp>(2, rows, {8, 6});
  testing::check_layer_on<cp>(2, rows, {8, 2, 3}, {.length = 4});
}

namespace {

/// A rank's part of a dim: pieces of these extents, one after the other.
struct Piece {
  std::size_t first = 0, extent = 0, whole = 0;
  Piece(const std::vector<std::size_t>& extents, int rank)
      : first(std::accumulate(extents.begin(), extents.begin() + rank, std::size_t(0))),
        extent(extents[std::size_t(rank)]),
        whole(std::accumulate(extents.begin(), extents.end(), std::size_t(0))) {}
};
/// Noise and the mask of dropout of [8, 4, 6, 5 or 6] pictures, whose samples dp, channels tp, and dims 2 and 3 dx and dy cut.
/// dp's ranks are at the micro-batch of samples 2 to 5 of 8, each with half of it.
template <class DX, class DY>
void check_cut_fields(const Degrees& degrees, int ranks, const std::vector<std::size_t>& along_x,
                      const std::vector<std::size_t>& along_y) {
  std::atomic<std::size_t> compared = 0, different = 0, dropped = 0;
  const int code = run(RunOptions{.ranks = ranks}, [&](World& world) {
    const Mesh mesh(world, axes<dp, tp, dx, dy>, degrees);
    DefaultDevice& device = world.device();
    detail::Environment environment;
    environment.seed = 3, environment.step = 5;
    const Piece samples(std::vector<std::size_t>(std::size_t(mesh.size(dp{})), 4 / std::size_t(mesh.size(dp{}))),
                        mesh.rank(dp{})),
        channels(std::vector<std::size_t>(std::size_t(mesh.size(tp{})), 4 / std::size_t(mesh.size(tp{}))), mesh.rank(tp{})),
        x(along_x, mesh.rank(dx{})), y(along_y, mesh.rank(dy{}));
    environment.rows = samples.extent, environment.length = 1, environment.first_row = 2 + samples.first;
    const auto context = Root(device, environment)
                             .with<Shard<dp, 0>>(dp{}, mesh.comm(dp{}))
                             .template with<Shard<tp, 1>>(tp{}, mesh.comm(tp{}))
                             .template with<DX>(dx{}, mesh.comm(dx{}))
                             .template with<DY>(dy{}, mesh.comm(dy{}));
    Tensor<double, Exec, Shard<dp, 0>, Shard<tp, 1>, DX, DY> piece(device, {samples.extent, channels.extent, x.extent, y.extent});
    const std::vector<double> ones(piece.size(), 1.0);
    copy_from_host(piece, std::span<const double>(ones));
    const auto normal = copy_to_host(Noise(context / "noise").normal(context, piece));
    const auto uniform = copy_to_host(Noise(context / "noise").uniform(context, piece));
    const auto kept = copy_to_host(Dropout(context / "noise", 0.25).forward(context, piece).output);
    const auto back = copy_to_host(Dropout(context / "noise", 0.25).backward(context, Nothing(), piece));
    const std::uint64_t key = key_of(std::uint64_t(3), site_of("noise"), std::uint64_t(5));
    std::size_t at = 0;
    for (std::size_t n = 0; n < samples.extent; ++n)
      for (std::size_t c = 0; c < channels.extent; ++c)
        for (std::size_t i = 0; i < x.extent; ++i)
          for (std::size_t j = 0; j < y.extent; ++j, ++at) {
            const std::size_t sample = 2 + samples.first + n;
            const std::uint64_t element = ((sample * 4 + channels.first + c) * x.whole + x.first + i) * y.whole + y.first + j;
            const double mask = Philox::uniform(key, element) >= 0.25f ? 1 / 0.75 : 0;
            different += normal[at] != Philox::normal(key, element) || uniform[at] != double(Philox::uniform(key, element)) ||
                         kept[at] != mask || back[at] != mask;
            dropped += mask == 0;
            ++compared;
          }
  });
  CHECK(code == 0);
  INFO("dp(", degrees.dp, "), tp(", degrees.tp, "), dx(", degrees.dx, "), dy(", degrees.dy, ")");
  CHECK(compared == 4 * 4 * std::accumulate(along_x.begin(), along_x.end(), std::size_t(0)) *
                        std::accumulate(along_y.begin(), along_y.end(), std::size_t(0)));
  CHECK(dropped > compared / 8);
  CHECK(different == 0);
}

}  // namespace

TEST_CASE("noise and dropout of fields that domain axes cut are those of one rank, in pieces of any extents") {
  using AlongX = Shard<dx, 2>;
  using AlongY = Shard<dy, 3>;
  check_cut_fields<AlongX, AlongY>({}, 1, {6}, {5});
  check_cut_fields<AlongX, Invariant<dy>>({.dx = 2}, 2, {3, 3}, {5});
  check_cut_fields<AlongX, AlongY>({.dx = 2}, 2, {4, 2}, {5});
  check_cut_fields<AlongX, AlongY>({.dy = 3}, 3, {6}, {1, 3, 2});
  check_cut_fields<Invariant<dx>, AlongY>({.dy = 2}, 2, {6}, {0, 5});
  check_cut_fields<AlongX, AlongY>({.dx = 2, .dy = 2}, 4, {3, 3}, {3, 3});
  check_cut_fields<AlongX, AlongY>({.tp = 2, .dx = 3}, 6, {1, 3, 2}, {5});
  check_cut_fields<AlongX, AlongY>({.tp = 2, .dp = 2, .dx = 2, .dy = 2}, 16, {2, 4}, {2, 3});
}

TEST_CASE("noise of the nodes of a graph, [samples, nodes, width], is that of one rank") {
  std::atomic<std::size_t> compared = 0, different = 0;
  const int code = run(RunOptions{.ranks = 3}, [&](World& world) {
    const Mesh mesh(world, axes<dx>, {.dx = 3});
    DefaultDevice& device = world.device();
    detail::Environment environment;
    environment.rows = 4, environment.length = 1, environment.first_row = 8;
    const auto context = Root(device, environment).with<Shard<dx, 1>>(dx{}, mesh.comm(dx{}));
    const Piece nodes({2, 4, 1}, mesh.rank(dx{}));
    const Tensor<double, Exec, Shard<dx, 1>> x(device, {4, nodes.extent, 3});
    const auto drawn = copy_to_host(Noise(context / "noise").normal(context, x));
    const std::uint64_t key = key_of(std::uint64_t(1), site_of("noise"), std::uint64_t(0));
    for (std::size_t i = 0; i < drawn.size(); ++i, ++compared) {
      const std::size_t here = 3 * nodes.extent, row = (8 + i / here) * nodes.whole + nodes.first + i / 3 % nodes.extent;
      different += drawn[i] != Philox::normal(key, row * 3 + i % 3);
    }
  });
  CHECK(code == 0);
  CHECK(compared == 4 * 7 * 3);
  CHECK(different == 0);
}

TEST_CASE("an axis that cuts a dim which a tensor lacks") {
  DefaultDevice device;
  const auto context = root(device).with<Shard<dx, 2>>(dx{}, Communicator(std::make_shared<comm::SelfGroup>("dx", "threads")));
  const Tensor<double, Exec, Shard<dx, 2>> rows(device, {8, 6});
  CHECK_THROWS_WITH_AS(Noise(context / "noise").normal(context, rows),
                       doctest::Contains("a mask of [8, 6]: dx cuts dim 2, which it lacks"), ShapeError);
}

TEST_CASE("two sources under one path") {
  const auto twice = [](const auto& context) { return Sequential(NoisyRows(context), NoisyRows(context)); };
  CHECK_THROWS_WITH_AS(testing::check_layer(twice, {8, 6}),
                       doctest::Contains("two Noises under one path, noise (the layer, twice)"), Error);
}
