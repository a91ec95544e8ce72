// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model's predictions for a batch, on the host of every rank: the outputs of its last unit (or of a Module's forward), gathered
// from the ranks that hold parts of them.
//
//   const Prediction scores = model.predict(batch, Gather::whole);   // scores.shape {samples, classes}

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/context/global_index.hpp>
#include <weft/core/text.hpp>
#include <weft/mesh/zigzag.hpp>
#include <weft/pipeline/logits.hpp>
#include <weft/pipeline/model_aside.hpp>
#include <weft/pipeline/own_loop.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/pipeline/unit_outputs.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

/// Outputs of a model, row-major, in double. Dim 0 is the samples in batch order (or a fixed number of rows per sample, if the
/// model returns those).
struct Prediction {
  Shape shape;
  std::vector<double> values;
};
/// The samples of a prediction: the rank's share, or the global batch.
enum class Gather { share, whole };

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

/// A shape of these extents.
inline Shape shape_of_extents(std::span<const std::uint64_t> of) {
  switch (of.size()) {
    case 0: return {};
    case 1: return {of[0]};
    case 2: return {of[0], of[1]};
    case 3: return {of[0], of[1], of[2]};
    default: return {of[0], of[1], of[2], of[3]};
  }
}
inline std::vector<std::uint64_t> extents_of(const Shape& shape) {
  std::vector<std::uint64_t> all;
  for (std::size_t dim = 0; dim < shape.rank(); ++dim) all.push_back(shape[dim]);
  return all;
}

// Gathers the parts that the ranks of one share hold. Samples of other shares and rows that cp cuts are not gathered here. The
// last argument lists the placements that remain to be handled.
template <class Context, class Y, class T, class E>
auto bring_all(const Context&, const Y& y, std::type_identity<Tensor<T, E>>) {
  return y;
}
template <class Context, class Y, class T, class E, class P, class... R>
auto bring_all(const Context& context, const Y& y, std::type_identity<Tensor<T, E, P, R...>>) {
  using A = typename P::axis;
  constexpr std::type_identity<Tensor<T, E, R...>> rest;
  if constexpr (is_data_axis<A> || std::is_same_v<A, cp> || kind_of<P> == Kind::invariant || kind_of<P> == Kind::replicated)
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
void append_outputs(const Context& context, const Y& given, Prediction& all) {
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
    const Y plain(given.device(), shape_of_extents(extents_of(given.shape())), given.buffer(),
                  std::size_t(given.data() - static_cast<const T*>(given.buffer().get())));
    const auto y = bring_all(context, plain, std::type_identity<Y>());
    const auto host = copy_to_host(y);
    std::size_t rows = y.shape()[0];
    const std::size_t width = rows == 0 ? 0 : y.size() / rows, before = all.values.size();
    if constexpr (Context::has(cp{}) && shard_dim<placement_t<Y, cp>> == 0) {
      const std::size_t each = rows_of_sample(context.env, rows * context.size(cp{}));
      const Zigzag cut{detail::sequence_length(context.env) * each, context.size(cp{}), context.rank(cp{})};
      const std::size_t here = std::exchange(rows, rows * context.size(cp{}));
      all.values.resize(before + rows * width);
      for (std::size_t row = 0; row < here; ++row)
        for (std::size_t i = 0; i < width; ++i)
          all.values[before + cut.row(row) * width + i] = double(accumulate_t<T>(host[row * width + i]));
      context.comm(cp{}).all_reduce(std::span<double>(all.values).subspan(before));  // zero in the rows of other ranks
    } else {
      all.values.reserve(before + y.size());
      for (const auto value : host) all.values.push_back(double(accumulate_t<T>(value)));
    }
    const std::size_t samples = rows + (before == 0 ? 0 : all.shape[0]);
    all.shape = y.shape();
    all.shape[0] = samples;
  }
}

/// Gathers the predictions of all shares in the order of the global batch.
WEFT_COLD inline void gather_shares(const Communicator& ranks, std::size_t& first, Prediction& mine) {
  if (ranks.size() == 1) return;
  const std::size_t count = std::size_t(ranks.size());
  const std::vector<std::uint64_t> size{first, mine.shape.rank() == 0 ? 0 : mine.shape[0], mine.values.size()};
  std::vector<std::uint64_t> sizes(size.size() * count);
  ranks.all_gather(size, sizes);
  std::uint64_t most = 0;
  for (std::size_t rank = 0; rank < count; ++rank) most = std::max(most, sizes[rank * 3 + 2]);
  std::vector<double> padded = mine.values, all(most * count);
  padded.resize(most);
  ranks.all_gather(padded, all);
  std::vector<std::size_t> order(count);
  for (std::size_t rank = 0; rank < count; ++rank) order[rank] = rank;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a * 3] < sizes[b * 3]; });
  mine.values.clear();
  std::size_t samples = 0;
  for (const std::size_t rank : order) {
    const auto begin = all.begin() + std::ptrdiff_t(rank * most);
    mine.values.insert(mine.values.end(), begin, begin + std::ptrdiff_t(sizes[rank * 3 + 2]));
    samples += sizes[rank * 3 + 1];
  }
  first = sizes[order[0] * 3];
  if (mine.shape.rank() != 0) mine.shape[0] = samples;
}

