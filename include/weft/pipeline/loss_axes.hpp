// SPDX-License-Identifier: Apache-2.0
#pragma once
// The axes of a loss, given by its type. The loss is summed over axes on which each rank holds a term, and compared on axes on
// which all ranks hold the same value.
//
//   const LossAxes axes = loss_axes<Loss>(context);
//   axes.require_same(losses);
//   axes.all_reduce(losses);

#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/autograd/loss_sum.hpp>
#include <weft/comm/agree.hpp>
#include <weft/core/text.hpp>

namespace weft::detail {

struct LossAxes {
  std::vector<Communicator> summed;  ///< the axes on which each rank's loss is a term (Partial)
  std::vector<Communicator> same;    ///< the axes on which all ranks have the whole loss (Invariant)

  /// Sums the losses over exactly the axes on which they are terms. Collective.
  void all_reduce(std::span<double> values) const {
    for (const Communicator& ranks : summed) ranks.all_reduce(values);
  }
  /// Throws UsageError on all ranks of an axis on which the loss is Invariant unless every rank has the same bits. Collective.
  WEFT_COLD void require_same(std::span<const double> values) const {
    std::vector<std::uint64_t> words;
    for (const double value : values)
      words.push_back(value != value ? 0 : std::bit_cast<std::uint64_t>(value));  // NaN has many bit patterns
    for (const Communicator& ranks : same)
      if (const auto found = difference(ranks, words))
        throw_error<UsageError>({"the loss of ", ranks.axis(), " rank ", found->rank, " is not that of ", ranks.axis(),
                                 " rank 0, though by its type they are the same (Invariant): is it a sum over a rank's own "
                                 "columns? Bring the losses together before sum_losses: to<Invariant<",
                                 ranks.axis(), ">>(context, x), log_sum_exp(context, z, columns)"});
  }
};

template <class Loss>
struct LossAxesOf;
template <class E, class... P>
struct LossAxesOf<LossSum<E, P...>> {
  template <class Context>
  static LossAxes in([[maybe_unused]] const Context& context) {
    LossAxes axes;
    [[maybe_unused]] const auto add = [&]<class Q>(std::type_identity<Q>) {
      if constexpr (kind_of<Q> == Kind::partial) axes.summed.push_back(context.comm(typename Q::axis{}));
      if constexpr (kind_of<Q> == Kind::invariant) axes.same.push_back(context.comm(typename Q::axis{}));
    };
    (add(std::type_identity<P>{}), ...);
    return axes;
  }
};
template <class Loss, class Context>
LossAxes loss_axes(const Context& context) {
  return LossAxesOf<Loss>::in(context);
}

}  // namespace weft::detail
