// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/model_functions.hpp weft/parallel/model_options.hpp
// covers: weft/engine/step_gradients.hpp weft/engine/asked_parameters.hpp
// The step state of a model and its optimizers: the step number for dropout, whether gradients are new, the optimizer of each
// parameter, and parameters without a gradient in a layer's backward.

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/engine/asked_parameters.hpp>
#include <weft/engine/step_gradients.hpp>
#include <weft/parallel/model_functions.hpp>
#include <weft/parallel/model_options.hpp>
#include <weft/weft.hpp>

#include "support/field_models.hpp"
#include "support/temporary_folder.hpp"

using namespace weft_test;

namespace {

/// w * x in rows. `wrong`: 0 right, 1 without a gradient of w, 2 overwrites it, 3 always adds.
template <int wrong>
struct Scaled : Primitive<Scaled<wrong>> {
  Parameter<> w;
  explicit Scaled(const auto& context) : w(context, "w", {8}, ones) {}
  template <class Context, class X>
  auto forward(const Context&, const X& x) const {
    return Result{times_row(x, w.for_operand(x)), x};
  }
  template <class Context, class S, class G>
  auto backward_input(const Context&, S x, const G& g) {
    return InputGradient{times_row(g, w.for_operand(g)), std::pair{std::move(x), g}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    if (!w.trainable()) return;
    const auto sum = sum_rows(times(deferred.first, deferred.second));
    if constexpr (wrong == 0) w.accumulate(context, sum);
    if constexpr (wrong >= 2) {
      const auto open = w.template open_gradient<std::remove_const_t<decltype(sum)>>(sum.device());
      for (std::size_t i = 0; i < 8; ++i) open.data[i] = (wrong == 3 ? open.data[i] : 0) + sum.data()[i];
    }
  }
};

template <int wrong = 0>
struct Net : Module<Net<wrong>> {
  using scalar = double;
  using Batch = FieldBatch<input_field, wanted_field>;
  struct Config {
    bool loses_scaled = false;
  };
  Linear<> a, b;
  Dropout dropout;
  Scaled<wrong> scaled;
  bool loses;
  Net(const auto& context, const Config& config)
      : a(context / "a", 6, 8, {.standard_deviation = 0.5}),
        b(context / "b", 8, 2, {.standard_deviation = 0.5}),
        dropout(context / "dropout", 0.5),
        scaled(context / "scaled"),
        loses(config.loses_scaled) {}
  auto forward(const auto& x) const {
    auto hidden = a(x);
    auto other = scaled(hidden);
    return b(dropout(loses ? hidden : other));
  }
  auto loss(const auto& batch) const { return mse(forward(batch[input_field]), batch[wanted_field]); }
};
using Right = Net<0>;

template <class Model = Right>
typename Model::Batch batch_of(std::size_t rank = 0, std::size_t ranks = 1, std::size_t micro_batches = 1) {
  auto batch = share_of_samples<typename Model::Batch>(0, rank, ranks, micro_batches);
  fill_field(batch, input_field, 1, {6});
  fill_field(batch, wanted_field, 2, {2});
  batch.step = {};
  return batch;
}
template <class F>
std::string text_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The losses of steps on one batch with a learning rate of 0.
std::vector<double> losses(auto& model, auto& optimizer, auto batch, bool counted, int steps = 4) {
  std::vector<double> all;
  for (int step = 0; step < steps; ++step) {
    if (counted) batch.step = step;
    all.push_back(model.train_step(batch));
    optimizer.step();
  }
  return all;
}

}  // namespace

TEST_CASE("dropout draws for the steps that the model counts if the batch has no step") {
  DefaultDevice device;
  std::vector<double> expected;
  for (const bool counted : {true, false}) {
    SingleDevice<Right> model(device, {});
    optim::Sgd optimizer(model, {.learning_rate = 0});
    const auto found = losses(model, optimizer, batch_of(), counted);
    if (counted) expected = found;
    CHECK(found == expected);
    for (int step = 0; step < 3; ++step) CHECK(found[std::size_t(step)] != found[std::size_t(step + 1)]);
  }
  // The same in every layout, with evaluations in between, which are not counted.
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          FullyShardedDataParallel<Right> model(mesh, {});
          optim::Sgd optimizer(model, {.learning_rate = 0});
          const auto batch = batch_of(std::size_t(world.rank()), 2, 2);
          for (int step = 0; step < 4; ++step) {
            model.evaluate(batch);
            CHECK(model.train_step(batch) == doctest::Approx(expected[std::size_t(step)]).epsilon(1e-12));
            optimizer.step();
          }
        }) == 0);
}

