// SPDX-License-Identifier: Apache-2.0
#pragma once
// The merge of attention over two blocks of keys: softmax over all keys is the mean of the softmaxes over each block, weighted by
// exp(log-sum-exp) (ring attention, arXiv:2310.01889).
//
//   kernels::merge_attention(device, block, part, part_lse, {out, width}, lse);

#include <cmath>
#include <cstddef>

#include <weft/kernels/attention.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// Replaces `whole` and `lse` by the attention over their keys and those of `part` and `part_lse` together. All have the layout
/// of `block`; rows of part and whole are `whole.stride` values apart. A is accumulate_t of the values. An lse of -infinity means
/// that there was no key: that side has no weight, whatever its values, and two such sides give -infinity again.
template <class A, class Exec>
void merge_attention(Device<Exec>& device, const AttentionBlock& block, const A* part, const A* part_lse, StridedRows<A> whole,
                     A* lse) {
  using V = detail::lanes_for<Exec, A>;
  using Team = detail::row_team<Exec>;
  const AttentionBlock b = block;
  A* const out = whole.data;
  const std::size_t stride = whole.stride;
  detail::for_each_row(
      device, {"attention", 3 * b.sequences * b.queries * b.heads * (b.head_width + 1) * sizeof(A)}, b.sequences * b.queries,
      KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t sequence = item / b.queries, row = item % b.queries;
        for (std::size_t head = 0; head < b.heads; ++head) {
          const std::size_t statistic = (sequence * b.heads + head) * b.statistic_step + row;
          const std::size_t at = (sequence * b.query_step + row) * stride + head * b.head_width;
          // Every lane reads before one writes.
          const A mine = team.template same<A>([&] { return lse[statistic]; }), theirs = part_lse[statistic];
          if (theirs == -Kokkos::Experimental::infinity_v<A>) continue;
          const bool only = mine == -Kokkos::Experimental::infinity_v<A>;
          const A difference = only ? A(0) : theirs - mine;
          const A weight = A(1) / (A(1) + Kokkos::exp(-difference));  // the weight of `part`
          if (team.leads())
            lse[statistic] = only ? theirs
                                  : (difference > 0 ? theirs + Kokkos::log1p(Kokkos::exp(-difference))
                                                    : mine + Kokkos::log1p(Kokkos::exp(difference)));
          const A* from = part + at;
          A* to = out + at;
          team.template sweep<V>(b.head_width, [&](std::size_t i, std::size_t count) {
            const V theirs_here = V::load(from + i, count);
            if (only) theirs_here.store(to + i, count);
            else {
              const V mine_here = V::load(to + i, count);
              (mine_here + V(weight) * (theirs_here - mine_here)).store(to + i, count);
            }
          });
        }
      });
}

}  // namespace weft::kernels
