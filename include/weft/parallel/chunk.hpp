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
//     static Back make_back(const auto& context, const Config&, Front* here);  // `here`: the front, if this rank has it
//   };

#include <algorithm>
#include <string>
#include <vector>

#include <weft/core/list.hpp>
#include <weft/core/owner.hpp>
#include <weft/nn/context.hpp>
#include <weft/nn/model.hpp>

namespace weft {

template <class Model>
struct Chunk {
  int stage = 0;
  Maybe<typename Model::Front> front;
  List<typename Model::Block> blocks;
  Maybe<typename Model::Back> back;
  List<Unit> units;  ///< front, blocks, back: every parameter they use
  List<Unit> owned;  ///< the same, each parameter in the first unit that uses it: its gradient is ready with that one

  /// Stage `stage` of `stages`, on the context of the rank that holds it. `seen` has the parameters of earlier chunks.
  template <class Context>
  WEFT_COLD Chunk(const Context& context, const typename Model::Config& config, int stage_index, int stages, typename Model::Front* front_here, List<ParameterState*>& seen)
      : stage(stage_index) {
    const std::size_t all = Model::blocks(config), s = static_cast<std::size_t>(stage), n = static_cast<std::size_t>(stages);
    if (stage == 0) front.emplace(Model::make_front(context, config));
    for (std::size_t block = all * s / n; block < all * (s + 1) / n; ++block) blocks.push_back(Model::make_block(context, config, block));
    if (stage == stages - 1) back.emplace(Model::make_back(context, config, front ? &*front : front_here));
    if (front) add_unit(*front, "front", seen);
    for (std::size_t i = 0; i < blocks.size(); ++i) add_unit(blocks[i], joined({"block ", all * s / n + i}), seen);
    if (back) add_unit(*back, "back", seen);
  }

  bool uses(const ParameterState* state) const {
    for (const Unit& unit : units)
      if (unit.uses(state)) return true;
    return false;
  }

 private:
  template <class Layer>
  WEFT_COLD void add_unit(Layer& layer, const std::string& name, List<ParameterState*>& seen) {
    units.push_back({name, {}});
    owned.push_back({name, {}});
    layer.for_each_parameter([&](auto& parameter) { add_parameter(parameter.state(), seen); });
  }
  WEFT_COLD void add_parameter(ParameterState& state, List<ParameterState*>& seen) {
    units.back().parameters.push_back(&state);
    if (contains(seen, &state)) return;
    seen.push_back(&state);
    owned.back().parameters.push_back(&state);
  }
};

}  // namespace weft
