// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over rows that cp or tp (SequenceParallel) cuts, whose bits do not depend on the degree of that axis
// (NumericsOptions::reproducible_degree). Gradients of parameters that every rank holds, and losses, are such sums. A rank
// computes its terms and adds them in a binary tree (tensor/fixed_terms.hpp). The wrapper of the axis continues the tree over its
// ranks.
//
//   accumulate_rows<Gradient>(context, parameter, g, [&](std::size_t first, std::size_t count, auto* out, bool add) { ... });

#include <cstddef>
#include <string_view>
#include <utility>

#include <weft/autograd/parameter.hpp>
#include <weft/context/global_index.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/tensor/fixed_terms.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// The terms of this rank in a sum over rows. Over tp a term is a piece of the rows. Over cp a term has two chunks of each
/// sequence, the i-th and the i-th from the end, for all i below the degree, so each rank of any cp has whole terms (Zigzag).
struct RowTerms {
  std::size_t count = 0;     ///< 0: the sum has no fixed terms
  std::size_t rows = 0;      ///< of this rank
  std::size_t sequence = 0;  ///< rows of a sequence on this rank; 0: the rows are in one piece
  unsigned axis = 0;         ///< bit of the axis
  const Communicator* comm = nullptr;

  explicit operator bool() const { return count != 0; }

  /// Calls f(first, count) for each run of rows of a term.
  template <class F>
  void for_each_run(std::size_t term, F&& f) const {
    if (sequence == 0) return f(term * (rows / count), rows / count);
    const std::size_t chunk = sequence / (2 * count);
    for (std::size_t first = 0; first < rows; first += sequence) {
      f(first + term * chunk, chunk);
      f(first + sequence - (term + 1) * chunk, chunk);
    }
  }
  /// out [size] = the sum of this rank's terms. sum(first, count, to, add) writes the sum over these rows to `to`, or adds it.
  template <class T, class Exec, class Sum>
  void add(Device<Exec>& device, std::size_t size, T* out, const Sum& sum) const {
    add_terms(device, 0, count, size, out, [&](std::size_t term, T* to) {
      bool add = false;
      for_each_run(term, [&](std::size_t first, std::size_t here) { sum(first, here, to, std::exchange(add, true)); });
    });
  }
};

WEFT_COLD [[noreturn]] inline void refuse_two_axes_of_rows() {
  throw_error<UsageError>(
      {"numerics.reproducible_degree: SequenceParallel or a mixture of experts inside ContextParallel cuts rows over tp and cp, "
       "and the terms of a sum over rows are fixed over one axis: use TensorParallel and layers without experts inside "
       "ContextParallel, or leave ContextParallel out"});
}
WEFT_COLD inline void require_even_chunks(std::size_t sequence, std::size_t degree) {
  if (sequence % (2 * degree) != 0)
    throw_error<ShapeError>({"numerics.reproducible_degree: sequence(", sequence, ") % (2 * degree(", degree,
                             ")) != 0: a term of a sum over tokens has two chunks of a sequence; use another degree or length"});
}

/// The terms of a sum over the rows of x. Throws ShapeError unless all of them have one size, and over cp unless the rows are
/// whole sequences.
template <class Context, AnyTensor X>
RowTerms row_terms_of(const Context& context, const X& x) {
  constexpr bool over_tp = shard_dim<placement_t<X, tp>> == 0, over_cp = shard_dim<placement_t<X, cp>> == 0;
  const Shape& shape = x.shape();
  const std::size_t tokens = shape.rank() == 0 ? 0 : shape[0];
  RowTerms all{.rows = shape.rank() < 2 ? tokens : x.rows()};
  if constexpr (over_tp) {
    all.count = x.device().sum_terms(), all.axis = axis_bit<tp>, all.comm = &context.comm(tp{});
    if (all) require_even_terms("rows", all.rows, context.size(tp{}), all.count);
  }
  if constexpr (over_cp) {
    const std::size_t terms = x.device().chunk_terms(), ranks = context.size(cp{});
    if (terms == 0 || tokens == 0) return all;
    if (all) refuse_two_axes_of_rows();
    const std::size_t whole = whole_sequence_length(context, x);
    require_even_chunks(whole, terms * ranks);
    all.count = terms, all.axis = axis_bit<cp>, all.comm = &context.comm(cp{});
    all.sequence = whole / ranks * (all.rows / tokens);
    if (all.sequence == 0 || all.rows % all.sequence != 0)
      throw_error<ShapeError>({"numerics.reproducible_degree: ", all.rows, " rows of a rank are not whole sequences of ",
                               all.sequence, " rows: the terms of a sum over tokens are chunks of sequences"});
  }
  return all;
}

