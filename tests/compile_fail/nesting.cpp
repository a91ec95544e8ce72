// SPDX-License-Identifier: Apache-2.0
// Wrappers nested in an order that does not work.
#include <weft/weft.hpp>

using namespace weft;

// section: context_of_data
// Gradients are summed over cp before they are reduced over dp, so DataParallel must be outside.
// expect: the wrapper inside ContextParallel belongs outside it
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, cp> mesh(world);
  ContextParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, cp> mesh(world);
  DataParallel<ContextParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: data_of_data
// One wrapper for one axis.
// expect: outermost and once
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: data_of_sharded_data
// Both distribute the same batches over dp; only one is allowed.
// expect: outermost and once
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<FullyShardedDataParallel<Model, zero::Stage2>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<Model, zero::Stage2> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: deep_inside
// The mistake is inside other wrappers, and the model is used normally: there is one error, at the wrong wrapper.
// expect: the wrapper inside TensorParallel belongs outside it
#ifdef WEFT_FAIL
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<DataParallel<models::Gpt>>>, zero::Stage2>;
#else
using Parallel = FullyShardedDataParallel<ContextParallel<TensorParallel<models::Gpt>>, zero::Stage2>;
#endif

double go(World& world, const Batch& batch) {
  Mesh<dp, cp, tp> mesh(world, {.tp = 2, .cp = 2});
  Parallel model(mesh, {.layers = 2, .width = 32, .heads = 2});
  optim::AdamW optimizer(model, {.learning_rate = 3e-4, .clip = 1.0});
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss + model.evaluate(batch) + model.next_logits(batch.tokens)[0];
}

// section: expert_of_data
// The data wrapper must be outermost.
// expect: belongs outside it
using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  ExpertParallel<DataParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif

// section: expert_of_tensor
// ExpertParallel must be inside TensorParallel, which binds the axes that it folds.
// expect: belongs outside it
using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<tp, ep, edp> mesh(world);
  ExpertParallel<TensorParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<tp, ep, edp> mesh(world);
  TensorParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif

// section: of_a_layer
// A layer is no model: wrappers cut and spread a stack of blocks.
// expect: a wrapper stands around another wrapper or a model
#ifdef WEFT_FAIL
using Model = Linear<>;
#else
using Model = models::Gpt;
#endif

double go(World& world, const Batch& batch) {
  Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});
  DataParallel<TensorParallel<PipelineParallel<Model>>> model(mesh, {8, 8});
  optim::AdamW optimizer(model);
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
}

// section: pipeline_of_data
// The pipeline cuts a model, not its copies.
// expect: stands next to the model
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world);
  PipelineParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, pp> mesh(world);
  DataParallel<PipelineParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: pipeline_of_pipeline
// One wrapper for one axis.
// expect: stands next to the model
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<pp> mesh(world);
  PipelineParallel<PipelineParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<pp> mesh(world);
  PipelineParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: pipeline_of_tensor
// The pipeline must be directly around the model.
// expect: stands next to the model
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<tp, pp> mesh(world);
  PipelineParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<tp, pp> mesh(world);
  TensorParallel<PipelineParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: sharded_data_of_data
// Sharding replaces DataParallel.
// expect: in place of DataParallel
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: tensor_of_context
// Sums over tp come before those over cp, so ContextParallel must be outside TensorParallel.
// expect: belongs outside it
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<cp, tp> mesh(world);
  TensorParallel<ContextParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<cp, tp> mesh(world);
  ContextParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: tensor_of_data
// Sums over tp come before the reduction over dp, so DataParallel must be outside.
// expect: belongs outside it
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  TensorParallel<DataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: tensor_of_sharded_data
// A unit is scattered over dp after its sums over tp, so sharding must be outside.
// expect: belongs outside it
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  TensorParallel<FullyShardedDataParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  FullyShardedDataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: tensor_of_tensor
// One wrapper for one axis.
// expect: belongs outside it
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<tp> mesh(world);
  TensorParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<tp> mesh(world);
  TensorParallel<Model> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
