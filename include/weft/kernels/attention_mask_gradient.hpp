// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradient of numbers that are added to the scores of attention, such as a learned bias. It is the sum over all scores that
// share the number: over sequences, heads or queries. The probabilities are recomputed from the log-sum-exp, so no matrix of
// scores is stored.
//
//   kernels::attention_mask_gradient<T>(device, extents, in, {out, width}, {d_out, width}, lse, d_added, mask, {.added = bias});

#include <cmath>
#include <cstddef>

#include <weft/kernels/attention.hpp>
#include <weft/kernels/detail/lanes.hpp>

namespace weft::kernels {

namespace detail {

/// The sum of a[i] b[i], by lanes.
template <class V, class Team, class T>
KOKKOS_FORCEINLINE_FUNCTION typename V::value_type dot_of_lanes(const Team& team, std::size_t n, const T* a, const T* b) {
  return sum(team.template add_up<V>(
      n, [&](std::size_t i, std::size_t count) { return V::load(a + i, count) * V::load(b + i, count); }));
}

}  // namespace detail

/// Computes d_added, in the layout of arrays.added, from d_out and the forward's operands, out and lse: the gradient of
/// arrays.added, 0 for hidden keys. It is overwritten. The same bits for any number of threads.
template <class T, class Exec>
void attention_mask_gradient(Device<Exec>& device, const AttentionExtents& extents, const AttentionOperands<const T>& in,
                             StridedRows<const T> out, StridedRows<const T> d_out, const accumulate_t<T>* lse,
                             accumulate_t<T>* d_added, const AttentionMask& mask, const MaskArrays<accumulate_t<T>>& arrays) {
  using A = accumulate_t<T>;
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  weft::detail::Buffer ranges;
  const detail::AttentionShape s =
      detail::masked_shape(device, detail::AttentionShape(extents, mask.causal), mask, arrays, ranges);
  detail::note_attention<T>(device, s, 2);
  const weft::detail::TracedWhole whole(device.trace());
  // Plain variables, because a lambda for devices cannot capture structured bindings.
  const T *const q = in.q, *const k = in.k, *const v = in.v, *const o = out.data, *const g = d_out.data;
  const std::size_t q_stride = in.q_stride, k_stride = in.k_stride, v_stride = in.v_stride, o_stride = out.stride,
                    g_stride = d_out.stride;
  const std::size_t rows = s.sequences * s.heads * s.length;
  const weft::detail::Buffer buffer = device.allocate(rows * sizeof(A));
  A* const delta = static_cast<A*>(buffer.get());  // sum over d of d_out * out, per row and head
  detail::for_each_row(
      device, {"attention", rows * (2 * s.head_width * sizeof(T) + sizeof(A))}, rows, KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t i = item % s.length, head = item / s.length % s.heads, sequence = item / (s.length * s.heads);
        const std::size_t row = sequence * s.query_step + i, at = head * s.head_width;
        const A total = detail::dot_of_lanes<V>(team, s.head_width, o + row * o_stride + at, g + row * g_stride + at);
        if (team.leads()) delta[item] = total;
      });
  // The extents of the arrays; an extent of 1 is shared.
  const std::size_t all_groups = s.sequences / arrays.group, groups = arrays.sequence_step == 0 ? 1 : all_groups,
                    members = arrays.member_step == 0 ? 1 : arrays.group, heads = arrays.head_step == 0 ? 1 : s.heads,
                    queries = arrays.query_step == 0 ? 1 : s.length, numbers = groups * members * heads * queries * s.keys;
  const A scale = A(1) / std::sqrt(A(s.head_width));
  detail::for_each_row(
      device, {"attention", detail::attention_backward_bytes<T, T>(s) + 2 * numbers * sizeof(A)}, numbers,
      KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t j = item % s.keys, query = item / s.keys % queries, head_of = item / (s.keys * queries) % heads,
                          member_of = item / (s.keys * queries * heads) % members,
                          group_of = item / (s.keys * queries * heads * members);
        const auto term_of = [&](std::size_t sequence, std::size_t head, std::size_t i) {
          const std::size_t range = sequence * s.length + i;
          if (j < std::size_t(s.mask.first_key[range]) || j >= std::size_t(s.mask.end_key[range])) return A(0);
          const A added = s.mask.term<A>(s.mask.place(sequence, head, i) + j);
          if (added == -Kokkos::Experimental::infinity_v<A>) return A(0);
          const std::size_t row = sequence * s.query_step + i, key = sequence * s.key_step + j, at = head * s.head_width,
                            kv = head / s.group * s.head_width;
          const A score = scale * detail::dot_of_lanes<V>(team, s.head_width, q + row * q_stride + at, k + key * k_stride + kv),
                  agreement = detail::dot_of_lanes<V>(team, s.head_width, g + row * g_stride + at, v + key * v_stride + kv);
          return Kokkos::exp(score + added - lse[(sequence * s.heads + head) * s.statistic_step + i]) *
                 (agreement - delta[(sequence * s.heads + head) * s.length + i]);
        };
        A total = 0;
        for (std::size_t group = group_of; group < all_groups; group += groups)
          for (std::size_t member = member_of; member < s.mask.group; member += members)
            for (std::size_t head = head_of; head < s.heads; head += heads)
              for (std::size_t i = query; i < s.length; i += queries) total += term_of(group * s.mask.group + member, head, i);
        if (team.leads()) d_added[s.mask.place(group_of * s.mask.group + member_of, head_of, query) + j] = total;
      });
}

}  // namespace weft::kernels
