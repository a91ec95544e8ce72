// SPDX-License-Identifier: Apache-2.0
#pragma once
// The forward of a model for one caller: of a Module on its inputs, or of a stack on its first fields, unit after unit, up to the
// prediction of the last one. The values between units keep their types, so a stack's call allocates no more than a Module's.
//
//   Units<Net, Context> units(whole);                 // a WholeModel of Net
//   const auto y = units(context, samples, x...);     // y = forward(x...)

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/forward.hpp>
#include <weft/autograd/model_kind.hpp>
#include <weft/context/context.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/model_call.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/predictions.hpp>
#include <weft/pipeline/typed_unit.hpp>
#include <weft/pipeline/unit_outputs.hpp>

namespace weft::inference::detail {

/// A model whose predictions are a function of arrays: one Module, or a stack on a batch of fields.
template <class M>
concept FunctionOfArrays = weft::detail::ModuleModel<M> ||
    (weft::detail::StackModel<M> && !std::is_same_v<weft::detail::batch_of_t<M>, TokenBatch>);

/// Of a Module. Context: any context of the model.
template <class M, class Context>
class Units {
  using Step = weft::detail::step_context_t<Context>;
  using Whole = weft::detail::WholeModel<typename Context::execution_space>;

 public:
  using Fields = typename weft::detail::inputs_of_t<M, Context>::First;
  static_assert(!weft::detail::PredictsVariables<M, Step, Fields>,
                "weft: inference::Model calls forward, and this model has another function for its predictions, predict(batch): "
                "use model.predict, or compute the predictions in forward");

  Units(typename Context::device_type&, const Whole& whole)
      : module_(&weft::detail::module_of<M, Context>(*whole.units.front().layer)) {}
  template <class... X>
  auto operator()(const Step& context, std::size_t, X&&... x) {
    const auto input = weft::detail::as_one_input(std::forward<X>(x)...);
    return weft::forward(*module_, context, input).output;
  }

 private:
  M* module_;
};

template <class M, class Context>
requires weft::detail::StackModel<M>
class Units<M, Context> {
  using Step = weft::detail::step_context_t<Context>;
  using Whole = weft::detail::WholeModel<typename Context::execution_space>;
  using All = typename weft::detail::ModelTypes<M, Context>::Units;
  static constexpr std::size_t entries = std::tuple_size_v<All>;
  static_assert(entries > 1,
                "weft: inference::Model takes a stack of two units or more: the last one has a function for the predictions");

 public:
  using Fields = typename weft::detail::inputs_of_t<M, Context>::First;

  Units(typename Context::device_type& device, const Whole& whole) : whole_(&whole), fields_(device) {}
  template <class... X>
  auto operator()(const Step& context, std::size_t samples, X&&... x) {
    fields_.put(samples, std::forward<X>(x)...);
    auto y = after<1>(context, 1, weft::forward(layer<0>(0), context, fields_).output);
    fields_.put(0);  // keeps no memory of the caller's
    return y;
  }

 private:
  template <std::size_t entry>
  const auto& layer(std::size_t unit) const {
    return weft::detail::layer_of<std::tuple_element_t<entry, All>, Context>(*whole_->units[unit].layer);
  }
  // The prediction for the output of the entries before `entry`, the first of whose units has the number `unit`.
  template <std::size_t entry, class X>
  auto after(const Step& context, std::size_t unit, X x) const {
    using U = std::tuple_element_t<entry, All>;
    if constexpr (entry + 1 == entries) {
      return weft::detail::predict_of<U>(layer<entry>(unit), context, x, [this] { return fields_; });
    } else if constexpr (std::is_same_v<X, std::remove_cvref_t<decltype(weft::forward(layer<entry>(unit), context, x).output)>>) {
      const std::size_t end = unit + whole_->entries[entry];
      for (; unit < end; ++unit) x = weft::forward(layer<entry>(unit), context, x).output;
      return after<entry + 1>(context, end, std::move(x));
    } else {
      return after<entry + 1>(context, unit + 1, weft::forward(layer<entry>(unit), context, x).output);
    }
  }

  const Whole* whole_;
  Fields fields_;
};

}  // namespace weft::inference::detail
