// SPDX-License-Identifier: Apache-2.0
// Trains models of physics, each on samples that it generates: a U-Net, a Fourier neural operator, message passing and more.
//
//   ./examples/run fields                                           two thread ranks of dp, a U-Net of two dims
//   ./examples/run fields --dims 3 --dp 1 --tp 2                    of three dims, its channels cut
//   ./examples/run fields --model pinn --dp 4 --zero 3              a physics-informed network
//   ./examples/run fields --dp 1 --dx 2 --dy 2                      four ranks cut each field
//   mpirun -np 4 ./examples/run fields --dp 2 --pp 2                the launcher's ranks
//
// A sample is a function of the seed and its index, so the losses depend on both and not on the layout. The folder of --output
// gets result.svg: predictions beside the truth. Each model is a header that reads like its formula (unet.hpp, pinn.hpp, ...).

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
#include <weft/comm/mpi.hpp>
#endif
#include <weft/plan/layouts.hpp>
#include <weft/weft.hpp>

#include "options.hpp"
#include "problem.hpp"

namespace {

using namespace fields;

struct Named {
  const char* name;
  int (*train)(weft::World& world, const Options& o);
  bool stack;  ///< a pipeline takes it
};
constexpr Named models[] = {
    {"unet", train_unet, true}, {"pinn", train_pinn, false},           {"mesh", train_mesh, false},
    {"fno", train_fno, true},   {"potential", train_potential, false}, {"diffusion", train_diffusion, true}};

std::vector<std::string> names(bool stacks_only) {
  std::vector<std::string> all;
  for (const Named& model : models)
    if (model.stack || !stacks_only) all.push_back(model.name);
  return all;
}

int rank_main(weft::World& world, const Options& o) {
  agree(world.communicator(), {{"--model", o.model},
                               {"--dims", o.dims},
                               {"--dp", o.dp},
                               {"--tp", o.tp},
                               {"--pp", o.pp},
                               {"--dx", o.dx},
                               {"--dy", o.dy},
                               {"--dz", o.dz},
                               {"--partition", o.partition},
                               {"--schedule", o.schedule},
                               {"--zero", o.zero},
                               {"--micro-batches", o.micro_batches},
                               {"--steps", o.steps},
                               {"--batch", o.batch},
                               {"--learning-rate", o.learning_rate},
                               {"--ema", o.ema},
                               {"--seed", o.seed}});
  return std::find_if(std::begin(models), std::end(models), [&](const Named& model) { return o.model == model.name; })
      ->train(world, o);
}

}  // namespace

int main(int argc, char** argv) {
  weft::RunOptions how = weft::take_run_options(argc, argv);
  std::optional<Options> o;
  try {
    o = parse(argc, argv, names(false), names(true));
    if (!o) return weft::runtime::written();
  } catch (...) {
    how.refused = std::current_exception();
    o.emplace();
  }
  const auto body = [&](weft::World& world) { return rank_main(world, *o); };
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
  using Ranks = weft::comm::Mpi;
#else
  using Ranks = weft::comm::Threads;
#endif
  if (o->dp || (!Ranks::detected() && !weft::runtime::detail::is_set("WEFT_RANKS")))
    how.ranks = int(std::min<std::size_t>(o->dp.value_or(2) * o->tp * o->pp * o->dx * o->dy * o->dz, 1 << 30));
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
  return weft::run<weft::comm::Threads, weft::comm::Mpi>(how, body);
#else
  return weft::run<weft::comm::Threads>(how, body);
#endif
}
