// SPDX-License-Identifier: Apache-2.0
// The compiled program, by -DDEPTH: the training program of a GPT in 0, 1, 2 and 3 wrappers; -1: only the headers.
#include <weft/weft.hpp>

using namespace weft;

#if DEPTH >= 0
#if DEPTH == 0
using Model = SingleDevice<models::Gpt>;
#elif DEPTH == 1
using Model = DataParallel<models::Gpt>;
constexpr auto in_force = axes<dp>;
#elif DEPTH == 2
using Model = DataParallel<TensorParallel<models::Gpt>>;
constexpr auto in_force = axes<dp, tp>;
#else
using Model = DataParallel<TensorParallel<PipelineParallel<models::Gpt>>>;
constexpr auto in_force = axes<dp, tp, pp>;
#endif

int main(int argc, char** argv) {
  return run<comm::Threads>(argc, argv, [](World& world) {
    const models::GptConfig config;
#if DEPTH == 0
    Model model(world.device(), config);
#else
    Mesh mesh(world, in_force);
    Model model(mesh, config);
#endif
    optim::AdamW optimizer(model, {});
    const Batch batch;
    for (int step = 0; step < 10; ++step) {
      model.train_step(batch);
      optimizer.step();
    }
  });
}
#endif
