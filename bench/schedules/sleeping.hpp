// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model with sleeping blocks: every stage takes a prescribed time on any computer, so a pipeline loses time only through its
// schedule and the executor. With a testing::SimulatedClock it takes simulated time.

#include <cstddef>
#include <memory>
#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/parallel/model_options.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>
#include <weft/testing/delay_messages.hpp>

namespace weft_bench {

using namespace weft;

struct SleepingConfig {
  std::size_t layers = 4;
  double forward_s = 0.008, input_s = 0.008, weight_s = 0.008;  // per block
  std::shared_ptr<testing::RankClock> clock = std::make_shared<testing::RankClock>();
};

struct SleepingFront {
  Parameter<> start;  // trained, since blocks in front of all trained parameters have no backward

  template <class Context, class Ids>
  auto forward(const Context&, const Ids& ids) const {
    with_scalar_t<Ids, float> hidden(ids.device(), {ids.size(), 1});
    weft::kernels::fill(ids.device(), hidden.size(), hidden.data(), 0.0f);
    return Result{std::move(hidden), Nothing{}};
  }
  template <class Context, class G>
  auto backward(const Context&, Nothing, const G&) const {
    return Nothing{};
  }
};

struct SleepingBlock {
  SleepingConfig config;
  struct Later {};

  template <class Context, class X>
  auto forward(const Context&, const X& x) const {
    config.clock->pass(config.forward_s);
    return Result{x, Nothing{}};
  }
  template <class Context, class G>
  auto backward_input(const Context&, Nothing, const G& g) const {
    config.clock->pass(config.input_s);
    return InputGradient{g, Later{}};
  }
  template <class Context>
  void backward_weight(const Context&, Later) {
    config.clock->pass(config.weight_s);
  }
};

struct SleepingBack {
  template <class Context, class X, class Ids>
  auto forward(const Context& context, const X& x, const Ids& targets) const {
    X losses(x.device(), {targets.size()});
    weft::kernels::fill(x.device(), losses.size(), losses.data(), 0.0f);
    return Result{sum_losses(context, losses, targets), x};
  }
  template <class Context, class X, class G>
  auto backward(const Context&, X x, const G&) const {
    return gradient_t<X>(x);
  }
};

struct SleepingModel {
  using scalar = float;
  using Config = SleepingConfig;
  using Front = SleepingFront;
  using Block = SleepingBlock;
  using Back = SleepingBack;

  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config&) { return 1; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config&) { return {{context, "start", {1}, zeros}}; }
  static Block make_block(const auto&, const Config& config, std::size_t) { return {config}; }
  static Back make_back(const auto&, const Config&, Front*) { return {}; }
};

}  // namespace weft_bench
