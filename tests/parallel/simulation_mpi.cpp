// SPDX-License-Identifier: Apache-2.0
// A surrogate trained on a simulation's own Cartesian communicator and inside of its arrays: losses and gradients are those of
// one rank. The grid numbers the processes in another order than MPI_COMM_WORLD. The arrays have ghost cells, and are
// column-major or have the channels of a cell next to each other.

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <doctest/doctest.h>

#include <weft/comm/mpi.hpp>
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/weft.hpp>

#include "support/domain_steps.hpp"

using namespace weft;

namespace {

inline constexpr data::Field<"state", double, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"later", double, data::Cut<dx, 2>, data::Cut<dy, 3>> later;
constexpr std::size_t samples = 4, channels = 2, rows = 9, columns = 11, ghosts = 2;

struct Surrogate : Module<Surrogate> {
  using scalar = double;
  using Batch = FieldBatch<state, later>;
  struct Config {};
  Conv2d<> in, out;
  GroupNorm<> norm;
  Surrogate(const auto& at, const Config&)
      : in(at / "in", channels, 4, 3, {.padding = 1}),
        out(at / "out", 4, channels, 5, {.padding = 2, .mode = PaddingMode::periodic}),
        norm(at / "norm", 2, 4) {}
  auto loss(const auto& batch) const { return mse(out(tanh(norm(in(batch[state])))), batch[later]); }
};

/// The piece of a process.
struct Piece {
  std::size_t first_sample, samples;
  weft_test::UnevenPiece x, y;
};

/// A process of the simulation. Nobody may read its ghost cells: they are NaN.
class Simulation {
  using Columns = Kokkos::View<double****, Kokkos::LayoutLeft, Kokkos::HostSpace>;
  using Strided = Kokkos::View<double****, Kokkos::LayoutStride, Kokkos::HostSpace>;

 public:
  explicit Simulation(const Piece& piece)
      : piece_(piece),
        now_(inside(Columns("now", piece.samples, channels, wide(piece.x), wide(piece.y)))),
        next_(inside(Strided("next", cells()))) {}
  /// Overwrites the memory that a batch views.
  void advance(std::size_t step) const {
    for (std::size_t sample = 0; sample < piece_.samples; ++sample)
      for (std::size_t channel = 0; channel < channels; ++channel)
        for (std::size_t i = 0; i < piece_.x.count; ++i)
          for (std::size_t j = 0; j < piece_.y.count; ++j) {
            const double place = double(((piece_.first_sample + sample) * channels + channel) * 100 + step) * 1.3 +
                                 double(piece_.x.first + i) * 0.7 + double(piece_.y.first + j) * 2.9;
            now_(sample, channel, i, j) = std::sin(place), next_(sample, channel, i, j) = std::cos(place * 1.1);
          }
  }
  void give(Surrogate::Batch& batch) const {
    batch.samples = piece_.samples, batch.first_sample = piece_.first_sample;
    batch[state].view(now_), batch[later].view(next_);
  }

 private:
  static std::size_t wide(const weft_test::UnevenPiece& piece) { return piece.count + 2 * ghosts; }
  /// The layout of an array of cells, each with its channels.
  Kokkos::LayoutStride cells() const {
    const int fastest_first[] = {1, 3, 2, 0};
    const std::size_t extents[] = {piece_.samples, channels, wide(piece_.x), wide(piece_.y)};
    return Kokkos::LayoutStride::order_dimensions(4, fastest_first, extents);
  }
  Strided inside(const auto& array) const {
    Kokkos::deep_copy(array, std::numeric_limits<double>::quiet_NaN());
    return Kokkos::subview(array, Kokkos::ALL, Kokkos::ALL, std::pair(ghosts, ghosts + piece_.x.count),
                           std::pair(ghosts, ghosts + piece_.y.count));
  }
  Piece piece_;
  Strided now_, next_;
};

weft_test::DomainSteps steps_of(auto& model, const Piece& piece) {
  weft_test::DomainSteps all;
  all.names = model.parameter_names();
  optim::Sgd optimizer(model, {.learning_rate = 0.02, .momentum = 0.9});
  const Simulation simulation(piece);
  Surrogate::Batch batch;
  for (; batch.step < 3; ++batch.step) {
    simulation.advance(batch.step);
    simulation.give(batch);
    all.losses.push_back(model.train_step(batch));
    for (const std::string& name : all.names) all.gradients.push_back(model.gradient(name));
    optimizer.step();
  }
  REQUIRE(all.losses.back() != all.losses.front());
  return all;
}

/// Trains over a grid of these extents, whose dims are cut by dp, First and Second.
template <class First, class Second>
void check_grid(const std::array<int, 3>& extents) {
  MPI_Comm reversed = MPI_COMM_NULL, grid = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  const int borders[] = {0, 0, 1};
  MPI_Cart_create(reversed, 3, extents.data(), borders, 1, &grid);
  MPI_Comm_free(&reversed);
  {
    World world(comm::mpi::over(grid, std::chrono::seconds(40)));
    Degrees degrees;
    (std::is_same_v<First, dx> ? degrees.dx : degrees.dy) = std::size_t(extents[1]);
    (std::is_same_v<Second, dx> ? degrees.dx : degrees.dy) = std::size_t(extents[2]);
    const Mesh<dp, First, Second> mesh(world, degrees);
    int place[3] = {};
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 3, place);
    CHECK(mesh.rank(dp{}) == place[0]);
    CHECK(mesh.rank(First{}) == place[1]);
    CHECK(mesh.rank(Second{}) == place[2]);

    const std::size_t here = samples / std::size_t(mesh.size(dp{}));
    const auto piece = [&](auto axis, std::size_t whole) {
      return weft_test::UnevenPiece(whole, std::size_t(mesh.size(axis)), std::size_t(mesh.rank(axis)));
    };
    DataParallel<DomainParallel<Surrogate, dx, dy>> model(mesh, {});
    const auto found = steps_of(model, {here * std::size_t(place[0]), here, piece(dx{}, rows), piece(dy{}, columns)});
    SingleDevice<Surrogate> one(world.device(), {});
    const double worst = weft_test::domain_difference(found, steps_of(one, {0, samples, {rows, 1, 0}, {columns, 1, 0}}));
    INFO(mesh.text(), ": ", worst);
    CHECK(worst < 1e-13);
  }
  MPI_Comm_free(&grid);
}

}  // namespace

TEST_CASE("a surrogate trains on a simulation's Cartesian grid, inside of its arrays") {
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  check_grid<dx, dy>({1, processes, 1});
  check_grid<dx, dy>({1, 1, processes});
  if (processes != 4) return;
  check_grid<dx, dy>({1, 2, 2});
  check_grid<dx, dy>({2, 2, 1});
  check_grid<dy, dx>({1, 2, 2});  // y is the outer dim of this grid
  check_grid<dy, dx>({2, 1, 2});
}
