// SPDX-License-Identifier: Apache-2.0
#pragma once
// A chunk: one contiguous range of a model's stack, front, some blocks, back, of which any may be missing here. A model is a
// recipe:
//
//   struct Model {
//     using scalar = float;
//     using Config, Front, Block, Back;
//     static std::size_t blocks(const Config&);
//     static void check(const Config&, const ModelDegrees&);                 // LayoutError, before anything is built
//     static Front make_front(const auto& context, const Config&);
//     static Block make_block(const auto& context, const Config&, std::size_t index);
//     static Back make_back(const auto& context, const Config&, Front* front);
//   };
//
// Every rank makes all of them, in this order, and keeps what its stages need: a parameter that several parts share is one handle, whose
// copies they hold, on whichever ranks they end up.

#include <algorithm>
#include <string>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/core/list.hpp>
#include <weft/core/owner.hpp>
#include <weft/layer/context.hpp>
#include <weft/parallel/model_options.hpp>
#include <weft/layer/registry.hpp>

namespace weft::detail {

template <class Model>
struct Chunk {
  int stage = 0;
  Maybe<typename Model::Front> front;
  List<typename Model::Block> blocks;
  Maybe<typename Model::Back> back;
  List<Unit> units;  ///< front, blocks, back: every parameter they use
  List<Unit> owned;  ///< the same, each parameter in the first unit that uses it: its gradient is ready with that one
};

/// All units of a model (0: front, 1 and on: blocks, last: back) without room for their parameters' values.
template <class Model>
struct WholeModel {
  Maybe<typename Model::Front> front;
  List<typename Model::Block> blocks;
  Maybe<typename Model::Back> back;
  List<List<ParameterState*>> visited;  // by unit
  List<Registered> parameters;
  std::uint64_t print = 0;  // of all that was made

  /// `here(unit)`: whether this rank keeps the unit, and what its layers keep from step to step.
  template <class Context, class Here>
  WEFT_COLD WholeModel(const Context& context, const typename Model::Config& config, List<std::shared_ptr<StepBuffer>>& buffers, const Here& here) {
    Registry registry;
    Context building = context;
    building.env.registry = &registry;
    const std::size_t count = Model::blocks(config);
    blocks.reserve(count);
    const auto unit = [&](const std::string& name, const auto& make) {
      registry.begin(name);
      building.env.buffers = here(visited.size()) ? &buffers : nullptr;
      List<ParameterState*> seen;
      make().for_each_parameter([&](auto& parameter) {
        if (!contains(seen, &parameter.state())) seen.push_back(&parameter.state());
      });
      registry.end(visited.size(), seen);
      visited.push_back(std::move(seen));
    };
    unit("front", [&]() -> auto& { return front.emplace(Model::make_front(building, config)), *front; });
    for (std::size_t block = 0; block < count; ++block)
      unit(joined({"block ", block}), [&]() -> auto& { return blocks.push_back(Model::make_block(building, config, block)), blocks.back(); });
    unit("back", [&]() -> auto& { return back.emplace(Model::make_back(building, config, &*front)), *back; });
    print = registry.print();
    parameters = registry.finish();
  }
};

}  // namespace weft::detail
