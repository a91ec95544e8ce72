// SPDX-License-Identifier: Apache-2.0
// A World of a communicator that the program created: parts of MPI_COMM_WORLD train separately, concurrently with the program's
// messages, from Views that change between steps.
#include <weft/comm/mpi.hpp>

#include <doctest/doctest.h>

#include <weft/autograd/module.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/nn/linear.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/operations/variables.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/pipeline/field_inputs.hpp>

#include "support/message.hpp"

using namespace weft;

namespace {

inline constexpr data::Field<"x", double> field_x;
inline constexpr data::Field<"y", double> field_y;

struct Fit : Module<Fit> {
  using scalar = double;
  using Batch = FieldBatch<field_x, field_y>;
  struct Config {};
  Linear<> in, out;
  Fit(const auto& context, const Config&)
      : in(context / "in", 3, 8, {.standard_deviation = 0.5}), out(context / "out", 8, 5, {.standard_deviation = 0.5}) {}
  auto forward(const auto& x) const { return out(tanh(in(x))); }
  auto loss(const auto& batch) const { return mse(forward(batch[field_x]), batch[field_y]); }
};

using View = Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>;

/// The state of a simulation whose samples are `first` ... of 8: its next step overwrites it, in the memory that was looked at.
void advance(const View& x, const View& y, int step, std::size_t first) {
  for (std::size_t i = 0; i < x.extent(0); ++i) {
    for (std::size_t k = 0; k < x.extent(1); ++k) x(i, k) = std::sin(double(first + i) + double(step) * 0.3 + double(k));
    for (std::size_t k = 0; k < y.extent(1); ++k) y(i, k) = x(i, 0) * x(i, 1) + double(k) * x(i, 2);
  }
}

/// The losses of three steps.
template <class Model>
std::vector<double> losses_of(Model& model, std::size_t rank, std::size_t ranks, auto&& between) {
  const std::size_t mine = 8 / ranks;
  const View x("x", mine, 3), y("y", mine, 5);
  Fit::Batch batch{.samples = mine, .first_sample = rank * mine};
  batch[field_x].view(x);
  batch[field_y].view(y);
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  std::vector<double> losses;
  for (; batch.step < 3; ++batch.step) {
    advance(x, y, int(batch.step), batch.first_sample);
    losses.push_back(model.train_step(batch));
    optimizer.step();
    between();
  }
  return losses;
}

}  // namespace

TEST_CASE("two parts of a job train on their own, beside the job's own messages") {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int part = rank % 2;  // ranks 0, 2, ... and 1, 3, ...
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, part, rank, &own);
  {
    World world(comm::mpi::over(own, std::chrono::seconds(40)));
    MPI_Comm_free(&own);  // weft's is a duplicate
    CHECK(world.size() == (size + 1 - part) / 2);
    CHECK(world.rank() == rank / 2);
    CHECK_FALSE(world.interrupted());
    Mesh<dp> mesh(world);
    const ModelOptions seed{.seed = std::uint64_t(part + 1)};
    DataParallel<Fit> model(mesh, {}, seed);
    int told = 0, expected = 0;
    const auto losses = losses_of(model, std::size_t(world.rank()), std::size_t(world.size()), [&] {
      told += 1;  // of the whole job, while both parts train
      MPI_Allreduce(MPI_IN_PLACE, &told, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      expected = (expected + 1) * size;
    });
    CHECK(told == expected);
    SingleDevice<Fit> alone(world.device(), {}, seed);
    const auto expected_losses = losses_of(alone, 0, 1, [] {});
    for (std::size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == doctest::Approx(expected_losses[i]).epsilon(1e-12));
    CHECK(losses[2] != losses[0]);
  }
  {
    World again(comm::mpi::over(MPI_COMM_WORLD, std::chrono::seconds(40)));  // a second one, after the first
    std::vector<double> sum{1};
    again.communicator().all_reduce(sum);
    CHECK(sum[0] == size);
  }
}

TEST_CASE("a rank that is not in the communicator gets an error") {
  const auto found = weft_test::message<UsageError>([] { comm::mpi::over(MPI_COMM_NULL); });
  CHECK(found ==
        "weft: mpi::over: the communicator is MPI_COMM_NULL: this rank is not one of the group (a colour of MPI_UNDEFINED in "
        "MPI_Comm_split), and does not call it");
}
