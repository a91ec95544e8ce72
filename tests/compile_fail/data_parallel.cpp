// SPDX-License-Identifier: Apache-2.0
// Data parallelism and sharding of parameters.
#include <weft/parallel/policies.hpp>
#include <weft/weft.hpp>

using namespace weft;

// section: gradient_type
// Sums of gradients are kept as the model computes or as its layers add.
// expect: MixedPrecision's Gradient must be Param, or the type in which layers add gradients
#ifdef WEFT_FAIL
using Policy = MixedPrecision<bfloat16, float, float16>;
#else
using Policy = MixedPrecision<bfloat16, float, bfloat16>;
#endif

void go(ModelOptions& options) { Policy::apply(options); }

// section: no_such_policy
// The arguments after the model are policies or hooks.
// expect: must be policies, such as Reproducible, or a communication hook
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model, zero::Stage1> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Model, Reproducible> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: policy_of_an_object
// A policy whose apply is not static.
// expect: this policy's apply cannot be called with ModelOptions
// mention: Own
struct Own {
#ifdef WEFT_FAIL
  void apply(ModelOptions& options) { options.seed = 2; }
#else
  static void apply(ModelOptions& options) { options.seed = 2; }
#endif
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<models::Gpt, zero::Stage2, Own> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: sharded_data_no_such_stage
// The sharded state is one of three types, not a number.
// expect: zero::Stage1, zero::Stage2 or zero::Stage3
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<Model, schedule::GPipe> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  FullyShardedDataParallel<Model, zero::Stage3> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: sharded_data_optimizer_of_matrices
// An optimizer that needs whole matrices cannot update pieces of them.
// expect: this optimizer's rule is not elementwise
struct MatrixRule : optim::AdamWRule {
  static constexpr bool elementwise = false;
};

#ifdef WEFT_FAIL
using Model = FullyShardedDataParallel<models::Gpt, zero::Stage3>;
#else
using Model = DataParallel<models::Gpt>;
#endif

void go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  Model model(mesh, models::GptConfig{});
  optim::Optimizer<MatrixRule> optimizer(model);
  model.train_step(batch);
  optimizer.step();
}

// section: sharded_data_stage_by_number
// A stage of ZeRO is a type. (Uses of the alias would be further errors of g++, for which such a type is invalid.)
// expect: type/value mismatch|must be a type
// mention: zero::Stage3|ZeroStage1Or2Or3
#ifdef WEFT_FAIL
using Model = FullyShardedDataParallel<models::Gpt, 3>;
#else
using Model = FullyShardedDataParallel<models::Gpt, zero::Stage3>;

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  Model model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: sharded_data_two_stages
// One stage of ZeRO at a time.
// expect: FullyShardedDataParallel has one stage of ZeRO
#ifdef WEFT_FAIL
using Model = FullyShardedDataParallel<models::Gpt, zero::Stage1, Reproducible, zero::Stage3>;
#else
using Model = FullyShardedDataParallel<models::Gpt, Reproducible, zero::Stage3>;
#endif

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  Model model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
