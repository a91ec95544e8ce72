// SPDX-License-Identifier: Apache-2.0
#pragma once
// The axes of a loss, given by its type. The loss is summed over axes on which each rank holds a term, and compared on axes on
// which all ranks hold the same value.
//
//   LossAxes<Loss>::require_same(context, losses);
//   LossAxes<Loss>::all_reduce(context, losses);

#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/autograd/loss_sum.hpp>
#include <weft/comm/agree.hpp>
#include <weft/core/text.hpp>

namespace weft::detail {

WEFT_COLD inline void require_same_loss(const Communicator& ranks, std::span<const double> values) {
  std::vector<std::uint64_t> words;
  for (const double value : values)
    words.push_back(value != value ? 0 : std::bit_cast<std::uint64_t>(value));  // NaN has many bit patterns
  if (const auto found = difference(ranks, words))
    throw_error<UsageError>({"the loss of ", ranks.axis(), " rank ", found->rank, " is not that of ", ranks.axis(),
                             " rank 0, though by its type they are the same (Invariant): is it a sum over a rank's own "
                             "columns? Bring the losses together before sum_losses: to<Invariant<",
                             ranks.axis(), ">>(context, x), log_sum_exp(context, z, columns)"});
}
/// The axes on which a loss is a term of a sum; losses are added up over exactly these axes.
template <class Loss>
struct LossAxes;
template <class E, class... P>
struct LossAxes<LossSum<E, P...>> {
  template <class Context>
  static void all_reduce(const Context& context, std::span<double> values) {
    [[maybe_unused]] const auto sum = [&]<class Q>(std::type_identity<Q>) {
      if constexpr (kind_of<Q> == Kind::partial) context.comm(typename Q::axis{}).all_reduce(values);
    };
    (sum(std::type_identity<P>{}), ...);
  }
  /// On each axis on which the loss is Invariant, every rank must have the same bits: throws UsageError on all ranks of the axis
  /// otherwise.
  template <class Context>
  static void require_same(const Context& context, std::span<const double> values) {
    [[maybe_unused]] const auto compare = [&]<class Q>(std::type_identity<Q>) {
      if constexpr (kind_of<Q> == Kind::invariant) require_same_loss(context.comm(typename Q::axis{}), values);
    };
    (compare(std::type_identity<P>{}), ...);
  }
};

}  // namespace weft::detail
