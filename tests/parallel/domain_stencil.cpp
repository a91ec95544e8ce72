// SPDX-License-Identifier: Apache-2.0
// A stencil of the program's own, which states its window as a halo, over uneven pieces of a periodic domain: a model with it
// equals one rank in losses, gradients and steps. So does a model with a loss of its own, the cross-entropy of each point.
#include <weft/parallel/domain_parallel.hpp>

#include <cmath>
#include <cstddef>
#include <mutex>
#include <string>

#include <doctest/doctest.h>

#include <weft/nn/convolution.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/weft.hpp>

#include "support/domain_steps.hpp"

using namespace weft;
using weft_test::DomainSteps;
using weft_test::UnevenPiece;

namespace {

inline constexpr data::Field<"state", double, data::Cut<dx, 2>> state;
inline constexpr data::Field<"next", double, data::Cut<dx, 2>> next;
constexpr std::size_t channels = 2;

/// y[n, c, i, j] = x[n, c, i - 1, j] - 2 x[n, c, i, j] + x[n, c, i + 1, j] of a piece with a row of each neighbour.
struct SecondDifference : Primitive<SecondDifference> {
  using Reach = Halo<dx, 2, 1, 1, Border::periodic>;
  template <class T, class Exec>
  auto forward(const Tensor<T, Exec, Shard<dp, 0>, Reach>& x) const {
    const Shape& shape = x.shape();
    const std::size_t images = shape[0] * shape[1], rows = shape[2] - 2, width = shape[3];
    const Tensor<T, Exec, Shard<dp, 0>, Shard<dx, 2>> y(x.device(), {shape[0], shape[1], rows, width});
    const T* const from = x.data();
    T* const to = y.data();
    Kokkos::parallel_for(
        Kokkos::RangePolicy<Exec>(x.device().exec(), 0, images * rows), KOKKOS_LAMBDA(std::size_t row) {
          const T* const above = from + (row + row / rows * 2) * width;
          for (std::size_t j = 0; j < width; ++j) to[row * width + j] = above[j] - 2 * above[width + j] + above[2 * width + j];
        });
    return y;
  }
  template <class G, class X>
  auto gradient(const G& g, const X& x) const {
    using T = typename X::value_type;
    const gradient_t<X> d(g.device(), x.shape());
    const std::size_t images = x.shape()[0] * x.shape()[1], rows = x.shape()[2] - 2, width = x.shape()[3];
    const T* const from = g.data();
    T* const to = d.data();
    Kokkos::parallel_for(
        Kokkos::RangePolicy<typename X::execution_space>(g.device().exec(), 0, images * (rows + 2)),
        KOKKOS_LAMBDA(std::size_t row) {
          const std::size_t image = row / (rows + 2), i = row % (rows + 2);
          const auto of_row = [=](std::size_t k, std::size_t j) {  // of y; 0 beyond the piece
            return k < rows ? from[(image * rows + k) * width + j] : T(0);
          };
          for (std::size_t j = 0; j < width; ++j) to[row * width + j] = of_row(i, j) - 2 * of_row(i - 1, j) + of_row(i - 2, j);
        });
    return d;
  }
};

struct Model : Module<Model> {
  using scalar = double;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Conv2d<> lift, out;
  SecondDifference second_difference;
  Model(const auto& context, const Config&)
      : lift(context / "lift", channels, 2, 3, {.padding = 1, .mode = PaddingMode::periodic}),
        out(context / "out", 4, channels, 1) {}
  auto forward(const auto& x) const {
    const auto y = tanh(lift(x));
    return out(concat<1>(y, second_difference(to<SecondDifference::Reach>(y))));
  }
  auto loss(const auto& batch) const { return mse(forward(batch[state]), batch[next]); }
};

/// The class of each point; next has a target for each class.
struct Classes : Module<Classes> {
  using scalar = double;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Conv2d<> logits;
  Classes(const auto& context, const Config&) : logits(context / "logits", channels, channels, 3, {.padding = 1}) {}
  auto loss(const auto& batch) const {
    const auto of_points = -sum<1>(batch[next] * log_softmax<1>(logits(batch[state])));  // [samples, rows / dx, columns]
    return sum_losses(to<Invariant<dx>>(mean<1>(mean<2>(of_points))));
  }
};

template <class M>
DomainSteps steps_over(int ranks) {
  constexpr std::size_t samples = 2, rows = 11, columns = 4;
  DomainSteps all;
  std::mutex mutex;
  REQUIRE(run(RunOptions{.ranks = ranks}, [&](World& world) {
            const Mesh mesh(world, axes<dp, dx>, {.dx = std::size_t(ranks)});
            DataParallel<DomainParallel<M, dx>> model(mesh, {});
            const UnevenPiece piece(rows, std::size_t(ranks), std::size_t(world.rank()));
            typename M::Batch batch{.samples = samples};
            const auto fill = [&](auto field, double shift) {
              auto values = batch[field].resize(samples, {channels, piece.count, columns});
              for (std::size_t i = 0; i < values.size(); ++i) {
                const std::size_t image = i / (piece.count * columns), place = i % (piece.count * columns);
                const double at = double((image * rows + piece.first) * columns + place);
                values[i] = std::sin(at * at * 0.37 + shift);
              }
            };
            fill(state, 0), fill(next, 1);
            DomainSteps mine;
            optim::AdamW optimizer(model, {.learning_rate = 1e-2});
            for (int step = 0; step < 3; ++step) {
              mine.losses.push_back(model.train_step(batch));
              for (const std::string& name : model.parameter_names()) mine.gradients.push_back(model.gradient(name));
              optimizer.step();
            }
            const std::lock_guard lock(mutex);
            if (world.rank() == ranks - 1) all = mine;
          }) == 0);
  return all;
}

}  // namespace

TEST_CASE("a stencil of the program over uneven pieces equals one rank") {
  const DomainSteps reference = steps_over<Model>(1);
  for (const int ranks : {2, 3}) CHECK(weft_test::domain_difference(steps_over<Model>(ranks), reference) < 1e-13);
}
TEST_CASE("the cross-entropy of points over uneven pieces equals one rank") {
  const DomainSteps reference = steps_over<Classes>(1);
  for (const int ranks : {2, 3}) CHECK(weft_test::domain_difference(steps_over<Classes>(ranks), reference) < 1e-13);
}