TEST_CASE("a step that a batch gives again is refused once its gradients are applied") {
  DefaultDevice device;
  SingleDevice<Right> model(device, {});
  auto batch = batch_of();
  batch.step = 3;
  CHECK(model.train_step(batch) == model.train_step(batch));  // without an optimizer nothing is trained
  std::optional<optim::Sgd> optimizer(std::in_place, model, optim::SgdOptions{.learning_rate = 0.1});
  const double first = model.train_step(batch);
  model.discard_gradients();
  CHECK(model.train_step(batch) == first);  // tried again
  optimizer->step();
  const std::string text = text_of([&] { model.train_step(batch); });
  CHECK_MESSAGE(text ==
                    "weft: the batch's step is 3, as in the step that the optimizer applied last, so dropout would draw the same "
                    "masks again: count it (++batch.step), or set batch.step = {}, and the model counts its steps",
                text);
  model.evaluate(batch);
  ++batch.step;
  CHECK(batch.step == 4);
  model.train_step(batch);
  optimizer->step();
  // An earlier number would repeat masks as well, also after steps that the model counts.
  for (const int again : {2, 3}) {
    batch.step = again;
    CHECK(text_of([&] { model.train_step(batch); }) ==
          "weft: the batch's step is " + std::to_string(again) +
              ", and the optimizer has applied step 4, so dropout would draw the masks of earlier steps again: continue the "
              "numbers "
              "(data::LoaderOptions::first_step), or set batch.step = {}, and the model counts its steps");
    model.train_step(batch_of());
    optimizer->step();
  }
  batch.step = 4;
  CHECK(text_of([&] { model.train_step(batch); }).starts_with("weft: the batch's step is 4, as in the step that"));
  // The model continues from the batch's number, and a batch's number may start again.
  SingleDevice<Right> other(device, {});
  auto at = [&](int step) {
    auto numbered = batch_of();
    numbered.step = step;
    return other.train_step(numbered);
  };
  const double five = at(5), two = at(2);
  CHECK(at(4) != five);
  CHECK(other.train_step(batch_of()) == five);
  CHECK(at(2) == two);
  // All ranks take the same step.
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          DataParallel<Right> parallel(mesh, {});
          auto share = batch_of(std::size_t(world.rank()), 2);
          if (world.rank() == 1) share.step = 7;
          CHECK(text_of([&] {
                  parallel.train_step(share);
                }).starts_with("weft: batch: step 0 on dp rank 0, 7 on dp rank 1: ranks are at different steps"));
        }) == 0);
}

TEST_CASE("a step that is skipped may be tried again with its number") {
  DefaultDevice device;
  SingleDevice<Right> model(device, {});
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  auto batch = batch_of(), spoilt = batch;
  batch.step = spoilt.step = 1;
  spoilt[wanted_field].writable()[0] = std::numeric_limits<float>::infinity();
  model.train_step(spoilt);
  CHECK(optimizer.step().skipped);
  CHECK(text_of([&] { optimizer.step(); }).starts_with("weft: optimizer step without a gradient since the last one"));
  model.train_step(batch);
  CHECK(!optimizer.step().skipped);
}

