// SPDX-License-Identifier: Apache-2.0
// Convolutions over cut images in float and bfloat16, which oneDNN computes on hosts, with pooling and enlargement: losses and
// gradients of two steps are those of one rank up to rounding, also in memory that held NaN.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include <weft/nn/convolution.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"state", float, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"next", float, data::Cut<dx, 2>, data::Cut<dy, 3>> next;

template <class S>
struct Model : Module<Model<S>> {
  using scalar = S;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Conv2d<> first, halved, wide, last;
  ConvTranspose2d<> up;
  Model(const auto& at, const Config&)
      : first(at / "first", 3, 16, 3, {.padding = 1}),
        halved(at / "halved", 16, 16, 5, {.stride = 2, .padding = 2}),
        wide(at / "wide", 16, 16, 3, {.padding = 2, .dilation = 2, .groups = 4, .mode = PaddingMode::periodic}),
        last(at / "last", 16, 2, 3, {.padding = 1, .mode = PaddingMode::reflect}),
        up(at / "up", 16, 16, 4, {.stride = 2, .padding = 1}) {}
  auto loss(const auto& x) const {
    const auto small = tanh(wide(tanh(halved(tanh(first(x[state]))))));
    const auto large = up(small) + upsample(small, {.mode = UpsampleMode::linear});
    return mse(last(avg_pool2d(tanh(large), {.kernel = 3, .stride = 2, .padding = 1})), x[next]);
  }
};

constexpr std::size_t rows = 20, columns = 24;

/// The loss and all gradients of each of two steps.
template <class S>
std::vector<std::vector<double>> steps(World& world, const Degrees& degrees, std::size_t samples) {
  {
    const Tensor<float, DefaultDevice::execution_space> dirty(world.device(), {1 << 22});
    kernels::fill(world.device(), dirty.size(), dirty.data(), std::numeric_limits<float>::quiet_NaN());
  }
  const Mesh<dp, dx, dy> mesh(world, degrees);
  DataParallel<DomainParallel<Model<S>, dx, dy>> model(mesh, {});
  FieldBatch<state, next> batch{.samples = samples};
  const auto fill = [&](auto field, std::size_t channels, std::size_t part, double shift) {
    const std::size_t x = rows / part / mesh.size(dx{}), y = columns / part / mesh.size(dy{});
    const auto values = batch[field].resize(samples, {channels, x, y});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t image = i / y / x, row = mesh.rank(dx{}) * x + i / y % x, column = mesh.rank(dy{}) * y + i % y;
      values[i] = float(std::sin(1.7 * double((image * rows / part + row) * columns / part + column) + shift));
    }
  };
  fill(state, 3, 1, 0), fill(next, 2, 2, 1);
  optim::AdamW optimizer(model, {});
  std::vector<std::vector<double>> all;
  for (int step = 0; step < 2; ++step) {
    all.push_back({model.train_step(batch)});
    for (const std::string& name : model.parameter_names()) all.push_back(model.gradient(name));
    optimizer.step();
  }
  return all;
}

/// The largest difference of a rank's numbers from one rank's, as a part of the largest of their tensor.
template <class S>
double largest_difference(std::size_t samples, const Degrees& degrees) {
  std::vector<std::vector<double>> one;
  CHECK(run(RunOptions{.ranks = 1}, [&](World& world) { one = steps<S>(world, {}, samples); }) == 0);
  std::mutex mutex;
  double largest = 0;
  CHECK(run(RunOptions{.ranks = int(degrees.dx * degrees.dy)}, [&](World& world) {
          const auto found = steps<S>(world, degrees, samples);
          const std::lock_guard lock(mutex);
          for (std::size_t i = 0; i < found.size(); ++i) {
            double size = 0, apart = 0;
            for (std::size_t k = 0; k < found[i].size(); ++k) {
              const double difference = std::abs(one[i][k] - found[i][k]);
              size = std::max(size, std::abs(one[i][k])), apart = std::max(apart, std::isfinite(difference) ? difference : 1e300);
            }
            largest = std::max(largest, apart / size);
          }
        }) == 0);
  return largest;
}

template <class S>
void check(double bound) {
  for (const std::size_t samples : {1, 3})
    for (const Degrees& degrees : {Degrees{.dx = 2, .dy = 1}, Degrees{.dx = 1, .dy = 2}, Degrees{.dx = 2, .dy = 2}}) {
      const double apart = largest_difference<S>(samples, degrees);
      INFO(samples, " samples, dx ", degrees.dx, ", dy ", degrees.dy, ": ", apart);
      CHECK(apart < bound);
    }
}

}  // namespace

TEST_CASE("in float") { check<float>(3e-5); }
TEST_CASE("in bfloat16") { check<bfloat16>(0.1); }
