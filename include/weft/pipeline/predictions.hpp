// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model's predictions for a batch, on the host of every rank: the outputs of its last unit (or of a Module's forward), gathered
// from the ranks that hold parts of them.
//
//   const Prediction scores = model.predict(batch, Gather::whole);   // scores.shape {samples, classes}
//   const Prediction part = model.predict(batch, Gather::piece);     // of fields that dx cuts: {samples, channels, rows / dx}

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/context/global_index.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/pipeline/logits.hpp>
#include <weft/pipeline/model_batch.hpp>
#include <weft/pipeline/own_loop.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/pipeline/typed_unit.hpp>
#include <weft/pipeline/unit_outputs.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

/// Outputs of a model, row-major, in double. Dim 0 is the samples in batch order (or a fixed number of rows per sample, if the
/// model returns those).
struct Prediction {
  Shape shape;
  std::vector<double> values;
};
/// The part of the predictions that each rank gets.
enum class Gather {
  share,  ///< the samples of this rank's share
  whole,  ///< the global batch
  piece,  ///< the samples of this rank's share, and of each the piece that domain axes (dx, dy, dz) leave on this rank
};

namespace detail {

/// The last unit's outputs for a hidden value. `inputs()` returns the batch's inputs; it is called only if the unit's predict
/// takes them, because a batch may lack them.
template <class Last, class Context, class Inputs>
auto predict_of(const typename Last::Layer& layer, const Context& context, const typename Last::Input& x, Inputs&& inputs) {
  using L = typename Last::Layer;
  using X = typename Last::Input;
  using I = typename Last::BatchInputs::Last;
  if constexpr (PredictsParts<L, Context, I, false, X>::value) {
    return weft::forward(PredictOf<L>(layer), context, x).output;
  } else if constexpr (PredictsParts<L, Context, I, true, X>::value) {
    return weft::forward(PredictOf<L>(layer), context, x, inputs()).output;
  } else if constexpr (PredictsTensors<L, Context, X>) {
    return layer.predict(context, x);
  } else if constexpr (PredictsTensors<L, Context, X, I>) {
    return layer.predict(context, x, inputs());
  } else if constexpr (LogitsOfTensors<L, Context, X> || LogitsOfVariables<L, Context, X>) {
    return logits_of(layer, context, x);
  } else {
    static_assert(std::is_void_v<L>,
                  "weft: predict of a model whose last unit has only a loss: write `auto predict(const auto& x) const` in it "
                  "(in a layer that is no Module `auto predict(const auto& context, const auto& x) const`), which returns the "
                  "predictions that its loss compares; see Last in this function's template arguments");
    return Tensor<double, typename Context::execution_space>(context.device(), {1});
  }
}
/// The outputs of a Module for a batch.
template <class Model, class Context, class Fields>
auto predict_of_module(const Model& model, const Context& context, const Fields& fields) {
  if constexpr (PredictsVariables<Model, Context, Fields>) {
    return weft::forward(PredictOf<Model>(model), context, fields).output;
  } else {
    const auto input = first_fields<Model, Context>(fields);
    return weft::forward(model, context, input).output;
  }
}

std::vector<std::uint64_t> extents_of(const Shape& shape);
/// The same extents, each dim of which is even.
Shape without_cuts(const Shape& shape);

template <class P>
inline constexpr bool is_domain_piece = is_domain_axis<typename P::axis>&& kind_of<P> == Kind::shard;
/// Gathers the pieces along a dim, of any extents, in the order of the ranks. Dim 0 has the rows of `samples` samples, whose
/// pieces are joined one by one. Throws ShapeError if another extent differs.
void gather_pieces(const Communicator& ranks, std::string_view axis, std::size_t dim, std::size_t samples, Shape& shape,
                   std::vector<double>& values);
template <class Context, class T, class E>
void gather_domain(const Context&, std::type_identity<Tensor<T, E>>, Shape&, std::vector<double>&) {}
template <class Context, class T, class E, class P, class... R>
void gather_domain(const Context& context, std::type_identity<Tensor<T, E, P, R...>>, Shape& shape, std::vector<double>& values) {
  using A = typename P::axis;
  gather_domain(context, std::type_identity<Tensor<T, E, R...>>(), shape, values);  // later axes cut the pieces of earlier ones
  if constexpr (Context::has(A{}) && is_domain_piece<P>) {
    const std::size_t length = std::max<std::size_t>(1, sequence_length(context.env));
    gather_pieces(context.comm(A{}), A::name, shard_dim<P>, context.env.rows / length, shape, values);
  }
}

// Gathers the parts that the ranks of one share hold. Samples of other shares, rows that cp cuts and pieces of a domain are not
// gathered here. The last argument lists the placements that remain to be handled.
template <class Context, class Y, class T, class E>
auto bring_all(const Context&, const Y& y, std::type_identity<Tensor<T, E>>) {
  return y;
}
template <class Context, class Y, class T, class E, class P, class... R>
auto bring_all(const Context& context, const Y& y, std::type_identity<Tensor<T, E, P, R...>>) {
  using A = typename P::axis;
  constexpr std::type_identity<Tensor<T, E, R...>> rest;
  if constexpr (is_data_axis<A> || std::is_same_v<A, cp> || is_domain_piece<P> || kind_of<P> == Kind::invariant ||
                kind_of<P> == Kind::replicated)
    return bring_all(context, y, rest);
  else return bring_all(context, to<Invariant<A>>(context, y), rest);
}
template <class X>
inline constexpr bool samples_first = false;
template <class T, class E, class... P>
inline constexpr bool samples_first<Tensor<T, E, P...>> = ((!is_data_axis<typename P::axis> || shard_dim<P> == 0) && ...) &&
                                                          ((!std::is_same_v<typename P::axis, cp> || shard_dim<P> == 0 ||
                                                            is_whole<P>)&&...);

/// Appends the outputs of one micro-batch to a prediction.
template <class Context, class Y>
void append_outputs(const Context& context, const Y& given, Gather gather, Prediction& all) {
  static_assert(AnyTensor<Y>,
                "weft: predict gives one tensor, and this model's outputs are something else: return the one that is asked for");
  if constexpr (AnyTensor<Y>) {
    static_assert(
        samples_first<Y>,
        "weft: predict gives [samples, ...]: these outputs are not cut by samples as the batch is (a mean over the batch?)");
    // A padded dim (a vocabulary) keeps its padding at the end of each row.
    using T = typename Y::value_type;
    const std::size_t length = detail::sequence_length(context.env);
    if (length == 0 || given.shape().rank() == 0 || given.shape()[0] * length != context.env.rows)
      require_rows_in_order<Y>(context);  // whole samples have no order of positions
    Y plain = view_of<Y>(given, without_cuts(given.shape()));
    plain.mark_summed(given.summed());
    const auto y = bring_all(context, plain, std::type_identity<Y>());
    std::vector<double> host;
    host.reserve(y.size());
    for (const auto value : copy_to_host(y)) host.push_back(double(accumulate_t<T>(value)));
    Shape shape = y.shape();
    if (gather != Gather::piece) gather_domain(context, std::type_identity<std::remove_const_t<decltype(y)>>(), shape, host);
    std::size_t rows = shape[0];
    const std::size_t width = rows == 0 ? 0 : shape.size() / rows, before = all.values.size();
    if constexpr (Context::has(cp{}) && shard_dim<placement_t<Y, cp>> == 0) {
      const std::size_t each = rows_of_sample(context.env, rows * context.size(cp{}));
      const Zigzag cut{detail::sequence_length(context.env) * each, context.size(cp{}), context.rank(cp{})};
      const std::size_t here = std::exchange(rows, rows * context.size(cp{}));
      all.values.resize(before + rows * width);
      for (std::size_t row = 0; row < here; ++row)
        for (std::size_t i = 0; i < width; ++i) all.values[before + cut.row(row) * width + i] = host[row * width + i];
      context.comm(cp{}).all_reduce(std::span<double>(all.values).subspan(before));  // zero in the rows of other ranks
    } else {
      if (before == 0) all.values = std::move(host);
      else all.values.insert(all.values.end(), host.begin(), host.end());
    }
    const std::size_t samples = rows + (before == 0 ? 0 : all.shape[0]);
    all.shape = shape;
    all.shape[0] = samples;
  }
}

/// Appends the outputs of the model's last unit for one micro-batch, given its hidden input, to a prediction.
using PredictUnit = void (*)(StackUnit<StepBatch::Exec>& unit, const UnitCall& call, AnyValue& hidden, Gather gather,
                             Prediction& all);

template <class Model, class Context>
void predict_unit(StackUnit<StepBatch::Exec>& unit, const UnitCall& call, [[maybe_unused]] AnyValue& hidden, Gather gather,
                  Prediction& all) {
  const Context& context = *static_cast<const Context*>(call.context);
  const auto& inputs = *static_cast<const inputs_of_t<Model, Context>*>(call.inputs);
  if constexpr (ModuleModel<Model>) {
    append_outputs(context, predict_of_module(module_of<Model, Context>(unit), context, inputs.first(call.micro)), gather, all);
  } else {
    using Last = typename ModelTypes<Model, Context>::Last;
    const auto last = [&] { return inputs.last(call.micro); };
    append_outputs(context,
                   predict_of<Last>(layer_of<Last, Context>(unit), context, hidden.template as<typename Last::Input>(), last),
                   gather, all);
  }
}

/// The predictions for a batch. `columns`: of a vocabulary without its padding; 0: all.
Prediction predict_batch(Stages& stages, StepBatch& batch, PredictUnit unit, std::size_t columns, Gather gather);

template <class S, class Context>
Prediction predict(S& stages, const Context& context, const typename S::Batch& given, Gather gather) {
  using Model = typename S::model_type;
  if constexpr (is_usable<Model, Context>() || is_open<Model, Context>) {
    ModelBatch<Model, Context> batch(context, stages.config(), given);
    std::size_t columns = 0;
    if constexpr (S::has_tokens && requires { Model::vocabulary(stages.config()); }) columns = Model::vocabulary(stages.config());
    return predict_batch(stages, batch, &predict_unit<Model, step_context_t<Context>>, columns, gather);
  } else {
    return {};
  }
}

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/pipeline/predictions_impl.hpp>
#endif
