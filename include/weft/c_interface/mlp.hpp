// SPDX-License-Identifier: Apache-2.0
#pragma once
// A multilayer perceptron that C and Fortran create without a model of the program: "mlp" with the options inputs, outputs,
// hidden (widths separated by commas) and activation (tanh, relu, silu, gelu), the fields "input" [inputs] and "target"
// [outputs], and the mean squared error as loss.

#include <cstddef>
#include <string>
#include <vector>

#include <weft/autograd/module.hpp>
#include <weft/c_interface/models.hpp>
#include <weft/nn/linear.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>

namespace weft::c_interface {

/// The fields "input" and "target" of Mlp's batch, [samples, inputs] and [samples, outputs].
inline constexpr data::Field<"input", float> input;
inline constexpr data::Field<"target", float> target;

/// A multilayer perceptron with a mean squared error, whose sizes are options at run time.
struct Mlp : Module<Mlp> {
  using scalar = float;
  using Batch = FieldBatch<c_interface::input, c_interface::target>;
  enum class Activation { tanh, relu, silu, gelu };
  struct Config {
    std::size_t inputs = 1, outputs = 1;
    std::vector<std::size_t> hidden = {64};
    Activation activation = Activation::tanh;
  };

  Mlp(const auto& context, const Config& config) : activation(config.activation) {
    std::size_t before = config.inputs;
    for (std::size_t i = 0; i <= config.hidden.size(); ++i) {
      const std::size_t width = i < config.hidden.size() ? config.hidden[i] : config.outputs;
      layers.emplace_back(context / ("layers." + std::to_string(i)), before, width);
      before = width;
    }
  }
  auto forward(const auto& x) const {
    auto y = layers.front()(x);
    for (std::size_t i = 1; i < layers.size(); ++i) y = layers[i](activated(y));
    return y;
  }
  auto loss(const auto& batch) const { return mse(forward(batch[c_interface::input]), batch[c_interface::target]); }

  Activation activation;
  std::vector<Linear<>> layers;

 private:
  auto activated(const auto& x) const {
    switch (activation) {
      case Activation::relu: return relu(x);
      case Activation::silu: return silu(x);
      case Activation::gelu: return gelu(x);
      default: return tanh(x);
    }
  }
};

namespace detail {

inline const Registered<Mlp> registered_mlp("mlp", [](const Options& options) {
  const std::string name = options.text("activation", "tanh");
  const std::string names[] = {"tanh", "relu", "silu", "gelu"};
  std::size_t which = 0;
  while (which < 4 && names[which] != name) ++which;
  if (which == 4)
    throw_error<UsageError>({"model mlp: there is no activation '", name, "'; there are tanh, relu, silu and gelu"});
  Mlp::Config config{.inputs = options.number<std::size_t>("inputs", 1),
                     .outputs = options.number<std::size_t>("outputs", 1),
                     .hidden = options.numbers<std::size_t>("hidden", {64}),
                     .activation = Mlp::Activation(which)};
  for (const std::size_t width : config.hidden)
    if (width == 0) throw_error<UsageError>({"model mlp: a hidden layer of width 0"});
  if (config.inputs == 0 || config.outputs == 0) throw_error<UsageError>({"model mlp: no inputs, or no outputs"});
  return config;
});

}  // namespace detail

}  // namespace weft::c_interface
