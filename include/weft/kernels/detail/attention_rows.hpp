// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention row by row, each by a team of lanes, for any execution space: simple and slow. Each row is written by one team, so
// there are no atomics and the results do not depend on scheduling.

#include <cstddef>

#include <weft/core/error.hpp>
#include <weft/core/scalar.hpp>
#include <weft/kernels/attention_arguments.hpp>
#include <weft/kernels/attention_mask.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

struct AttentionShape {
  std::size_t sequences, length, heads, kv_heads, head_width, group;  // group: query heads per key-value head
  bool causal;
  // A block of a longer attention may have another number of keys per sequence, and its sequences may be further apart (in rows).
  std::size_t keys = length, query_step = length, key_step = length, statistic_step = length;
  MaskView mask = {};  // if it has ranges, they replace `causal`
  AttentionShape(const AttentionExtents& e, bool is_causal)
      : sequences(e.sequences),
        length(e.length),
        heads(e.heads),
        kv_heads(e.kv_heads),
        head_width(e.head_width),
        group(1),
        causal(is_causal) {
    if (kv_heads == 0 || heads % kv_heads != 0)
      throw_error<ShapeError>({"attention: heads(", heads, ") % kv_heads(", kv_heads,
                               ") != 0: every key-value head serves the same number of query heads"});
    group = heads / kv_heads;
    keys = key_step = e.keys;
  }
};

/// Bytes read and written by attention if it touches queries, keys, values, the result and the statistics once, and no scores.
template <class T, class R>
std::size_t attention_bytes(const AttentionShape& s) {
  const std::size_t rows = s.sequences * s.heads * s.length, keys = s.sequences * s.kv_heads * s.keys;
  return ((sizeof(T) + sizeof(R)) * rows + 2 * sizeof(T) * keys) * s.head_width + rows * sizeof(accumulate_t<T>);
}
/// The same for its gradients.
template <class T, class R>
std::size_t attention_backward_bytes(const AttentionShape& s) {
  const std::size_t rows = s.sequences * s.heads * s.length, keys = s.sequences * s.kv_heads * s.keys;
  return ((3 * sizeof(T) + sizeof(R)) * rows + 2 * (sizeof(T) + sizeof(R)) * keys) * s.head_width +
         rows * sizeof(accumulate_t<T>);
}

template <class Team, class T>
KOKKOS_FORCEINLINE_FUNCTION accumulate_t<T> dot(const Team& team, std::size_t n, const T* a, const T* b) {
  using A = accumulate_t<T>;
  return team.template total<A>(n, [&](std::size_t i, A& sum) { sum += A(a[i]) * A(b[i]); });
}

