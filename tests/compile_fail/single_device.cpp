// SPDX-License-Identifier: Apache-2.0
// Wrappers of one device, pipelines and loops of users.
#include <string>
#include <weft/models/gpt.hpp>
#include <weft/models/mixtral.hpp>
#include <weft/parallel/cuda/graphed_step.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/weft.hpp>

using namespace weft;

// section: graphed_step_of_a_mixture
// expect: weft: GraphedStep: a mixture of experts cannot be recorded: how many rows each expert gets is known in the step only
void use(weft::DefaultDevice& device) {
#ifdef WEFT_FAIL
  weft::SingleDevice<weft::models::Mixtral> model(device, {});
#else
  weft::SingleDevice<weft::models::Gpt> model(device, {});
#endif
  weft::gpu::GraphedStep train_step(model);
}

// section: graphed_step_of_a_pipeline
// expect: weft: GraphedStep: only DataParallel and TensorParallel of a model, or SingleDevice, can be recorded
#ifdef WEFT_FAIL
using Model = weft::PipelineParallel<weft::models::Gpt>;
using Axis = weft::pp;
#else
using Model = weft::DataParallel<weft::models::Gpt>;
using Axis = weft::dp;
#endif

void use(weft::World& world) {
  const weft::Mesh<Axis> mesh(world);
  Model model(mesh, {});
  weft::gpu::GraphedStep train_step(model);
}

// section: own_loop_of_a_pipeline
// A user's own training loop over a pipeline.
// expect: a custom training loop calls the whole model, and a rank of a pipeline has only a part of it
void go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world, {.pp = 2});
  DataParallel<PipelineParallel<models::Gpt>> model(mesh, {});
#ifdef WEFT_FAIL
  model.loss(batch).backward();
#else
  model.train_step(batch);
#endif
}

// section: own_loop_tensors_for_a_stack
// Tensors passed to the forward of a model of several units.
// expect: is for a model that is one Module, whose forward takes them
void go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt> model(mesh, {});
#ifdef WEFT_FAIL
  auto call = model.forward(batch, model.forward(batch).output());
#else
  auto call = model.forward(batch);
#endif
  call.output();
}

// section: pipeline_of_a_module
// A pipeline of a Module, which has one unit.
// expect: PipelineParallel cuts a model between its units, and a Module is one unit
inline constexpr data::Field<"input", float> input;

struct Own : Module<Own> {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  Parameter<> weight;
  Own(const auto& context, const Config& config) : weight(context, "weight", {1, config.width}, ones) {}
  auto loss(const auto& batch) const { return sum_losses(matmul(batch[input], weight)); }
};

double go(World& world, const Own::Batch& batch) {
#ifdef WEFT_FAIL
  Mesh<dp, pp> mesh(world, {.pp = 2});
  DataParallel<PipelineParallel<Own>> model(mesh, {});
#else
  Mesh<dp> mesh(world);
  DataParallel<Own> model(mesh, {});
#endif
  return model.train_step(batch);
}

// section: run_of_a_wrong_argument
// A rank's function takes the world.
// expect: f takes a World&
int go(int argc, char** argv) {
#ifdef WEFT_FAIL
  return run<comm::Threads>(argc, argv, [](int rank) { return rank == 0 ? 0 : 1; });
#else
  return run<comm::Threads>(argc, argv, [](World& world) { return world.rank() == 0 ? 0 : 1; });
#endif
}

// section: run_returns_a_string
// A rank's function returns the exit code.
// expect: is the program's exit code
int go(int argc, char** argv) {
#ifdef WEFT_FAIL
  return run<comm::Threads>(argc, argv, [](World& world) { return std::string("rank ") + std::to_string(world.rank()); });
#else
  return run<comm::Threads>(argc, argv, [](World& world) { return world.rank() == 0 ? 0 : 1; });
#endif
}

// section: of_a_layer
// One rank has a model too, and not a layer.
// expect: a wrapper stands around another wrapper or a model
#ifdef WEFT_FAIL
using Model = Linear<>;
#else
using Model = models::Gpt;
#endif

double go(World& world, const Batch& batch) {
  SingleDevice<Model> model(world.device(), {8, 8});
  optim::AdamW optimizer(model);
  return model.train_step(batch);
}

// section: of_a_wrapper
// A model in a wrapper has its own mesh.
// expect: SingleDevice takes a model alone, and this is one in a wrapper
#ifdef WEFT_FAIL
using Model = DataParallel<models::Gpt>;
#else
using Model = models::Gpt;
#endif

double go(World& world, const Batch& batch) {
  SingleDevice<Model> model(world.device(), models::GptConfig{});
  optim::AdamW optimizer(model);
  return model.train_step(batch);
}
