// SPDX-License-Identifier: Apache-2.0
#pragma once
// One contiguous range of a model's units. A pipeline's rank holds one or several chunks. Every rank builds all units, without
// memory for the values of their parameters, and keeps those of its chunks.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/model_kind.hpp>
#include <weft/autograd/stack.hpp>
#include <weft/context/context.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/child_calls.hpp>
#include <weft/engine/registry.hpp>
#include <weft/pipeline/stack_unit.hpp>

namespace weft::detail {

/// The parts of a unit's backward that the trainable parameters require. Computed for the whole model, so it is the same on every
/// rank.
struct UnitBackward {
  bool runs = true;   ///< the unit, or one before it, uses a trainable parameter
  bool input = true;  ///< a unit before it does: the gradient of its input is needed
};

template <class Exec>
struct Chunk {
  int stage = 0;
  bool first = false, last = false;  ///< true if the chunk holds the model's first unit, and its last
  std::vector<std::unique_ptr<StackUnit<Exec>>> layers;
  std::vector<Unit> units;    ///< every parameter that each layer uses
  std::vector<Unit> owned;    ///< the same, each parameter in the first unit that uses it: its gradient is ready with that unit
  std::vector<Unit> trained;  ///< the trainable parameters of `owned`
  std::vector<UnitBackward> backwards;  ///< by unit
  /// Set if the model is a Module. `owned` and `trained` are then its parts, if a wrapper gathers them one by one.
  std::unique_ptr<ChildCalls> calls;

  /// True if this chunk sends gradients to the chunk before it, and if it receives them.
  bool sends_gradients() const { return backwards.front().input; }
  bool receives_gradients() const { return backwards.back().runs; }
};

/// All units of a model under construction.
template <class Exec>
struct WholeModel {
  /// One unit, and the parameters that it uses.
  struct Built {
    std::string name;
    std::unique_ptr<StackUnit<Exec>> layer;
    std::vector<ParameterState*> used;
    std::vector<std::shared_ptr<StepBuffer>> buffers;  // the values that its layers keep from step to step
    double cost = 0;                                   // cost reported by the layer; 0 if none
  };
  std::vector<Built> units;
  std::vector<Registered> parameters;
  std::uint64_t print = 0;  // a hash of the whole model
};

/// Builds the units of Model under Context.
template <class Model, class Context>
class ModelBuilder {
  using Exec = typename Context::execution_space;
  using Config = typename Model::Config;

 public:
  WEFT_COLD ModelBuilder(const Context& context, const Config& config) : building_(context) {
    building_.engine.registry = &registry_;
    building_.engine.buffers = &buffers_;
    if constexpr (LossModule<Model>) {
      using Units = typename ModelTypes<Model, Context>::Units;
      add<StackUnitOf<std::tuple_element_t<0, Units>, Context>>("model", [&] { return LossOfModule<Model>(building_, config); });
    } else if constexpr (ModuleModel<Model>) {
      add<HeldUnit<Model, Exec>>("model", [&] { return Model(building_, config); });
    } else if constexpr (ModelRecipe<Model>) {
      using Units = typename ModelTypes<Model, Context>::Units;
      auto& front = add<StackUnitOf<std::tuple_element_t<0, Units>, Context>>(
          "front", [&] { return Model::make_front(building_, config); });
      const std::size_t count = Model::blocks(config);
      for (std::size_t block = 0; block < count; ++block)
        add<StackUnitOf<std::tuple_element_t<1, Units>, Context>>(joined({"block ", block}),
                                                                  [&] { return Model::make_block(building_, config, block); });
      add<StackUnitOf<std::tuple_element_t<2, Units>, Context>>(
          "back", [&] { return Model::make_back(building_, config, &front.layer); });
    } else {
      auto stack = Model::stack(static_cast<const Context&>(building_), config);
      add_all(stack, std::make_index_sequence<std::tuple_size_v<typename ModelTypes<Model, Context>::Units>>());
    }
    whole_.print = registry_.print();
    whole_.parameters = registry_.used_parameters();
  }
  WholeModel<Exec> take() { return std::move(whole_); }

 private:
  template <class... Make, std::size_t... I>
  void add_all(Stack<Make...>& stack, std::index_sequence<I...>) {
    (add_segment<StackUnitOf<std::tuple_element_t<I, typename ModelTypes<Model, Context>::Units>, Context>>(
         std::get<I>(stack.makes)),
     ...);
  }
  template <class U, class Make>
  void add_segment(Make& make) {
    if constexpr (is_repeated<Make>) {
      for (std::size_t i = 0; i < make.count; ++i) add<U>(next_name(), [&] { return make.make(i); });
    } else {
      add<U>(next_name(), make);
    }
  }
  std::string next_name() const { return joined({"unit ", whole_.units.size()}); }

  template <class U, class Make>
  U& add(std::string name, Make&& make) {
    registry_.begin_unit(name);
    auto unit = std::make_unique<U>(make);
    U& made = *unit;
    std::vector<ParameterState*> used = registry_.end_unit(whole_.units.size());
    double cost = 0;
    if constexpr (requires { double(made.layer.cost()); }) cost = double(made.layer.cost());
    whole_.units.push_back({std::move(name), std::move(unit), std::move(used), std::exchange(buffers_, {}), cost});
    return made;
  }

  Context building_;
  Registry registry_;
  std::vector<std::shared_ptr<StepBuffer>> buffers_;
  WholeModel<Exec> whole_;
};

}  // namespace weft::detail
