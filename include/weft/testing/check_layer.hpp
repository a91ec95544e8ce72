// SPDX-License-Identifier: Apache-2.0
#pragma once
// Proves a layer's backward: its input gradient and every parameter gradient against finite differences on one rank, in
// double, and one rank against several. For a user's own primitive this is the test to write:
//
//   testing::check_layer([](const auto& context) { return Scale(context, 8); }, {4, 8});
//   testing::check_layer_on<tp>(2, [](const auto& context) { return Up(context, 8); }, {4, 8});

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/core/philox.hpp>
#include <weft/nn/context.hpp>
#include <weft/nn/layer.hpp>
#include <weft/tensor/to.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::testing {

struct CheckOptions {
  double step = 1e-5;          ///< of the central difference
  double tolerance = 1e-6;     ///< largest difference allowed, relative to the largest gradient of the same tensor
  std::size_t samples = 24;    ///< elements tried of each tensor; all of them if it has fewer
  std::size_t length = 0;      ///< tokens of a sequence; 0: all rows are one sequence
  std::uint64_t seed = 1;
};

/// What was compared. `worst` names the tensor with the largest difference.
struct CheckReport {
  double error = 0;  ///< relative
  std::string worst;
  std::size_t compared = 0;

  void add(const std::string& name, double difference, double scale) {
    ++compared;
    const double relative = difference == 0 ? 0 : difference / std::max(scale, 1e-12);
    if (!(relative <= error)) {
      error = std::isfinite(relative) ? relative : INFINITY;
      worst = name;
    }
  }
};

namespace detail {

using Device = DefaultDevice;
using Exec = Device::execution_space;
using Root = Context<Compute<Exec, double>>;

inline Environment environment(const CheckOptions& options, const Shape& shape) {
  Environment environment;
  environment.seed = options.seed;
  environment.length = options.length ? options.length : shape.rows();
  environment.rows = shape[0];
  return environment;
}

// Numbers in (-1, 1) by global index, the same on every rank.
inline std::vector<double> numbers(std::uint64_t key, std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2.0 * Philox::uniform(key, i) - 1.0;
  return values;
}

template <class X>
X tensor_of(Device& device, const Shape& shape, const std::vector<double>& values) {
  X x(device, shape);
  copy_from_host(x, std::span<const double>(values));
  return x;
}

// The layer's gradients, and Σ output · weights, of which they are the gradients.
struct Evaluation {
  double value = 0;
  std::vector<double> input_gradient;
  std::map<std::string, std::vector<double>> gradients;  // by name, as the whole parameter
};

inline void collect(ParameterState& state, std::map<std::string, std::vector<double>>& gradients) {
  auto& whole = gradients[state.name];
  whole.resize(state.global.size());
  if (!state.gradient || state.fresh) return;
  const auto* data = static_cast<const double*>(state.gradient.get());
  for (const Run& run : state.runs)
    for (std::size_t i = 0; i < run.length; ++i) whole[run.global + i] = data[run.local + i];
}

// A run on one rank: forward, and backward with the gradient `weights`.
template <class Layer>
Evaluation evaluate(Layer& layer, const Root& context, const Tensor<double, Exec>& x, bool with_gradients) {
  Evaluation evaluation;
  auto step = layer.forward(context, x);
  const auto output = copy_to_host(step.output);
  const auto weights = numbers(key_of(77), output.size());
  for (std::size_t i = 0; i < output.size(); ++i) evaluation.value += output[i] * weights[i];
  // What a layer puts into the gradient beside its output's (a router's auxiliary losses) belongs to the objective.
  if constexpr (requires { layer.added_loss(step.saved); }) evaluation.value += layer.added_loss(step.saved);
  if (!with_gradients) return evaluation;
  layer.for_each_parameter([](auto& parameter) { parameter.state().fresh = true; });
  const auto g = tensor_of<gradient_t<decltype(step.output)>>(context.device(), step.output.shape(), weights);
  evaluation.input_gradient = copy_to_host(weft::detail::input_gradient_of<Tensor<double, Exec>>(weft::backward(layer, context, std::move(step.saved), g)));
  layer.for_each_parameter([&](auto& parameter) { collect(parameter.state(), evaluation.gradients); });
  return evaluation;
}

inline void require(const CheckReport& report, const CheckOptions& options, const std::string& what) {
  if (report.compared == 0) throw Error("check_layer compared nothing");
  if (!(report.error <= options.tolerance))
    throw Error("check_layer: " + what + ": gradient of " + report.worst + " is off by " + std::to_string(report.error) + " of its largest element (tolerance " +
                std::to_string(options.tolerance) + ")");
}

}  // namespace detail