TEST_CASE("custom training loops count, too") {
  DefaultDevice device;
  const auto sum = [](const auto& x, const auto& y) { return mse(x, y); };
  SingleDevice<Right> model(device, {}), counted(device, {});
  optim::Sgd optimizer(model, {.learning_rate = 0}), other(counted, {.learning_rate = 0});
  auto batch = batch_of(), numbered = batch;
  const auto loss_of = [&](auto& of, const auto& on) {
    auto call = of.forward(on);
    auto loss = of.loss(on, sum, call.output(), of.inputs(on)[wanted_field]);
    call.backward(std::get<0>(loss.backward()));
    return loss.value();
  };
  std::vector<double> found;
  for (int step = 0; step < 3; ++step) {
    found.push_back(loss_of(model, batch));
    numbered.step = step;
    CHECK(loss_of(counted, numbered) == found.back());
    optimizer.step();
    other.step();
  }
  CHECK(found[0] != found[1]);
  CHECK(found[1] != found[2]);
  // A further call of one micro-batch in one step draws other masks, and the next step those after it.
  numbered.step = 4;
  const double third = loss_of(model, batch), fourth = loss_of(model, batch);
  CHECK(third != fourth);
  CHECK(loss_of(counted, numbered) == fourth);
  optimizer.step();
  other.step();
  numbered.step = 5;
  CHECK(loss_of(model, batch) == loss_of(counted, numbered));
  optimizer.step();
  other.step();
  // A batch with a number may be used again in a step with discarded gradients, as for a GAN's discriminator.
  loss_of(counted, numbered);
  counted.discard_gradients();
  loss_of(counted, numbered);
  CHECK(
      text_of([&] { other.step(); }).starts_with("weft: the batch's step is 5, as in the step that the optimizer applied last"));
}

TEST_CASE("a checkpoint stores the count, so that a resumed run draws the same masks") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "run").string();
  DefaultDevice device;
  SingleDevice<Right> model(device, {});
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  losses(model, optimizer, batch_of(), false, 3);
  checkpoint::save(path, model, optimizer, 100);  // a number chosen by the program
  const auto expected = losses(model, optimizer, batch_of(), false, 2);
  SingleDevice<Right> resumed(device, {});
  optim::Sgd with(resumed, {.learning_rate = 0.1});
  CHECK(checkpoint::load(path, resumed, with) == 100);
  CHECK(text_of([&] { with.step(); }).starts_with("weft: optimizer step"));
  CHECK(losses(resumed, with, batch_of(), false, 2) == expected);
  // After a load batches may give any number.
  losses(resumed, with, batch_of(), true, 2);
  CHECK(text_of([&] { losses(resumed, with, batch_of(), true, 1); }).find("the optimizer has applied step 1") !=
        std::string::npos);
  checkpoint::load(path, resumed, with);
  losses(resumed, with, batch_of(), true, 1);
}

TEST_CASE("an optimizer applies gradients once") {
  DefaultDevice device;
  SingleDevice<Right> model(device, {});
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  CHECK(text_of([&] { optimizer.step(); }).starts_with("weft: optimizer step before any train_step"));
  model.train_step(batch_of());
  optimizer.step();
  CHECK(
      text_of([&] { optimizer.step(); }) ==
      "weft: optimizer step without a gradient since the last one: the gradients of a training step are applied once, and these "
      "were applied; call train_step, or backward in a custom training loop, before each step");
  model.train_step(batch_of());
  model.discard_gradients();
  CHECK(text_of([&] { optimizer.step(); }).find("and these were discarded") != std::string::npos);
  auto call = model.forward(batch_of());
  CHECK(text_of([&] { optimizer.step(); })
            .starts_with(
                "weft: optimizer step without a gradient since the last one: a custom training loop called the model's forward"));
  // Gradients of before an optimizer was made are its first ones, unless another one has applied them.
  SingleDevice<Right> other(device, {});
  other.train_step(batch_of());
  for (const bool applied : {false, true}) {
    optim::Sgd late(other, {.learning_rate = 0.1});
    CHECK((text_of([&] { late.step(); }) == "") == !applied);
  }
}

