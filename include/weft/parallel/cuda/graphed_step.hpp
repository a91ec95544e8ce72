// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training step of a model as a CUDA graph on each GPU. Forward and backward of all micro-batches, and NCCL's sums between
// ranks, are recorded in the third step with a shape and launched as one from then on, which saves the launches of single kernels
// if a model is small. Everything that waits for the GPU stays outside: a step's tokens are copied in before the graph, its
// losses are read after it, and the optimizer follows as usual.
//
//   DataParallel<models::Gpt> model(mesh, config);   // or SingleDevice<models::Gpt> model(world.device(), config)
//   gpu::GraphedStep train_step(model);
//   optim::AdamW optimizer(model);
//   for (auto&& batch : batches) {
//     double loss = train_step(batch);   // in place of model.train_step(batch)
//     optimizer.step();
//   }
//
// On hosts the same program runs each step without a graph.

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/data/batch.hpp>
#include <weft/parallel/same_inputs.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/tensor/transfer.hpp>
#ifdef KOKKOS_ENABLE_CUDA
#include <weft/device/cuda/graph.hpp>
#endif

namespace weft::gpu {

namespace detail {
/// Runs work on a device. On a device that can record, the third run with the same key is recorded and later ones replay the
/// record.
template <class Exec>
struct Recorder {
  template <class Work>
  void run(const Exec&, const std::vector<std::uint64_t>&, Work&& work) {
    work();
  }
  void forget() noexcept {}
};
#ifdef KOKKOS_ENABLE_CUDA
template <>
struct Recorder<Kokkos::Cuda> {
  template <class Work>
  void run(const Kokkos::Cuda& exec, const std::vector<std::uint64_t>& key, Work&& work) {
    graph.run(exec.cuda_stream(), key, work);
  }
  void forget() noexcept { graph.forget(); }
  StepGraph graph;
};
#endif

template <class Model>
consteval bool can_be_recorded() {
  if constexpr (weft::is_wrapper<Model>)
    return !Model::uses(pp{}) && !Model::uses(cp{}) && !Model::uses(ep{}) && !Model::shards_parameters;
  else return true;
}
template <class Model>
inline constexpr bool recordable = can_be_recorded<Model>();
}  // namespace detail

/// Steps of `model`, which must outlive this object. Memory: the memory that a step takes beside parameters and gradients belongs
/// to this object, stays allocated, and is not in arena().use(). Numerics: the same kernels on the same values as
/// model.train_step, so the same bits.
///
/// Over several ranks: with DataParallel and TensorParallel, whose sums follow each other on a stream. Not with pipelines,
/// context parallelism (ranks agree on the order of messages over the host) and FullyShardedDataParallel (which gathers ahead as
/// earlier steps went). Collective; a rank that does not launch its graph is found at the deadline.
///
/// Not for mixtures of experts (the host learns how many rows each expert gets), communication hooks (host code beside the sums),
/// dropout and Noise (numbers differ from step to step, and a graph repeats the numbers that it was recorded with), layers that
/// keep numbers on the host from step to step (make_step_buffer), reproducible runs and runs that record a timeline. Other
/// wrappers and mixtures do not compile, the others throw UsageError. In a recorded step the host's values of its
/// loss (Environment::loss_gradient, auxiliary_gradient) are NaN. A user's layers must not wait for the GPU, or CudaError
/// reports that the step cannot become a graph.
template <class Model>
class GraphedStep {
  using M = typename Model::model_type;
  static_assert(
      !requires(const typename M::Config& config) { M::experts(config); },
      "weft: GraphedStep: a mixture of experts cannot be recorded: how many rows each expert gets is known in the step only; use "
      "model.train_step");
  static_assert(
      detail::recordable<Model>,
      "weft: GraphedStep: only DataParallel and TensorParallel of a model, or SingleDevice, can be recorded: messages of "
      "pipelines and rings, and parameters that are gathered ahead, are ordered by the host; use model.train_step");
  using Ctx = decltype(std::declval<Model&>().context());
  static_assert(weft::detail::ModelRecipe<M> && std::is_same_v<weft::detail::batch_of_t<M>, TokenBatch>,
                "weft: GraphedStep: only a recipe (Front, Block, Back) on tokens can be recorded; use model.train_step");
  using Run = weft::detail::ModelBatch<M, Ctx>;
  using Executor = weft::detail::Executor<DefaultDevice::execution_space>;
  using Memory = weft::detail::Arena<DefaultDevice::memory_space>;