/// Central differences of Σ output · w for random w against backward, on one rank in double. `make(context)` builds the layer
/// for inputs [shape]. Throws Error naming the tensor whose gradient is wrong.
template <class Make>
CheckReport check_layer(Make&& make, const Shape& shape, const CheckOptions& options = {}) {
  detail::Device device;
  const detail::Root context(device, detail::environment(options, shape));
  auto layer = make(context);
  auto values = detail::numbers(key_of(options.seed, 5), shape.size());
  const auto input = [&] { return detail::tensor_of<Tensor<double, detail::Exec>>(device, shape, values); };
  const auto base = detail::evaluate(layer, context, input(), true);
  CheckReport report;
  // `element(i)` is a reference to what is varied.
  const auto compare = [&](const std::string& name, const std::vector<double>& gradient, auto&& nudge) {
    double scale = 0;
    for (const double value : gradient) scale = std::max(scale, std::abs(value));
    const std::size_t tries = std::min(options.samples, gradient.size());
    for (std::size_t k = 0; k < tries; ++k) {
      const std::size_t i = tries == gradient.size() ? k : key_of(options.seed, site_of(name), k) % gradient.size();
      nudge(i, options.step);
      const double up = detail::evaluate(layer, context, input(), false).value;
      nudge(i, -2 * options.step);
      const double down = detail::evaluate(layer, context, input(), false).value;
      nudge(i, options.step);
      report.add(name, std::abs((up - down) / (2 * options.step) - gradient[i]), scale);
    }
  };
  compare("the input", base.input_gradient, [&](std::size_t i, double by) { values[i] += by; });
  layer.for_each_parameter([&](auto& parameter) {
    ParameterState& state = parameter.state();
    compare(state.name, base.gradients.at(state.name), [&](std::size_t i, double by) {
      Tensor<double, detail::Exec> whole(device, state.local, state.value);
      auto host = copy_to_host(whole);
      host[i] += by;
      copy_from_host(whole, std::span<const double>(host));
    });
  });
  detail::require(report, options, "finite differences");
  return report;
}

/// The layer on `ranks` thread ranks of axis A against one rank: output, input gradient, every parameter gradient, in double.
/// The input is Invariant on A, or Stream if given; the output is brought back to that, as Residual would.
template <Axis A, class Stream = Invariant<A>, class Make>
CheckReport check_layer_on(int ranks, Make&& make, const Shape& shape, CheckOptions options = {}) {
  options.tolerance = std::min(options.tolerance, 1e-11);
  const auto values = detail::numbers(key_of(options.seed, 5), shape.size());
  std::vector<double> output, input_gradient;
  std::map<std::string, std::vector<double>> gradients;
  {
    detail::Device device;
    const detail::Root context(device, detail::environment(options, shape));
    auto layer = make(context);
    const auto evaluation = detail::evaluate(layer, context, detail::tensor_of<Tensor<double, detail::Exec>>(device, shape, values), true);
    output = copy_to_host(layer.forward(context, detail::tensor_of<Tensor<double, detail::Exec>>(device, shape, values)).output);
    input_gradient = evaluation.input_gradient;
    gradients = evaluation.gradients;
  }
  CheckReport report;
  std::mutex mutex;
  if (detail::Exec().concurrency() < ranks)
    throw UsageError("check_layer_on: " + std::to_string(ranks) + " ranks need as many threads of Kokkos, which has " + std::to_string(detail::Exec().concurrency()) +
                     ": initialise it with more, or RunOptions{.threads_per_rank = " + std::to_string(ranks) + "}");
  // Instances of their own: ranks must not share one.
  const auto instances = Kokkos::Experimental::partition_space(detail::Exec(), std::vector<int>(static_cast<std::size_t>(ranks), 1));
  comm::run_threads(ranks, [&](const Communicator& comm) {
    detail::Device device(instances[static_cast<std::size_t>(comm.rank())]);
    const auto context = detail::Root(device, detail::environment(options, shape)).with<Stream>(A{}, comm);
    auto layer = make(context);
    using X = Tensor<double, detail::Exec, Invariant<A>>;
    const auto x = to<Stream>(context, detail::tensor_of<X>(device, shape, values));
    auto step = layer.forward(context, x);
    using Y = decltype(step.output);
    const auto home = to_layout_of<X>(context, step.output);
    // The gradient of the whole output, as the layer's own output lies.
    const auto weights = detail::numbers(key_of(77), home.size());
    const auto g = to_layout_of<gradient_t<Y>>(context, detail::tensor_of<X>(device, home.shape(), weights));
    layer.for_each_parameter([](auto& parameter) { parameter.state().fresh = true; });
    const auto dx = to<Invariant<A>>(context, weft::detail::input_gradient_of<decltype(x)>(weft::backward(layer, context, std::move(step.saved), g)));
    layer.for_each_parameter([&](auto& parameter) {
      ParameterState& state = parameter.state();
      if (!(state.pending & axis_bit<A>)) return;
      comm.all_reduce(std::span<double>(static_cast<double*>(state.gradient.get()), state.size()));
      state.pending = 0;
    });
    std::lock_guard lock(mutex);
    const auto compare = [&](const std::string& name, const std::vector<double>& mine, const std::vector<double>& expected) {
      double scale = 0;
      for (const double value : expected) scale = std::max(scale, std::abs(value));
      for (std::size_t i = 0; i < expected.size(); ++i) report.add(name, std::abs(mine.at(i) - expected[i]), scale);
    };
    compare("the output", copy_to_host(home), output);
    compare("the input", copy_to_host(dx), input_gradient);
    layer.for_each_parameter([&](auto& parameter) {
      ParameterState& state = parameter.state();
      const auto& expected = gradients.at(state.name);
      double scale = 0;
      for (const double value : expected) scale = std::max(scale, std::abs(value));
      const auto* data = static_cast<const double*>(state.gradient.get());
      for (const Run& run : state.runs)
        for (std::size_t i = 0; i < run.length; ++i) report.add(state.name, std::abs(data[run.local + i] - expected[run.global + i]), scale);
    });
  });
  detail::require(report, options, std::string(A::name) + "(" + std::to_string(ranks) + ") against one rank");
  return report;
}

}  // namespace weft::testing
