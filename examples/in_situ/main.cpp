// SPDX-License-Identifier: Apache-2.0
// Trains a surrogate of a heat solver while the solver runs, from the solver's Views: no files, no copy of the field.
//
//   ./examples/run in_situ
//   mpirun -np 2 ./examples/run in_situ --steps 3000
//   WEFT_REHEARSE=1024 ./examples/run in_situ --steps 3   # the needs of each of 1024 ranks
//
// The solver computes an ensemble of plates with random temperatures inside and at the four walls. A network learns to predict
// the temperatures of a plate at any time. Each state is used for training once, before the solver continues, so the printed
// error is that on new data. Melissa does this with many programs (arXiv:2306.16133); this is one program, which initialises MPI
// and Kokkos itself.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include <Kokkos_Core.hpp>

#include <weft/comm/mpi.hpp>
#include <weft/trace/progress.hpp>
#include <weft/weft.hpp>

using HostSpace = Kokkos::DefaultHostExecutionSpace;
using HostView = Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace>;

/// This rank's plates: du/dt = laplacian(u) on side x side cells between four walls, by explicit steps.
struct HeatSolver {
  static constexpr int side = 16, length = 100;  // cells; steps of a solution, after which a plate starts again
  HostView u, next;                              // [plates, side * side]
  HostView scenario;                             // [plates, 6]: temperature inside, of four walls, time

  HeatSolver(int plates, int first_plate, int all_plates)
      : u("u", plates, side * side),
        next("next", plates, side * side),
        scenario("scenario", plates, 6),
        first(first_plate),
        all(all_plates) {
    for (int plate = 0; plate < plates; ++plate) begin(plate, 0);
    for (int i = 0; i < length; ++i) step();  // afterwards plates have all ages, so each batch has all times
  }

  void step() {
    Kokkos::parallel_for("heat", Kokkos::MDRangePolicy<HostSpace, Kokkos::Rank<2>>({0, 0}, {int(u.extent(0)), side * side}),
                         [u = u, next = next, scenario = scenario](int plate, int cell) {
                           const int i = cell / side, j = cell % side;
                           const float here = u(plate, cell);
                           const float north = i > 0 ? u(plate, cell - side) : scenario(plate, 1);
                           const float south = i < side - 1 ? u(plate, cell + side) : scenario(plate, 2);
                           const float west = j > 0 ? u(plate, cell - 1) : scenario(plate, 3);
                           const float east = j < side - 1 ? u(plate, cell + 1) : scenario(plate, 4);
                           next(plate, cell) = here + 0.2f * (north + south + west + east - 4 * here);
                         });
    Kokkos::fence();
    std::swap(u, next);
    ++steps;
    for (int plate = 0; plate < int(u.extent(0)); ++plate) {
      const int age = (first + plate) * length / all + steps;
      if (age % length == 0) begin(plate, age / length);
      else scenario(plate, 5) = float(age % length) / length;
    }
  }

 private:
  int first, all, steps = 0;

  /// Random temperatures are a function of the plate's number, counted over all ranks, and of the solution's number: the same on
  /// any number of ranks.
  void begin(int plate, int solution) {
    const std::uint64_t key = weft::key_of(std::uint64_t(first + plate), std::uint64_t(solution));
    for (int k = 0; k < 5; ++k) scenario(plate, k) = 2 * weft::Philox::uniform(key, std::uint64_t(k)) - 1;
    scenario(plate, 5) = 0;
    for (int cell = 0; cell < side * side; ++cell) u(plate, cell) = scenario(plate, 0);
  }
};

inline constexpr weft::data::Field<"scenario", float> scenario;        // [6]
inline constexpr weft::data::Field<"temperature", float> temperature;  // [side * side]

struct Surrogate : weft::Module<Surrogate> {
  using scalar = float;
  using Batch = weft::FieldBatch<scenario, temperature>;
  struct Config {
    std::size_t width = 64, cells = HeatSolver::side * HeatSolver::side;
  };
  weft::Linear<> in, hidden, out;
  Surrogate(const auto& context, const Config& c)
      : in(context / "in", 6, c.width, {.standard_deviation = 0.6}),
        hidden(context / "hidden", c.width, c.width, {.standard_deviation = 0.2}),
        out(context / "out", c.width, c.cells, {.standard_deviation = 0.1}) {}
  auto forward(const auto& x) const { return out(silu(hidden(silu(in(x))))); }
  auto loss(const auto& batch) const { return mse(forward(batch[scenario]), batch[temperature]); }
};