/// Adds a sum over the rows of x to a parameter's gradient of type Gradient; `sum` as in RowTerms::add.
template <AnyTensor Gradient, class Context, class P, AnyTensor X, class Sum>
void accumulate_rows(const Context& context, P& parameter, const X& x, const Sum& sum) {
  const RowTerms terms = row_terms_of(context, x);
  const auto open = parameter.template open_gradient<Gradient>(x.device());
  const bool first = open.first;
  if (!terms || !first) return sum(std::size_t(0), terms.rows, open.data, !first);  // a second addition's terms are not fixed
  terms.add(x.device(), parameter.state().size(), open.data, sum);
  parameter.state().gradients().mark_fixed_terms(terms.axis);
}

/// Continues the sum of a gradient's terms over the ranks of A. Throws UsageError if its terms are not fixed. Collective.
template <Axis A, class Exec>
void add_row_terms(A axis, const Communicator& comm, Device<Exec>& device, const ParameterState& state) {
  if (state.gradients().loose(axis) || state.info().replicas > 1) refuse_loose_sum("the gradient of " + state.name(), A::name);
  const auto add = [&]<class G>(G) {
    add_terms_of_ranks(comm, Tensor<G, Exec>(device, {state.size()}, state.gradients().layer_buffer()));
  };
  if (state.gradient_type() == DataType::float32) add(float{});
  else add(double{});
}

/// Throws UsageError for `name`, a sum over the rows of x without fixed terms, if an axis with fixed terms cuts them.
template <AnyTensor X>
void refuse_loose_rows(const X& x, std::string_view name) {
  if constexpr (shard_dim<placement_t<X, tp>> == 0) refuse_loose_sum(x.device(), name);
  if constexpr (shard_dim<placement_t<X, cp>> == 0)
    if (x.device().chunk_terms() != 0) refuse_loose_sum(name, cp::name);
}

/// sum [1] = the losses of this rank's rows: `add_up(first, count, out)` writes the sum of losses [first, first + count), of
/// which `losses` belong to the rows of x. Under NumericsOptions::reproducible_degree the first rank of the axis has the sum of
/// all ranks, and the others have 0. Collective.
template <class Context, AnyTensor X, AnyTensor S, class Sum>
void sum_losses_of_rows(const Context& context, const X& x, std::size_t losses, const S& sum, const Sum& add_up) {
  RowTerms terms = row_terms_of(context, x);
  if (!terms) return add_up(std::size_t(0), losses, sum.data());
  terms.sequence *= losses / terms.rows, terms.rows = losses;  // a row may have several losses
  auto& device = sum.device();
  terms.add(device, 1, sum.data(), [&](std::size_t first, std::size_t count, double* out, bool add) {
    if (!add) return add_up(first, count, out);
    const S more(device, {1});
    add_up(first, count, more.data());
    kernels::add<double>(device, 1, out, more.data(), out);
  });
  add_terms_of_ranks(*terms.comm, raw(sum));
  if (terms.comm->rank() != 0) kernels::fill(device, 1, sum.data(), 0.0);
}

}  // namespace weft::detail