template <class T, class R, class Exec>
void attention_rows_forward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in,
                            StridedRows<R> output, accumulate_t<T>* lse) {
  using A = accumulate_t<T>;
  using Team = row_team<Exec>;
  // Plain variables, because a lambda for devices cannot capture structured bindings.
  const T *const q = in.q, *const k = in.k, *const v = in.v;
  const std::size_t q_stride = in.q_stride, k_stride = in.k_stride, v_stride = in.v_stride, out_stride = output.stride;
  R* const out = output.data;
  const AttentionShape s = shape;
  const A scale = A(1) / std::sqrt(A(s.head_width));
  const weft::detail::Buffer buffer = device.allocate(s.sequences * s.heads * s.length * s.head_width * sizeof(A));
  A* workspace = static_cast<A*>(buffer.get());
  for_each_row(
      device, {"attention", attention_bytes<T, R>(s)}, s.sequences * s.heads * s.length,
      KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t i = item % s.length, head = item / s.length % s.heads, sequence = item / (s.length * s.heads);
        const std::size_t start = sequence * s.query_step, key_start = sequence * s.key_step;
        const std::size_t kv = head / s.group * s.head_width, range = sequence * s.length + i;
        const std::size_t first = s.mask.ranges() ? std::size_t(s.mask.first_key[range]) : 0,
                          keys = s.mask.ranges() ? std::size_t(s.mask.end_key[range])
                                 : s.causal      ? i + 1
                                                 : s.keys;
        const T* row = q + (start + i) * q_stride + head * s.head_width;
        A* sum = workspace + item * s.head_width;
        team.each(s.head_width, [&](std::size_t d) { sum[d] = 0; });
        A top = 0, total = 0;
        bool none = true;  // no key yet
        for (std::size_t j = first; j < keys; ++j) {
          A score = scale * dot(team, s.head_width, row, k + (key_start + j) * k_stride + kv);
          if (s.mask.arrays()) {
            score += s.mask.term<A>(s.mask.place(sequence, head, i) + j);
            if (score == -Kokkos::Experimental::infinity_v<A>) continue;
          }
          if (none || score > top) {  // the sum so far is relative to the old maximum
            const A shrink = none ? A(0) : Kokkos::exp(top - score);
            none = false;
            total *= shrink;
            team.each(s.head_width, [&](std::size_t d) { sum[d] *= shrink; });
            top = score;
          }
          const A p = Kokkos::exp(score - top);
          const T* value = v + (key_start + j) * v_stride + kv;
          total += p;
          team.each(s.head_width, [&](std::size_t d) { sum[d] += p * A(value[d]); });
        }
        R* to = out + (start + i) * out_stride + head * s.head_width;
        team.each(s.head_width, [&](std::size_t d) { to[d] = R(none ? A(0) : sum[d] / total); });
        if (team.leads())
          lse[(sequence * s.heads + head) * s.statistic_step + i] =
              none ? -Kokkos::Experimental::infinity_v<A> : top + Kokkos::log(total);
      });
}

