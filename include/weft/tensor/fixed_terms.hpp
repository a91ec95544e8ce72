// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over tp whose bits do not depend on tp (NumericsOptions::reproducible_degree). Such a sum has a fixed number of terms, the
// degree of the option. A rank computes degree / tp of them, each as if a rank had only that one, and adds them in a binary tree;
// the ranks' sums are added in the same tree. The sum is made where its terms arise: a Partial tensor then holds the whole sum on
// every rank and is marked (Tensor::summed), and `to` neither adds nor sends anything. autograd/row_terms.hpp has the sums over
// rows that cp or tp cuts.
//
//   const auto y = sum_of_fixed_terms<Y>(context.comm(tp{}), device, shape, [&](std::size_t term, T* out) { ... });

#include <cstddef>
#include <string_view>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// Adds `count` terms, a power of two, in a binary tree: `term(i, out)` writes term i, of `size` elements, for i from `first` on.
template <class T, class Exec, class Term>
void add_terms(Device<Exec>& device, std::size_t first, std::size_t count, std::size_t size, T* out, const Term& term) {
  if (count == 1) return term(first, out);
  add_terms(device, first, count / 2, size, out, term);
  const Buffer buffer = device.allocate(size * sizeof(T));
  T* const right = static_cast<T*>(buffer.get());
  add_terms(device, first + count / 2, count / 2, size, right, term);
  kernels::add<T>(device, size, out, right, out);
}

/// y = the sum of all ranks' y in a binary tree over the ranks, a power of two. Each rank adds one piece of y. Collective.
template <class T, class Exec>
void add_terms_of_ranks(const Communicator& comm, const Tensor<T, Exec>& y) {
  const std::size_t ranks = std::size_t(comm.size());
  if (ranks == 1) return;
  if (ranks == 2) return comm.all_reduce(y);  // one addition
  auto& device = y.device();
  const std::size_t piece = (y.size() + ranks - 1) / ranks, padding = ranks * piece - y.size();
  const bool whole = padding == 0;  // the pieces of y have one size: no copy
  const Tensor<T, Exec> sent = whole ? Tensor<T, Exec>(y) : Tensor<T, Exec>(device, {ranks, piece}),
                        terms(device, {ranks, piece});
  if (!whole) {
    kernels::cast<T, T>(device, y.size(), y.data(), sent.data());
    kernels::fill(device, padding, sent.data() + y.size(), T(0));
  }
  comm.all_to_all(sent, terms);
  for (std::size_t step = 1; step < ranks; step *= 2)
    for (std::size_t i = 0; i < ranks; i += 2 * step)
      kernels::add<T>(device, piece, terms.data() + i * piece, terms.data() + (i + step) * piece, terms.data() + i * piece);
  comm.all_gather(Tensor<T, Exec>(device, {piece}, terms.buffer()), sent);
  if (!whole) kernels::cast<T, T>(device, y.size(), sent.data(), y.data());
}

/// The sum over tp of terms [shape], of which each rank has Device::sum_terms: `term(i, out)` writes this rank's term i.
/// Collective.
template <AnyTensor Y, class Term>
Y sum_of_fixed_terms(const Communicator& comm, typename Y::device_type& device, const Shape& shape, const Term& term) {
  Y y(device, shape);
  add_terms(device, 0, device.sum_terms(), y.size(), y.data(), term);
  add_terms_of_ranks(comm, raw(y));
  y.mark_summed(true);
  return y;
}

/// The sum over tp of x, of whose elements one rank has the number and all others 0. Overwrites x. A sum of one number does not
/// round; adding 0 turns -0 into 0 on one rank, as it does on several.
template <AnyTensor X>
X sum_of_one_number(const Communicator& comm, X x) {
  if (comm.size() > 1) comm.all_reduce(raw(x));
  else {
    using T = typename X::value_type;
    const X zero(x.device(), x.shape());
    kernels::fill(x.device(), x.size(), zero.data(), T(0));
    kernels::add<T>(x.device(), x.size(), x.data(), zero.data(), x.data());
  }
  x.mark_summed(true);
  return x;
}

/// Throws UsageError for `name`, a sum over an axis that is not made of fixed terms.
WEFT_COLD [[noreturn]] inline void refuse_loose_sum(std::string_view name, std::string_view axis = tp::name) {
  throw_error<UsageError>({"numerics.reproducible_degree: the sum over ", axis, " of ", name,
                           " has no fixed terms, so its bits would depend on ", axis,
                           "; the option covers the layers and losses of weft's language models under TensorParallel, "
                           "SequenceParallel and ContextParallel: leave it out for this model"});
}
template <class Exec>
void refuse_loose_sum(const Device<Exec>& device, std::string_view name) {
  if (device.sum_terms() != 0) refuse_loose_sum(name);
}
/// Throws UsageError unless each rank has the whole sum x.
template <AnyTensor X>
void require_summed(const X& x) {
  if (!x.summed()) refuse_loose_sum("a tensor " + x.shape().text());
}

/// The terms of a rank of `axis`. Throws LayoutError unless all ranks have as many, UsageError if another model has fixed other
/// terms on this device, `before` (0: none).
WEFT_COLD inline std::size_t terms_of_rank(std::string_view axis, std::size_t degree, std::size_t ranks, std::size_t before) {
  if (degree % ranks != 0)
    throw_error<LayoutError>({"numerics.reproducible_degree(", degree, ") % ", axis, "(", ranks,
                              ") != 0: each rank has equally many terms of a sum; use a ", axis, " that divides the degree"});
  if (before != 0 && before != degree / ranks)
    throw_error<UsageError>({"numerics.reproducible_degree(", degree, "): another model on this device has ", before,
                             " terms a rank, and this one ", degree / ranks, ": give both models one degree"});
  return degree / ranks;
}

/// Throws UsageError unless a sum over `extent` numbers of each rank is divided evenly among its terms.
WEFT_COLD inline void require_even_terms(std::string_view name, std::size_t extent, std::size_t ranks, std::size_t terms) {
  if (extent % terms != 0)
    throw_error<UsageError>({"numerics.reproducible_degree: ", name, "(", extent * ranks, ") % degree(", ranks * terms,
                             ") != 0: all terms of a sum have one size; use another degree or width"});
}

}  // namespace weft::detail
