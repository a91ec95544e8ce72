// SPDX-License-Identifier: Apache-2.0
// expect: weft: GraphedStep: only DataParallel and TensorParallel of a model, or SingleDevice, can be recorded
#include <weft/models/gpt.hpp>
#include <weft/parallel/cuda/graphed_step.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>

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