 public:
  explicit GraphedStep(Model& model) : model_(&model) {
    const auto refuse = [](const std::string& what) {
      throw_error<UsageError>({"GraphedStep: ", what, "; use model.train_step"});
    };
    if (const std::string& layer = model.stages().draws(); !layer.empty())
      refuse("the layer " + layer +
             " draws other random numbers in each step (Dropout, Noise), and a recorded step would repeat "
             "its own");
    if (model.options().numerics.reproducible)
      refuse("a reproducible run (ModelOptions::numerics.reproducible) accumulates micro-batches under the host's control");
    if (model.options().numerics.trace_nonfinite)
      refuse("a step that looks for values that are not finite (ModelOptions::numerics.trace_nonfinite) waits for the device");
    if (!model.options().activations.on_host.empty())
      refuse("activations in host memory (ModelOptions::activations) are copied under the host's control");
    if (model.options().numerics.recheck_every != 0)
      refuse(
          "a micro-batch that another rank computes again (ModelOptions::numerics.recheck_every) is no part of a recorded step");
    if (!model.stages().buffers().empty())
      refuse(
          "a layer keeps numbers of each step on the host (make_step_buffer), as routers of experts do, and a recorded step has "
          "none");
    if (model.options().data.hook || model.options().numerics.reduce.narrow())
      refuse("a communication hook (ModelOptions::data.hook, numerics.reduce) is host code beside the sums of each step");
    if (model.options().pipeline.timeline)
      refuse("a step that is recorded as a whole has no actions to time (ModelOptions::pipeline.timeline)");
  }
  GraphedStep(const GraphedStep&) = delete;
  GraphedStep& operator=(const GraphedStep&) = delete;

  /// Runs a step as the model's train_step does. A batch of another shape starts anew, with two steps without a graph.
  double operator()(const Batch& batch) {
    if (model_->loss_scale()) model_->loss_scale()->apply();
    Ctx context = model_->context();
    context.env.step = model_->stages().gradients()->number_of(batch.step);
    context.engine.longest = weft::detail::require_batches(
        weft::detail::batch_axes(model_->stages().axes(), context.engine.hooks), context.env.step, batch, true);
    return step(context, model_->stages(), batch);
  }

 private:
  double step(const Ctx& context, auto& stages, const Batch& batch) {
    stages.require_trainable();
    const Run given(context, stages.config(), batch);
    const schedule::Table& table = stages.table(given);
    stages.require_gradients_used(batch.step);
    const double count = stages.count_targets(given).counted;
    stages.gradients()->begin(context.env.step, batch.step.is_set());
    std::vector<std::uint64_t> key{batch.sequences, batch.length, batch.micro_batches, batch.first_sequence,
                                   stages.trainable_changes()};
    for (const MicroBatch& micro : batch.differing) key.insert(key.end(), {micro.sequences, micro.length});
    key.push_back(batch.documents.size());
    if (key != key_) begin(context, table, batch, std::move(key));
    const double seed = context.engine.loss_scale / count;
    copy_from_host(inputs_.held.tokens, std::span<const std::int32_t>(batch.tokens));
    copy_from_host(inputs_.held.targets, std::span<const std::int32_t>(batch.targets));
    if (!batch.documents.empty()) copy_from_host(inputs_.documents, std::span<const std::int32_t>(batch.documents));
    copy_from_host(inputs_.seed, std::span<const double>(&seed, 1));
    stages.accumulator()->begin(weft::detail::share_of(batch), context.engine.hooks, context.rank(dp{}), context.size(dp{}));
    recorder_.run(model_->device().exec(), key_, [&] {
      const Lent lent{model_->device().arena(), memory_};
      stages.for_each_state([](ParameterState& state) { state.gradients().begin_step(); });
      executor_->run({});
      stages.finish_gradients(context.engine.hooks);
    });
    model_->communicator().watch(model_->device().exec());
    stages.agree_on_gradients();
    const double loss = stages.total_loss(executor_->losses()) / count;
    stages.gradients()->applied = !std::isfinite(loss);
    return loss;
  }

  // Nobody else is given the step's memory, whether it is in use or not, because the graph writes there each time.
  struct Lent {
    Memory &own, &step;
    Lent(Memory& of_device, Memory& of_step) : own(of_device), step(of_step) { own.exchange(step); }
    ~Lent() { own.exchange(step); }
  };

  void begin(const Ctx& context, const schedule::Table& table, const Batch& batch, std::vector<std::uint64_t> key) {
    recorder_.forget();
    executor_.reset();
    run_.reset();
    key_.clear();
    shape_ = batch;
    using Tokens = decltype(inputs_.held.tokens);
    inputs_ = {{Tokens(context.device(), {batch.tokens.size()}), Tokens(context.device(), {batch.targets.size()})},
               decltype(inputs_.seed)(context.device(), {1}),
               {}};
    if (!batch.documents.empty()) inputs_.documents = decltype(inputs_.documents)(context.device(), {batch.documents.size()});
    // A layer that read a number of this step from the environment would repeat it in all later steps.
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    auto& stages = model_->stages();
    run_ = std::make_unique<Run>(context, stages.config(), shape_);
    run_->typed_inputs().take(inputs_.held);
    executor_.reset(new Executor(stages.executor(*run_, table, {.loss_gradient = unknown, .auxiliary_gradient = unknown})));
    executor_->take(inputs_.seed, inputs_.documents);
    key_ = std::move(key);
  }

  Model* model_;
  Memory memory_;
  Batch shape_;
  struct Inputs {
    typename Run::Inputs::Held held;
    Tensor<double, DefaultDevice::execution_space> seed;
    Tensor<std::int32_t, DefaultDevice::execution_space> documents = {};
  };
  Inputs inputs_;
  std::vector<std::uint64_t> key_;
  std::unique_ptr<Run> run_;
  std::unique_ptr<Executor> executor_;
  detail::Recorder<DefaultDevice::execution_space> recorder_;
};

}  // namespace weft::gpu
