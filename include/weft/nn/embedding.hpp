// SPDX-License-Identifier: Apache-2.0
#pragma once
// Embeddings: a vocabulary-parallel token table, and learned positions.
//
//   Embedding tokens(context / "wte", vocabulary, width, 0.02);   // [tokens] -> [tokens, width]

#include <utility>

#include <weft/autograd/layer.hpp>
#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/primitive.hpp>
#include <weft/autograd/row_terms.hpp>
#include <weft/context/global_index.hpp>
#include <weft/kernels/embedding.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {
// The type of rows looked up in a table. If an axis shards the table's rows, a lookup is one term of a sum: zero if another rank
// has the id.
template <class Ids, class Table>
struct LookedUp;
template <class I, class T, class E, class... PI, class... PT>
struct LookedUp<Tensor<I, E, PI...>, Tensor<T, E, PT...>> {
  using type = Tensor<T, E, std::conditional_t<shard_dim<PT> == 0, Partial<typename PT::axis>, PI>...>;
};

// Adds each row of g [tokens, width] to the row of the table's gradient with its id; row 0 of this rank's table has the id
// `first`.
template <AnyTensor Gradient, class Context, class P, class Ids, class G>
void accumulate_rows_by_id(const Context& context, P& table, const Ids& ids, const G& g, std::int64_t first) {
  const std::size_t rows = table.state().local()[0], width = g.columns();
  accumulate_rows<Gradient>(context, table, g, [&]<class A>(std::size_t begin, std::size_t count, A* out, bool add) {
    if (!add) kernels::fill(g.device(), rows * width, out, A(0));
    kernels::embedding_backward(g.device(), count, width, ids.data() + begin, g.data() + begin * width, first, rows, out);
  });
}
}  // namespace detail

/// tokens [tokens] -> [tokens, width]. Under tp the table's rows are sharded; a vocabulary that tp does not divide is padded with
/// rows of zeros that nothing reads. The sum is brought to the placement of the hidden state, which is chosen only here:
/// Invariant<tp>, or Shard<tp, 0> under sequence parallelism. Parameter "weight" [vocabulary, width], initially N(0, 1) as in
/// torch.nn.Embedding. A table that is also the last projection needs a smaller deviation such as 0.02. Ids are whole numbers of
/// any type; on hosts, forward throws UsageError with the first one that is no row of the table.
class Embedding : public Primitive<Embedding> {
 public:
  using Table = Parameter<Shard<tp, 0>>;

  /// Refuses other arguments.
  template <class... A>
  requires detail::WrongArguments<detail::LayerArguments<2, std::size_t, std::size_t, detail::AnyArgument>, A...>
  explicit Embedding(const A&...) : Embedding(detail::refused_layer<Embedding>()) {
    static_assert(
        sizeof...(A) > 99,
        "weft: Embedding takes the context with its name, the number of ids and the width, in the constructor of your Module: "
        "`Embedding table;`, table(context / \"table\", ids, width)");
  }
  template <class Context>
  Embedding(const Context& context, std::size_t vocabulary, std::size_t width, const InitialValues& values = normal(1))
      : table(context, "weight", {vocabulary, width}, values, ParameterSharding{{}, true}) {}
  /// Normal initial values, as in language models.
  template <class Context>
  Embedding(const Context& context, std::size_t vocabulary, std::size_t width, double standard_deviation)
      : Embedding(context, vocabulary, width, normal(standard_deviation)) {}

  template <class Context, class Ids>
  auto forward(const Context& context, const Ids& ids) const {
    auto tokens = detail::ids_of(ids, table.state().global()[0], {"Embedding", "id", " at ", " rows"});
    const auto w = table.for_operand(context, tokens);
    typename detail::LookedUp<Ids, std::remove_const_t<decltype(w)>>::type y(tokens.device(), {tokens.size(), w.columns()});
    kernels::embedding_forward(tokens.device(), tokens.size(), w.columns(), tokens.data(), w.data(), first(context, w.rows()),
                               w.rows(), y.data());
    return Result{bring(context, std::move(y)), std::move(tokens)};
  }
  template <class Context, class Ids, class G>
  auto backward_input(const Context& context, Ids tokens, const G& g) {
    using Y = typename detail::LookedUp<Ids, decltype(table.for_operand(context, tokens))>::type;
    return InputGradient{Nothing{}, std::pair{std::move(tokens), to_layout_of<gradient_t<Y>>(context, g)}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    if (!table.trainable()) return;
    auto& [tokens, g] = deferred;
    using W = decltype(table.for_operand(context, tokens));
    detail::accumulate_rows_by_id<gradient_t<W>>(context, table, tokens, g, first(context, table.state().local()[0]));
  }

  Table table;

 private:
  template <class Context>
  static std::int64_t first(const Context& context, std::size_t rows) {
    return static_cast<std::int64_t>(context.rank(tp{}) * rows);
  }
  template <class Context, class Y>
  static auto bring(const Context& context, Y y) {
    if constexpr (Context::has(tp{}))
      if (y.device().sum_terms() != 0) y = detail::sum_of_one_number(context.comm(tp{}), std::move(y));
    if constexpr (Context::has(tp{})) return to<detail::hidden_placement_t<Context, tp>>(context, std::move(y));
    else return y;
  }
};

/// x [tokens, width] plus a learned row for each position in the sequence. Parameter "weight" [length, width].
class LearnedPositions : public Primitive<LearnedPositions> {
 public:
  template <class Context>
  LearnedPositions(const Context& context, std::size_t length, std::size_t width, const InitialValues& values = normal(0.02))
      : table(context, "weight", {length, width}, values) {}
  /// Normal initial values.
  template <class Context>
  LearnedPositions(const Context& context, std::size_t length, std::size_t width, double standard_deviation)
      : LearnedPositions(context, length, width, normal(standard_deviation)) {}

  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    require_not_partial<X>();
    const detail::CachedTokens* cached = context.env.cached;
    if (const std::size_t length = cached != nullptr ? cached->longest : detail::whole_sequence_length(context, x);
        length > table.state().global()[0])
      throw_error<ShapeError>(
          {"a sequence of ", length, " tokens, but ", table.state().name(), " holds ", table.state().global()[0], " positions"});
    auto positions = positions_of(context, x);
    const auto w = table.for_operand(x);
    if (w.columns() != x.columns())
      throw_error<ShapeError>(
          {detail::call_text("learned positions", {x, w}), ": the columns differ, ", x.columns(), " and ", w.columns()});
    X y(x.device(), x.shape());
    kernels::embedding_forward(x.device(), x.rows(), x.columns(), positions.data(), w.data(), std::int64_t(0), w.rows(),
                               y.data());
    return Result{add(x, std::move(y)), std::move(positions)};
  }
  template <class Context, class Positions, class G>
  auto backward_input(const Context&, Positions positions, const G& g) {
    return InputGradient{g, std::pair{std::move(positions), g}};
  }
  template <class Context, class D>
  void backward_weight(const Context& context, D deferred) {
    if (!table.trainable()) return;
    auto& [positions, g] = deferred;
    detail::accumulate_rows_by_id<TableGradient<std::remove_cvref_t<decltype(g)>>>(context, table, positions, g, 0);
  }

  Parameter<> table;

 private:
  // The table's gradient is a sum over rows, like that of a bias.
  template <class G>
  using TableGradient = decltype(sum_rows(std::declval<const G&>()));
};

}  // namespace weft