void simulate(weft::World& world, MPI_Comm simulation, int steps) {
  const int rank = world.rank(), ranks = world.size();
  const int plates = std::max(64, ranks);  // on all ranks
  const int first = plates * rank / ranks, mine = plates * (rank + 1) / ranks - first;
  HeatSolver heat(mine, first, plates);

  weft::Mesh<weft::dp> mesh(world);
  weft::DataParallel<Surrogate> model(mesh, {});
  weft::optim::AdamW optimizer(model, {.clip = 1.0});
  const weft::optim::WarmupCosine rate{.peak = 3e-3, .warmup = 50, .steps = std::uint64_t(steps)};

  weft::trace::Progress progress(weft::trace::for_terminal(world.communicator(), {.steps = rate.steps, .unit = "plates"}));
  Surrogate::Batch batch{.samples = std::size_t(mine), .first_sample = std::size_t(first)};
  for (; batch.step < rate.steps; ++batch.step) {
    heat.step();
    batch[scenario].view(heat.scenario);  // no copies: the model reads the solver's memory
    batch[temperature].view(heat.u);
    const double loss = model.train_step(batch);
    optimizer.step(rate.at(batch.step));
    progress.step(batch.step, loss, plates);

    if (batch.step % 100 != 0 && batch.step + 1 != rate.steps) continue;
    float hottest = 0;  // the program's own MPI calls run concurrently with weft's
    for (int plate = 0; plate < mine; ++plate)
      for (int cell = 0; cell < heat.side * heat.side; ++cell) hottest = std::max(hottest, heat.u(plate, cell));
    MPI_Allreduce(MPI_IN_PLACE, &hottest, 1, MPI_FLOAT, MPI_MAX, simulation);
    progress.print("step %4d: hottest cell %.3f, error of the surrogate %.4f", int(batch.step), hottest, std::sqrt(loss));
  }
}

int main(int argc, char** argv) {
  weft::runtime::open_standard_streams();
  const weft::RunOptions how = weft::take_run_options(argc, argv);
  int code = 0, steps = 1500;
  if (argc == 2 && argv[1] == std::string_view("--help"))
    return weft::runtime::run_alone([] { std::printf("in_situ [--steps N] [--rehearse N[:rank]]\n"); });
  if (argc == 2 && argv[1] == std::string_view("--version"))
    return weft::runtime::print_versions("in_situ", ", " + weft::comm::mpi::library_version());
  try {
    for (int i = 1; i < argc; i += 2)
      if (argv[i] != std::string_view("--steps") || i > 1)
        throw weft::UsageError("in_situ: unknown argument '" + std::string(argv[i]).substr(0, 80) + "': it takes --steps N");
    if (argc == 2) throw weft::UsageError("in_situ: --steps needs a number");
    if (argc > 1) steps = weft::runtime::whole_number_of("in_situ: --steps", argv[2], 1, 1 << 30);
  } catch (...) {
    return weft::runtime::report(std::current_exception());
  }
  MPI_Init(&argc, &argv);
  try {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm simulation = MPI_COMM_NULL;  // in a coupled job the other programs' ranks have other colours
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &simulation);
    if (how.rehearse != nullptr || std::getenv("WEFT_REHEARSE") != nullptr) {  // `run` rehearses, as any rank of any number
      code = weft::run(how, [&](weft::World& world) { simulate(world, simulation, steps); });
    } else {
      weft::World world(weft::comm::mpi::over(simulation));  // the same ranks, on a separate communicator
      simulate(world, simulation, steps);
    }
    MPI_Comm_free(&simulation);
    code = weft::runtime::written(code);
  } catch (...) {
    MPI_Abort(MPI_COMM_WORLD, weft::runtime::report(std::current_exception()));  // the other ranks wait for this one
  }
  MPI_Finalize();
  return code;
}