template <class T, class R, class Exec>
void attention_rows_backward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in,
                             StridedRows<const T> output, StridedRows<const T> d_output, const accumulate_t<T>* lse,
                             const AttentionOperands<R>& gradients) {
  using A = accumulate_t<T>;
  using Team = row_team<Exec>;
  const T *const q = in.q, *const k = in.k, *const v = in.v, *const out = output.data, *const d_out = d_output.data;
  const std::size_t q_stride = in.q_stride, k_stride = in.k_stride, v_stride = in.v_stride, out_stride = output.stride,
                    d_out_stride = d_output.stride;
  R *const dq = gradients.q, *const dk = gradients.k, *const dv = gradients.v;
  const std::size_t dq_stride = gradients.q_stride, dk_stride = gradients.k_stride, dv_stride = gradients.v_stride;
  const AttentionShape s = shape;
  const A scale = A(1) / std::sqrt(A(s.head_width));
  const std::size_t items = s.sequences * s.heads * s.length;
  const std::size_t key_items = s.sequences * s.kv_heads * s.keys;
  const weft::detail::Buffer buffer = device.allocate((items + 2 * key_items) * s.head_width * sizeof(A) + items * sizeof(A));
  A* delta = static_cast<A*>(buffer.get());  // sum over d of d_out * out, per row and head
  A* workspace = delta + items;
  for_each_row(
      device,
      {"attention",
       items * ((3 * sizeof(T) + sizeof(R)) * s.head_width + 2 * sizeof(A)) + 2 * key_items * s.head_width * sizeof(T)},
      items, KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t i = item % s.length, head = item / s.length % s.heads, sequence = item / (s.length * s.heads);
        const std::size_t start = sequence * s.query_step, key_start = sequence * s.key_step;
        const std::size_t at = head * s.head_width, kv = head / s.group * s.head_width, range = sequence * s.length + i;
        const std::size_t first = s.mask.ranges() ? std::size_t(s.mask.first_key[range]) : 0,
                          keys = s.mask.ranges() ? std::size_t(s.mask.end_key[range])
                                 : s.causal      ? i + 1
                                                 : s.keys;
        const A statistic = lse[(sequence * s.heads + head) * s.statistic_step + i];
        const T* row = q + (start + i) * q_stride + at;
        const T* d_row = d_out + (start + i) * d_out_stride + at;
        const A agreement = dot(team, s.head_width, d_row, out + (start + i) * out_stride + at);
        if (team.leads()) delta[item] = agreement;
        A* sum = workspace + item * s.head_width;
        team.each(s.head_width, [&](std::size_t d) { sum[d] = 0; });
        for (std::size_t j = first; j < keys; ++j) {
          const T* key = k + (key_start + j) * k_stride + kv;
          A score = scale * dot(team, s.head_width, row, key);
          if (s.mask.arrays()) {
            score += s.mask.term<A>(s.mask.place(sequence, head, i) + j);
            if (score == -Kokkos::Experimental::infinity_v<A>) continue;
          }
          const A p = Kokkos::exp(score - statistic);
          const A ds = scale * p * (dot(team, s.head_width, d_row, v + (key_start + j) * v_stride + kv) - agreement);
          team.each(s.head_width, [&](std::size_t d) { sum[d] += ds * A(key[d]); });
        }
        R* to = dq + (start + i) * dq_stride + at;
        team.each(s.head_width, [&](std::size_t d) { to[d] = R(sum[d]); });
      });
  A* key_sums = workspace + items * s.head_width;
  for_each_row(
      device,
      {"attention",
       items * (2 * s.head_width * sizeof(T) + 2 * sizeof(A)) + 2 * key_items * s.head_width * (sizeof(T) + sizeof(R))},
      key_items, KOKKOS_LAMBDA(std::size_t item, Team team) {
        const std::size_t j = item % s.keys, kv_head = item / s.keys % s.kv_heads, sequence = item / (s.keys * s.kv_heads);
        const std::size_t start = sequence * s.query_step, key_start = sequence * s.key_step, kv = kv_head * s.head_width;
        const T* key = k + (key_start + j) * k_stride + kv;
        const T* value = v + (key_start + j) * v_stride + kv;
        A *dk_sum = key_sums + item * 2 * s.head_width, *dv_sum = dk_sum + s.head_width;
        team.each(s.head_width, [&](std::size_t d) { dk_sum[d] = 0, dv_sum[d] = 0; });
        for (std::size_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head)
          for (std::size_t i = s.causal && !s.mask.ranges() ? j : 0; i < s.length; ++i) {
            if (s.mask.ranges()) {
              const std::size_t range = sequence * s.length + i;
              if (std::size_t(s.mask.end_key[range]) <= j) continue;
              if (std::size_t(s.mask.first_key[range]) > j) break;  // all later queries begin after key j, too
            }
            const std::size_t at = head * s.head_width, item_of_row = (sequence * s.heads + head) * s.length + i;
            const T* row = q + (start + i) * q_stride + at;
            const T* d_row = d_out + (start + i) * d_out_stride + at;
            A score = scale * dot(team, s.head_width, row, key);
            if (s.mask.arrays()) {
              score += s.mask.term<A>(s.mask.place(sequence, head, i) + j);
              if (score == -Kokkos::Experimental::infinity_v<A>) continue;
            }
            const A p = Kokkos::exp(score - lse[(sequence * s.heads + head) * s.statistic_step + i]);
            const A ds = scale * p * (dot(team, s.head_width, d_row, value) - delta[item_of_row]);
            team.each(s.head_width, [&](std::size_t d) {
              dk_sum[d] += ds * A(row[d]);
              dv_sum[d] += p * A(d_row[d]);
            });
          }
        R *to_k = dk + (key_start + j) * dk_stride + kv, *to_v = dv + (key_start + j) * dv_stride + kv;
        team.each(s.head_width, [&](std::size_t d) {
          to_k[d] = R(dk_sum[d]);
          to_v[d] = R(dv_sum[d]);
        });
      });
}

}  // namespace weft::kernels::detail
