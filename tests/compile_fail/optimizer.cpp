// SPDX-License-Identifier: Apache-2.0
// Optimizers.
#include <weft/checkpoint/checkpoint.hpp>
#include <weft/nn/lora.hpp>
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

// section: adapters_of_a_plain_model
// Adapters for a model type without adapters.
// needs: xxhash.h
// expect: weft: this model's type has no adapters to load or save: give it the policy Lora
#include <weft/hugging_face/hugging_face.hpp>
void go(World& world) {
  Mesh<dp, tp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<TensorParallel<models::Llama>> model(mesh, {});
#else
  DataParallel<TensorParallel<models::BasicLlama<float, Lora>>> model(mesh, {}, {.lora = {.rank = 8}});
#endif
  hugging_face::save_adapters("folder", model);
}

// section: checkpoint_of_a_module
// A layer has parameters, but no ranks that save it together.
// expect: checkpoint::save takes a folder, a model in its wrapper
#ifdef WEFT_FAIL
void go(Linear<Column>& model) {
#else
void go(SingleDevice<models::Gpt>& model) {
#endif
  checkpoint::save("run", model, 100);
}

// section: checkpoint_of_lbfgs
// Checkpoints do not hold the history of L-BFGS: a resumed run would take other steps.
// expect: Checkpoints do not hold the history of optim::Lbfgs: save the model without it
#include <weft/optim/lbfgs.hpp>
void go(SingleDevice<models::Gpt>& model, optim::Lbfgs<SingleDevice<models::Gpt>>& optimizer) {
  optimizer.step([] { return 0.0; });
#ifdef WEFT_FAIL
  checkpoint::save("run", model, optimizer, 100);
#else
  checkpoint::save("run", model, 100);
#endif
}

// section: lora_of_a_norm
// A low-rank adapter for a layer that is not linear.
// expect: weft: LoraLinear<Base> is an adapter beside a linear layer
using C = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;

#ifdef WEFT_FAIL
void go(const C&) { (void)sizeof(LoraLinear<LayerNorm>); }
#else
void go(const C& context) { LoraLinear<Linear<>>(context / "in", 8, 16); }
#endif

// section: of_a_const_model
// An optimizer changes the model's parameters.
// expect: this model is const
#ifdef WEFT_FAIL
void go(const SingleDevice<models::Gpt>& model) {
#else
void go(SingleDevice<models::Gpt>& model) {
#endif
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  optimizer.step();
}

// section: of_a_layer
// A layer has parameters, but no ranks to sum its gradients over.
// expect: an optimizer updates a model that is laid over ranks
#ifdef WEFT_FAIL
void go(Linear<Column>& model) {
#else
void go(SingleDevice<models::Gpt>& model) {
#endif
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  optimizer.step();
}

// section: of_a_recipe
// A model without a wrapper is a recipe without parameters.
// expect: an optimizer updates a model that is laid over ranks
// mention: Trainable
#ifdef WEFT_FAIL
void go(models::Gpt& model) {
#else
void go(SingleDevice<models::Gpt>& model) {
#endif
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  optimizer.step();
}

// section: option_of_another_framework
// The learning rate under its name in PyTorch.
// expect: an optimizer.s learning rate is .learning_rate
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Net(const auto& context, const Config& config) : layer(context / "layer", config.width, config.width) {}
  auto forward(const auto& x) const { return silu(layer(x)); }
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const FieldBatch<input>& batch) {
  Mesh<dp> mesh(world);
#ifdef WEFT_FAIL
  DataParallel<Net> model(mesh, {});
  optim::AdamW optimizer(model, {.lr = 1e-3, .weight_decay = 0.1});
  return model.train_step(batch);
#else
  DataParallel<Net> model(mesh, {});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3, .weight_decay = 0.1});
  return model.train_step(batch);
#endif
}

// section: without_option_names
// An optimizer's options have names.
// expect: second argument is its options
struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<input>;
  struct Config {
    std::size_t width = 4;
  };
  Linear<> layer;
  Parameter<> table;
  Net(const auto& context, const Config& config)
      : layer(context / "layer", config.width, config.width), table(context, "table", {4, 1, 3, 3}, normal(1)) {}
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return silu(layer(x)); }
#else
  auto forward(const auto& x) const { return silu(layer(x)); }
#endif
  auto loss(const auto& batch) const { return mse(forward(batch[input]), batch[input]); }
};

double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
#ifdef WEFT_FAIL
  optim::AdamW optimizer(model, 1e-3);
#else
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
#endif
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
}

// section: without_a_model
// An optimizer is made with the model that it updates.
// expect: an optimizer's first argument is its model
void go(const FieldBatch<input>&, [[maybe_unused]] SingleDevice<models::Gpt>& model) {
#ifdef WEFT_FAIL
  optim::AdamW optimizer(1e-3);
#else
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
#endif
  optimizer.step();
}