TEST_CASE("the first step of an optimizer needs gradients, under data parallelism too") {
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          const auto refused = [&](auto& model, auto optimizer) {
            model.evaluate(batch_of());
            const auto before = model.parameter("a.weight");
            for (int i = 0; i < 2; ++i)
              CHECK(text_of([&] { optimizer.step(); }).starts_with("weft: optimizer step before any train_step"));
            CHECK(model.parameter("a.weight") == before);
          };
          DataParallel<Right> model(mesh, {});
          refused(model, optim::Sgd(model, {.learning_rate = 0.1, .weight_decay = 0.1}));
          refused(model, optim::AdamW(model, {.weight_decay = 0.1}));
          refused(model, optim::Muon(model, {.weight_decay = 0.1}));
          for (const int stage : {0, 1, 2, 3}) {
            ModelOptions options;
            options.shard.stage = stage;
            FullyShardedDataParallel<Right> sharded(mesh, {}, options);
            refused(sharded, optim::AdamW(sharded, {.weight_decay = 0.1}));
          }
        }) == 0);
}

TEST_CASE("a parameter has one optimizer") {
  DefaultDevice device;
  SingleDevice<Right> model(device, {});
  {
    optim::Sgd first(model, {.learning_rate = 0.1});
    const std::string text = text_of([&] { optim::AdamW second(model); });
    CHECK_MESSAGE(text.starts_with("weft: a second optimizer of a.bias: another one updates it already, and both would apply"),
                  text);
  }
  // Disjoint parts, each frozen while the other's optimizer is made: both optimizers apply the gradients of one step.
  model.freeze("b.*");
  optim::Sgd first(model, {.learning_rate = 0.1});
  model.unfreeze("b.*");
  model.freeze("a.*", "scaled.*");
  optim::AdamW second(model, {.learning_rate = 0.1});
  model.unfreeze("a.*", "scaled.*");
  const auto a = model.parameter("a.weight"), b = model.parameter("b.weight");
  model.train_step(batch_of());
  first.step();
  CHECK(model.parameter("a.weight") != a);
  CHECK(model.parameter("b.weight") == b);
  const auto stepped = model.parameter("a.weight");
  second.step();
  CHECK(model.parameter("a.weight") == stepped);
  CHECK(model.parameter("b.weight") != b);
  CHECK(text_of([&] { second.step(); }).find("without a gradient since the last one") != std::string::npos);
  model.train_step(batch_of());
  first.step();
  second.step();
}

TEST_CASE("a layer whose backward forgets a parameter, or overwrites its gradient, is named after the first step") {
  DefaultDevice device;
  const auto said = [&]<int wrong>(std::integral_constant<int, wrong>, bool own_loop) {
    SingleDevice<Net<wrong>> model(device, {});
    optim::Sgd optimizer(model, {.learning_rate = 0.1});
    return text_of([&] {
      if (own_loop) model.loss(batch_of<Net<wrong>>()).backward();
      else model.train_step(batch_of<Net<wrong>>());
      optimizer.step();
    });
  };
  for (const bool own_loop : {false, true}) {
    CHECK(said(std::integral_constant<int, 0>(), own_loop) == "");
    const std::string none = said(std::integral_constant<int, 1>(), own_loop);
    CHECK_MESSAGE(
        none.starts_with("weft: the gradient of scaled.w: a layer's forward used the parameter, its backward has run, and "
                         "no rank has added a gradient in the first step"),
        none);
    const std::string over = said(std::integral_constant<int, 2>(), own_loop),
                      added = said(std::integral_constant<int, 3>(), own_loop);
    CHECK_MESSAGE(over.starts_with("weft: the gradient of scaled.w: a layer's backward opened it and did not look at `first`"),
                  over);
    CHECK(added == over);
  }
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          FullyShardedDataParallel<Net<1>> model(mesh, {});
          CHECK(text_of([&] {
                  model.train_step(batch_of<Net<1>>(std::size_t(world.rank()), 2));
                }).starts_with("weft: the gradient of scaled.w: a layer's forward used"));
        }) == 0);
  // Without a backward, or with a frozen parameter, nothing is missing.
  SingleDevice<Net<1>> unused(device, {.loses_scaled = true}), frozen(device, {});
  CHECK(text_of([&] { unused.train_step(batch_of<Net<1>>()); }) == "");
  frozen.freeze("scaled.w");
  CHECK(text_of([&] { frozen.train_step(batch_of<Net<1>>()); }) == "");
}