/// Drops the columns from `columns` on: the padding of a vocabulary.
WEFT_COLD inline void cut_columns(Prediction& all, std::size_t columns) {
  if (all.shape.rank() < 2) return;
  const std::size_t dim = all.shape.rank() - 1, width = all.shape[dim];
  if (width <= columns) return;
  for (std::size_t row = 0; row < all.values.size() / width; ++row)
    for (std::size_t i = 0; i < columns; ++i) all.values[row * columns + i] = all.values[row * width + i];
  all.values.resize(all.values.size() / width * columns);
  all.shape[dim] = columns;
}

/// In a rehearsal of a stage before the last: appends zeros of the last stage's output shape.
template <class Stages, class Context>
WEFT_COLD void rehearse_outputs(Stages& stages, const Context& context, const typename Stages::Batch& part, Prediction& all) {
  using Model = typename Stages::model_type;
  using Last = typename ModelTypes<Model, Context>::Last;
  ModelAside<Model, Context> aside(context, stages.config(), part, stages.schedule(), *stages.accumulator());
  const auto& layer = static_cast<const StackUnitOf<Last, Context>&>(*aside.whole().units.back().layer).layer;
  for (std::size_t micro = 0; micro < share_of(part).micro_batches; ++micro) {
    AnyValue hidden = aside.forward(micro, [](std::size_t, AnyValue&) {});
    append_outputs(aside.context(),
                   predict_of<Last>(layer, aside.context(), hidden.template as<typename Last::Input>(),
                                    [&] { return aside.inputs().last(micro); }),
                   all);
  }
}

template <class Stages, class Context>
void predict_share(Stages& stages, const Context& context, const typename Stages::Batch& whole, Prediction& all) {
  using Model = typename Stages::model_type;
  if constexpr (ModuleModel<Model>) {
    BatchShare share = share_of(whole);
    share.micro_batches = 1;
    Context own = context_of_call(context, share);
    own.env.training = false;
    own.engine.records = false;
    own.engine.calls = stages.chunks().front()->calls.get();
    Unit& unit = stages.chunks().front()->units.front();
    const auto& part = stages.part_of(context, whole);
    const inputs_of_t<Model, Context> inputs(own, part);
    for (Hooks* hooks : own.engine.hooks) hooks->begin(false);
    const BatchShare micro = share_of(whole);
    for (std::size_t i = 0; i < micro.micro_batches; ++i) {
      own.env.first_row = (micro.first + micro.samples_before(i)) * micro.length;
      static_cast<Environment&>(own.env).length = micro.micro_batch(i).length;
      own.env.rows = micro.micro_batch(i).sequences * micro.micro_batch(i).length;
      enter_unit(own.engine, unit, false);
      append_outputs(own, predict_of_module(module_of<Context>(stages), own, inputs.first(i)), all);
      leave_unit(own.engine, unit, false);
    }
  } else {
    const schedule::Table table = stages.forward_table(context, whole, BatchUse::inputs);
    const auto& part = stages.part_of(context, whole);
    ModelRun<Model, Context> run(context, stages.chunks(), table, part, *stages.accumulator());
    stages.rehearse_stages(context, part, run);
    run.executor.run({.forward_only = true, .stop_before_last = true});
    for (const auto& chunk : stages.chunks()) {
      if (!chunk->last) continue;
      using Last = typename ModelTypes<Model, Context>::Last;
      const auto& layer = static_cast<const StackUnitOf<Last, Context>&>(*chunk->layers.back()).layer;
      run.executor.with_unit(chunk->units.back(), [&] {
        for (std::size_t micro = 0; micro < std::size_t(table.micro_batches); ++micro) {
          run.executor.enter(micro);
          append_outputs(run.context,
                         predict_of<Last>(layer, run.context, run.executor.last_hidden(micro).template as<typename Last::Input>(),
                                          [&] { return run.inputs.last(micro); }),
                         all);
        }
      });
    }
    if constexpr (Context::has(pp{}))
      if (context.device().rehearsal() != nullptr && all.shape.rank() == 0) rehearse_outputs(stages, context, part, all);
  }
}

template <class Stages, class Context>
Prediction predict(Stages& stages, const Context& context, const typename Stages::Batch& batch, Gather gather) {
  using Model = typename Stages::model_type;
  Prediction all;
  if constexpr (is_usable<Model, Context>() || is_open<Model, Context>) {
    stages.require_no_open_step("predict");
    stages.check(batch, BatchUse::inputs);
    predict_share(stages, context, batch, all);
    stages.finish(context);
    if constexpr (Context::has(pp{})) {
      const int ranks = int(context.size(pp{})),
                root = stages.schedule().stage_rank(ranks * stages.schedule().chunks() - 1, ranks);
      std::vector<std::uint64_t> extents = extents_of(all.shape);
      extents.resize(Shape::max_rank + 1);
      extents[Shape::max_rank] = all.shape.rank();
      context.comm(pp{}).broadcast(extents, root);
      all.shape = shape_of_extents(std::span<const std::uint64_t>(extents).first(extents[Shape::max_rank]));
      all.values.resize(all.shape.size());
      context.comm(pp{}).broadcast(all.values, root);
    }
    if constexpr (Stages::has_tokens && requires { Model::vocabulary(stages.config()); })
      cut_columns(all, Model::vocabulary(stages.config()));
    if (gather == Gather::whole) {
      std::size_t first = share_of(batch).first;
      for_each_data_axis(context, [&](const Communicator& ranks) { gather_shares(ranks, first, all); });
    }
  }
  return all;
}

}  // namespace detail

}  // namespace weft
