// SPDX-License-Identifier: Apache-2.0
#pragma once
// The construction of a model's units: a recipe's front, blocks and back, the units of a stack, or one Module.
//
//   WholeModel<Exec> whole = ModelBuilder<Model, Context>(constructor_context(context), config).take();

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/model_kind.hpp>
#include <weft/autograd/stack.hpp>
#include <weft/context/context.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/proof_parameters.hpp>
#include <weft/engine/registry.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/typed_unit.hpp>

namespace weft::detail {

/// Builds the units of Model under Context, any context of the model.
template <class Model, class Context>
class ModelBuilder {
  using Exec = typename Context::execution_space;
  using Config = typename Model::Config;
  // The same unit without a pipeline, with transports in one.
  template <class U>
  using Unit =
      std::conditional_t<Context::has(pp{}), PipelineUnit<U, step_context_t<Context>>, StackUnitOf<U, step_context_t<Context>>>;

 public:
  WEFT_COLD ModelBuilder(constructor_context_t<Context> context, const Config& config) : building_(std::move(context)) {
    building_.construction.registry = &registry_;
    building_.construction.buffers = &buffers_;
    if constexpr (LossModule<Model>) {
      using Units = typename ModelTypes<Model, Context>::Units;
      add<Unit<std::tuple_element_t<0, Units>>>("model", [&] { return LossOfModule<Model>(building_, config); });
    } else if constexpr (ModuleModel<Model>) {
      add<HeldUnit<Model, Exec>>("model", [&] { return Model(building_, config); });
    } else if constexpr (ModelRecipe<Model>) {
      using Units = typename ModelTypes<Model, Context>::Units;
      auto& front = add<Unit<std::tuple_element_t<0, Units>>>("front", [&] { return Model::make_front(building_, config); });
      const std::size_t count = Model::blocks(config);
      for (std::size_t block = 0; block < count; ++block)
        add<Unit<std::tuple_element_t<1, Units>>>(joined({"block ", block}),
                                                  [&] { return Model::make_block(building_, config, block); });
      add<Unit<std::tuple_element_t<2, Units>>>("back", [&] { return Model::make_back(building_, config, &front.layer); });
    } else {
      auto stack = Model::stack(std::as_const(building_), config);
      add_all(stack, std::make_index_sequence<std::tuple_size_v<typename ModelTypes<Model, Context>::Units>>());
    }
    whole_.print = registry_.print();
    if (const auto& sites = registry_.sites(); !sites.empty()) {
      const auto& [path, unit] = *sites.begin();
      whole_.draws = path.empty() ? unit : path;
    }
    whole_.parameters = registry_.used_parameters();
  }
  WholeModel<Exec> take() { return std::move(whole_); }

 private:
  template <class... Make, std::size_t... I>
  void add_all(Stack<Make...>& stack, std::index_sequence<I...>) {
    (add_segment<Unit<std::tuple_element_t<I, typename ModelTypes<Model, Context>::Units>>>(std::get<I>(stack.makes)), ...);
  }
  template <class U, class Make>
  void add_segment(Make& make) {
    whole_.entries.push_back(1);
    if constexpr (is_repeated<Make>) {
      whole_.entries.back() = make.count;
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
#ifdef WEFT_PROVE_IN_DOUBLE
    if constexpr (requires { made.proof_name; })
      made.proof_name = common_path(name, used), made.proof_number = int(whole_.units.size()) + 1;
#endif
    double cost = 0;
    if constexpr (requires { double(made.layer.cost()); }) cost = double(made.layer.cost());
    whole_.units.push_back({std::move(name), std::move(unit), std::move(used), std::exchange(buffers_, {}), cost});
    return made;
  }

  constructor_context_t<Context> building_;
  Registry registry_;
  std::vector<std::shared_ptr<StepBuffer>> buffers_;
  WholeModel<Exec> whole_;
};

}  // namespace weft::detail
