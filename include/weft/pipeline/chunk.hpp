// SPDX-License-Identifier: Apache-2.0
#pragma once
// One contiguous range of a model's stack: front, some blocks, back, any of which may be missing here. A pipeline's rank holds
// one or several chunks (layer/model.hpp has the model concept).

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/layer/context.hpp>
#include <weft/layer/layer.hpp>
#include <weft/layer/model.hpp>
#include <weft/layer/registry.hpp>

namespace weft::detail {

template <class Model>
struct Chunk {
  int stage = 0;
  std::optional<typename Model::Front> front;
  std::vector<typename Model::Block> blocks;
  std::optional<typename Model::Back> back;
  std::vector<Unit> units;    ///< front, blocks, back: every parameter that each uses
  std::vector<Unit> owned;    ///< the same, each parameter in the first unit that uses it: its gradient is ready with that unit
  std::vector<Unit> trained;  ///< of `owned`, those parameters that are trainable
};

/// All units of a model (0: front, 1 and on: blocks, last: back), without memory for the values of their parameters.
template <class Model>
struct WholeModel {
  std::optional<typename Model::Front> front;
  std::vector<typename Model::Block> blocks;
  std::optional<typename Model::Back> back;
  std::vector<std::vector<ParameterState*>> visited;  // by unit
  std::vector<Registered> parameters;
  std::uint64_t print = 0;  // a hash of the whole model

  /// `here(unit)`: true if this rank keeps the unit. `buffers` receives the values that the layers of these units keep from step
  /// to step.
  template <class Context, class Here>
  WEFT_COLD WholeModel(const Context& context, const typename Model::Config& config,
                       std::vector<std::shared_ptr<StepBuffer>>& buffers, const Here& here) {
    Registry registry;
    Context building = context;
    building.engine.registry = &registry;
    const std::size_t count = Model::blocks(config);
    blocks.reserve(count);
    const auto unit = [&](const std::string& name, const auto& make) {
      registry.begin(name);
      building.engine.buffers = here(visited.size()) ? &buffers : nullptr;
      std::vector<ParameterState*> seen;
      const auto see = [&]<class P>(P& parameter) {
        if constexpr (!requires { parameter.state(); }) require_parameter<P>();
        else if (std::find(seen.begin(), seen.end(), &parameter.state()) == seen.end()) seen.push_back(&parameter.state());
      };
      visit_parameters(make(), see);
      registry.end(visited.size(), seen);
      visited.push_back(std::move(seen));
    };
    unit(
        "front", [&]() -> auto& { return front.emplace(Model::make_front(building, config)), *front; });
    for (std::size_t block = 0; block < count; ++block)
      unit(
          joined({"block ", block}), [&]() -> auto& {
            return blocks.push_back(Model::make_block(building, config, block)), blocks.back();
          });
    unit(
        "back", [&]() -> auto& { return back.emplace(Model::make_back(building, config, &*front)), *back; });
    print = registry.print();
    parameters = registry.finish();
  }
};

}  // namespace weft::detail
