// SPDX-License-Identifier: Apache-2.0
#pragma once
// One whole parameter, or its gradient, by name, wherever the ranks of a model keep its pieces: for inspecting a model, for tests
// and for programs that export weights.
//
//   const std::vector<double> gain = model.parameter("blocks.0.norm.weight"), d_gain = model.gradient("blocks.0.norm.weight");

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/philox.hpp>
#include <weft/engine/name_pattern.hpp>
#include <weft/engine/parameter_values.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// The elements [global.size()] in double, row-major, the same on every rank of `everyone`. `gradient`: those of the gradient in
/// the last training step, divided by `loss_scale`; zero if nothing was added or the parameter is frozen. Each element comes from
/// the one rank that counts it.
template <class Exec, class Stages>
std::vector<double> whole_parameter(Device<Exec>& device, const Communicator& everyone, Stages& stages, std::string_view name,
                                    bool gradient, double loss_scale) {
  ParameterState* mine = nullptr;
  stages.for_each_state([&](ParameterState& state) {
    if (state.name() == name) mine = &state;
  });
  const std::uint64_t site = site_of(name);
  const bool frozen = mine != nullptr && gradient && !mine->trainable();
  const bool missing = mine != nullptr && gradient && !frozen && !mine->gradient() && mine->kept() != 0;
  // ~facts[3] becomes the smallest site: it is the largest one only if all ranks read the same parameter.
  std::uint64_t facts[] = {stages.parameter_size(name), missing, site, ~site};
  everyone.all_reduce(std::span(facts), Reduction::max);
  if (facts[2] != ~facts[3])
    throw_error<UsageError>(
        {"a parameter is read by all ranks together, but one asks for ", name, " and another for another one"});
  if (facts[0] == 0)
    throw_error<UsageError>(
        {"the model has no parameter ", name, "; near it are ", text_of_names_near(name, stages.parameter_names())});
  if (facts[1]) throw_error<UsageError>({"the gradient of ", name, " before any train_step"});
  std::vector<double> whole(facts[0]);
  if (mine && mine->kept() != 0 && !frozen) {
    const DataType type = gradient ? mine->gradient_type() : mine->type();
    const Buffer kept = gradient ? gradient_of(device, *mine) : value_of(device, *mine);
    dispatch_real(type, [&](auto zero) {
      using T = decltype(zero);
      const std::vector<T> host = copy_to_host(Tensor<T, Exec>(device, {mine->kept()}, kept));
      for (const auto& run : mine->runs())
        for (std::size_t i = 0; mine->counted() && run.owned && i < run.length; ++i)
          whole[run.global + i] = double(accumulate_t<T>(host[run.local + i])) / loss_scale;
    });
  }
  everyone.all_reduce(whole);
  return whole;
}

}  // namespace weft::detail
