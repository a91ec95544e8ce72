// SPDX-License-Identifier: Apache-2.0
// Meshes and axes.
#include <weft/context/expert_mesh.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/weft.hpp>

using namespace weft;

// section: axis_not_empty
// An axis is an empty type with a name. A number instead is refused at its place.
// expect: constraints not satisfied|use of invalid variable template
// mention: Axis
#ifdef WEFT_FAIL
constexpr unsigned bit = weft::axis_bit<int>;
#else
constexpr unsigned bit = weft::axis_bit<weft::tp>;
#endif

static_assert(sizeof(bit) == sizeof(unsigned));

// section: axis_not_in_force
// A layer requests a communicator that no wrapper has bound.
// expect: this axis is not in force here
using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
int go(const Root& context) { return context.comm(tp{}).size(); }
#else
int go(const Both& context) { return context.comm(tp{}).size(); }
#endif

// section: context_no_such_method
// Attention across ranks has two methods, and a schedule is neither.
// expect: must be Ring or Ulysses
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<cp> mesh(world);
  ContextParallel<Model, schedule::GPipe> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<cp> mesh(world);
  ContextParallel<Model, Ulysses> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: context_parallel_of_no_sequence
// ContextParallel around a model whose batch has no field with positions.
// expect: ContextParallel cuts sequences, and no field of this model's batch is declared as one.*data::SequenceDim<1>
#ifdef WEFT_FAIL
inline constexpr data::Field<"series", float> series;
#else
inline constexpr data::Field<"series", float, data::SequenceDim<1>> series;
#endif

struct Own : Module<Own> {
  using scalar = float;
  using Batch = FieldBatch<series>;
  struct Config {};
  Parameter<> table;
  Own(const auto& context, const Config&) : table(context, "table", {4, 4}, ones) {}
  auto loss(const auto& batch) const { return sum_losses(sum_columns(matmul(merge_samples(batch[series]), table))); }
};

double go(World& world, const Own::Batch& batch) {
  Mesh<dp, cp> mesh(world, {.cp = 2});
  DataParallel<ContextParallel<Own>> model(mesh, {});
  return model.train_step(batch);
}

// section: context_without_mesh_axis
// Sequences are to be cut over cp, and the mesh has no such axis.
// expect: a wrapper for an axis that this Mesh lacks
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<ContextParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, cp> mesh(world);
  DataParallel<ContextParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: expert_axis_without_wrapper
// The mesh has experts over ep, the model has no wrapper for them.
// expect: an axis that no wrapper of the model uses
using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<Model> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif

// section: expert_mesh_of_replicated_rows
// Rows that several ranks share would reach the experts several times.
// expect: are not cut over every axis of the dense mesh
using Exec = Kokkos::DefaultHostExecutionSpace;

#ifdef WEFT_FAIL
auto go(const Tensor<float, Exec, Shard<dp, 0>, Invariant<tp>>& rows) { return to_expert_mesh(rows); }
#else
auto go(const Tensor<float, Exec, Shard<dp, 0>, Shard<tp, 0>>& rows) { return to_expert_mesh(rows); }
#endif

// section: expert_of_dense_model
// A model without experts has nothing to distribute over ep.
// expect: ExpertParallel needs a model with experts
#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  ExpertParallel<models::Llama> model(mesh, models::LlamaConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<ExpertParallel<models::Mixtral>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif

// section: expert_without_dense_axis
// Without dp, cp or tp all ranks would have the same tokens.
// expect: all ranks would have the same tokens
using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<ep> mesh(world);
  ExpertParallel<Model> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif

// section: expert_wrapper_without_axis
// The model has experts over ep, the mesh has no such axis.
// expect: an axis that this Mesh lacks
using Model = models::Mixtral;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, ep, edp> mesh(world);
  DataParallel<ExpertParallel<Model>> model(mesh, models::MixtralConfig{});
  return model.train_step(batch);
}
#endif

// section: axis_without_wrapper
// The mesh has a pipeline, but the model has none: the ranks would all do the same work.
// expect: an axis that no wrapper of the model uses
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp, tp, pp> mesh(world);
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, tp, pp> mesh(world);
  DataParallel<TensorParallel<PipelineParallel<Model>>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif

// section: joins_two_grids
// Axes of the dense and of the expert mesh are not orthogonal: no communicator joins them.
// expect: use of deleted function|call to deleted member function
// mention: this_mesh_has_no_such_axis
int ranks(const weft::Mesh<weft::dp, weft::tp, weft::ep, weft::edp>& mesh) {
#ifdef WEFT_FAIL
  return mesh.comm(weft::dp{}, weft::ep{}).size();
#else
  return mesh.comm(weft::dp{}, weft::tp{}).size() * mesh.comm(weft::edp{}, weft::ep{}).size();
#endif
}

// section: no_such_axis
// A communicator of an axis that the mesh does not have.
// expect: use of deleted function|call to deleted member function
// mention: this_mesh_has_no_such_axis
int pipeline_rank(const weft::Mesh<weft::dp, weft::tp, weft::pp>& mesh, const weft::Mesh<weft::dp, weft::tp>& flat) {
#ifdef WEFT_FAIL
  return mesh.size() + flat.comm(weft::pp{}).rank();
#else
  return flat.size() + mesh.comm(weft::pp{}).rank();
#endif
}

// section: wrapper_without_mesh_axis
// The model is tensor-parallel, the mesh has no such axis.
// expect: a wrapper for an axis that this Mesh lacks
using Model = models::Gpt;

#ifdef WEFT_FAIL
double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#else
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world);
  DataParallel<TensorParallel<Model>> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
#endif
