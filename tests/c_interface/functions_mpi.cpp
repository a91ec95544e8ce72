// SPDX-License-Identifier: Apache-2.0
// The C interface over a communicator of MPI: the ranks train one model, with the losses of one rank.
// covers: weft/c_interface/mpi.hpp

#include <weft/c_interface/mpi.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <weft/c_interface/mlp.hpp>

namespace {

constexpr std::size_t samples = 8;

std::vector<double> losses_of(weft_world* world, const char* options) {
  weft_model* model = nullptr;
  REQUIRE_MESSAGE(weft_model_new(world, "mlp", options, &model) == 0, weft_error());
  REQUIRE(weft_optimizer(model, "adamw", "learning_rate=0.01") == 0);
  const std::size_t mine = samples / std::size_t(weft_world_size(world)), first = mine * std::size_t(weft_world_rank(world));
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    std::vector<float> x(mine * 2), y(mine);
    for (std::size_t i = 0; i < mine; ++i) {
      x[2 * i] = float(std::sin(double(first + i) + step));
      x[2 * i + 1] = float(std::cos(double(first + i) - step));
      y[i] = x[2 * i] * x[2 * i + 1];
    }
    const std::size_t two[] = {2}, one[] = {1};
    REQUIRE(weft_field(model, "input", x.data(), WEFT_FLOAT32, mine, 1, two) == 0);
    REQUIRE(weft_field(model, "target", y.data(), WEFT_FLOAT32, mine, 1, one) == 0);
    double loss = 0;
    REQUIRE_MESSAGE(weft_train(model, &loss) == 0, weft_error());
    losses.push_back(loss);
  }
  CHECK(weft_model_free(model) == 0);
  return losses;
}

}  // namespace

TEST_CASE("ranks of MPI train the model of one rank, in stages of ZeRO") {
  weft_world *all = nullptr, *alone = nullptr;
  REQUIRE_MESSAGE(weft_world_mpi(MPI_Comm_c2f(MPI_COMM_WORLD), &all) == 0, weft_error());
  REQUIRE(weft_world_single(&alone) == 0);
  const std::vector<double> expected = losses_of(alone, "inputs=2 hidden=16 outputs=1");
  for (const char* options : {"inputs=2 hidden=16 outputs=1", "inputs=2 hidden=16 outputs=1 zero=3"}) {
    const std::vector<double> losses = losses_of(all, options);
    for (std::size_t step = 0; step < losses.size(); ++step)
      CHECK(std::abs(losses[step] - expected[step]) < 1e-5 * expected[step]);
  }
  CHECK(weft_world_free(alone) == 0);
  CHECK(weft_world_free(all) == 0);
}
