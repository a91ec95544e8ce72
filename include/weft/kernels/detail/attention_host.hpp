// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention on hosts, in tiles (FlashAttention-2, Dao 2023): a worker takes one key-value head of one sequence, packs its keys
// and values, and walks blocks of queries against blocks of keys. Nothing above the causal diagonal is computed but the corner of
// 8 rows by 2 registers that the diagonal cuts.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/attention_rows.hpp>
#include <weft/kernels/detail/attention_tiles.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

/// The pointers of one call and the loops over one (sequence, key-value head).
template <class V, class T>
struct AttentionHost {
  using A = accumulate_t<T>;
  static constexpr std::size_t query_block = 64, key_block = 256, backward_key_block = 128;

  AttentionShape shape;
  const T *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *d_out = nullptr;
  std::size_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0, d_out_stride = 0, dq_stride = 0, dk_stride = 0,
              dv_stride = 0;
  T *result = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  const A* lse_in = nullptr;
  A* lse = nullptr;
  A scale;
  std::size_t width, keys;  // head_width and length, padded to whole tiles

  explicit AttentionHost(const AttentionShape& s) : shape(s), scale(A(1) / std::sqrt(A(s.head_width))) {
    const auto padded = [](std::size_t n) { return (n + tile_columns<V> - 1) / tile_columns<V> * tile_columns<V>; };
    width = padded(s.head_width);
    keys = padded(s.length);
  }

  /// Runs `work(item, workspace)` for each (sequence, key-value head), each worker with `values` numbers of its own.
  template <class Exec, class Work>
  static void run(Device<Exec>& device, const AttentionShape& shape, std::size_t values, const Work& work) {
    const std::size_t items = shape.sequences * shape.kv_heads, workers = std::min(items, std::size_t(threads_of(device.exec())));
    const std::size_t each = (values + 63) / 64 * 64;
    const Buffer buffer = device.allocate(workers * each * sizeof(A));
    A* workspace = static_cast<A*>(buffer.get());
    for_each(device, workers, [=](std::size_t worker) {
      for (std::size_t item = worker; item < items; item += workers) work(item, workspace + worker * each);
    });
  }

  std::size_t forward_values() const {
    return 2 * keys * width + 2 * query_block * width + tile_rows * key_block + 2 * query_block;
  }

  WEFT_NOINLINE void forward(std::size_t item, A* workspace) const {
    const AttentionShape& s = shape;
    const std::size_t sequence = item / s.kv_heads, kv_head = item % s.kv_heads, start = sequence * s.length;
    A* const transposed_keys = workspace;              // [head_width, keys]
    A* const values = transposed_keys + keys * width;  // [keys, width]
    A* const queries = values + keys * width;          // [query_block, width], scaled
    A* const sums = queries + query_block * width;     // [query_block, width]
    A* const scores = sums + query_block * width;      // [8, key_block]
    A* const top = scores + tile_rows * key_block;     // [query_block]
    A* const total = top + query_block;                // [query_block]
    pack_transposed(s.length, s.head_width, keys, k + start * k_stride + kv_head * s.head_width, k_stride, transposed_keys);
    pack_rows<V>(s.length, s.length, s.head_width, width, A(1), v + start * v_stride + kv_head * s.head_width, v_stride, values);
    for (std::size_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head)
      for (std::size_t first = 0; first < s.length; first += query_block) {
        const std::size_t rows = std::min(query_block, s.length - first), groups = (rows + tile_rows - 1) / tile_rows;
        const std::size_t column = head * s.head_width;
        pack_rows<V>(rows, groups * tile_rows, s.head_width, width, scale, q + (start + first) * q_stride + column, q_stride,
                     queries);
        for (std::size_t block = 0; block < (s.causal ? first + rows : s.length); block += key_block)
          for (std::size_t group = 0; group < groups; ++group) {
            const std::size_t row = group * tile_rows;  // within the block
            const std::size_t end = s.causal ? std::min(first + row + tile_rows, s.length) : s.length;
            if (end <= block) continue;
            const std::size_t count = std::min(end - block, key_block);
            for (std::size_t j = 0; j < count; j += tile_columns<V>)
              multiply_tile<false, V>(s.head_width, queries + row * width, width, transposed_keys + block + j, keys, scores + j,
                                      key_block, false);
            for (std::size_t r = 0; r < tile_rows; ++r) {
              const std::size_t last = first + row + r + 1;  // keys that a causal row may see
              const std::size_t visible = s.causal ? (last > block ? std::min(last - block, count) : 0) : count;
              soften_row(scores + r * key_block, visible, count, block == 0, top[row + r], total[row + r],
                         sums + (row + r) * width);
            }
            for (std::size_t d = 0; d < width; d += tile_columns<V>)
              multiply_tile<false, V>(count, scores, key_block, values + block * width + d, width, sums + row * width + d, width,
                                      block != 0);
          }
        for (std::size_t r = 0; r < rows; ++r) {
          unpack_rows<V>(1, s.head_width, A(1) / total[r], sums + r * width, width,
                         result + (start + first + r) * out_stride + column, out_stride);
          lse[(sequence * s.heads + head) * s.length + first + r] = top[r] + std::log(total[r]);
        }
      }
  }

  /// scores [count] become exp(scores - maximum) up to `visible` and 0 beyond; what was summed for earlier keys is brought to the
  /// new maximum.
  void soften_row(A* scores, std::size_t visible, std::size_t count, bool first, A& top, A& total, A* sums) const {
    const A lowest = -std::numeric_limits<A>::infinity();
    std::size_t j = 0;
    V largest_so_far = V(lowest);
    for (; j + V::size <= visible; j += V::size) largest_so_far = max_of(V::load(scores + j), largest_so_far);
    if (j < visible) largest_so_far = max_of(V::load(scores + j, visible - j, lowest), largest_so_far);
    A maximum = visible == 0 ? lowest : largest(largest_so_far);
    if (!first) {
      if (visible == 0) maximum = top;
      maximum = maximum < top ? top : maximum;
      if (maximum > top) {
        const A shrink = std::exp(top - maximum);
        total *= shrink;
        for (std::size_t d = 0; d < width; d += V::size) (V::load(sums + d) * V(shrink)).store(sums + d);
      }
    }
    V sum_exp = V(0);
    const V shift = V(maximum);
    for (j = 0; j + V::size <= visible; j += V::size) {
      const V p = exp(V::load(scores + j) - shift);
      sum_exp = sum_exp + p;
      p.store(scores + j);
    }
    if (j < visible) {
      const V p = exp(V::load(scores + j, visible - j, lowest) - shift);
      sum_exp = sum_exp + p;
      p.store(scores + j);
      j += V::size;
    }
    for (; j < count; j += V::size) V(0).store(scores + j);
    top = maximum;
    total = (first ? A(0) : total) + sum(sum_exp);
  }

  std::size_t backward_values() const {
    return 5 * keys * width + 3 * query_block * width + 2 * query_block * backward_key_block + query_block;
  }

  WEFT_NOINLINE void backward(std::size_t item, A* workspace) const {
    const AttentionShape& s = shape;
    constexpr std::size_t ld = backward_key_block;
    const std::size_t sequence = item / s.kv_heads, kv_head = item % s.kv_heads, start = sequence * s.length;
    A* const transposed_keys = workspace;                           // [head_width, keys]
    A* const transposed_values = transposed_keys + keys * width;    // [head_width, keys]
    A* const key_rows = transposed_values + keys * width;           // [keys, width]
    A* const key_gradient = key_rows + keys * width;                // [keys, width]
    A* const value_gradient = key_gradient + keys * width;          // [keys, width]
    A* const queries = value_gradient + keys * width;               // [query_block, width], scaled
    A* const gradients = queries + query_block * width;             // [query_block, width]
    A* const query_gradient = gradients + query_block * width;      // [query_block, width]
    A* const probabilities = query_gradient + query_block * width;  // [query_block, ld]
    A* const d_scores = probabilities + query_block * ld;           // [query_block, ld]
    A* const delta = d_scores + query_block * ld;                   // [query_block]: sum over d of d_out * out
    const std::size_t kv_column = kv_head * s.head_width;
    pack_transposed(s.length, s.head_width, keys, k + start * k_stride + kv_column, k_stride, transposed_keys);
    pack_transposed(s.length, s.head_width, keys, v + start * v_stride + kv_column, v_stride, transposed_values);
    pack_rows<V>(s.length, s.length, s.head_width, width, A(1), k + start * k_stride + kv_column, k_stride, key_rows);
    for (std::size_t i = 0; i < 2 * keys * width; i += V::size) V(0).store(key_gradient + i);
    for (std::size_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head)
      for (std::size_t first = 0; first < s.length; first += query_block) {
        const std::size_t rows = std::min(query_block, s.length - first), groups = (rows + tile_rows - 1) / tile_rows;
        const std::size_t column = head * s.head_width, row_count = groups * tile_rows;
        const T* d_from = d_out + (start + first) * d_out_stride + column;
        pack_rows<V>(rows, row_count, s.head_width, width, scale, q + (start + first) * q_stride + column, q_stride, queries);
        pack_rows<V>(rows, row_count, s.head_width, width, A(1), d_from, d_out_stride, gradients);
        for (std::size_t r = 0; r < rows; ++r) {
          V product = V(0);
          const T* from = out + (start + first + r) * out_stride + column;
          sweep<V>(s.head_width, [&](std::size_t d, std::size_t n) {
            product = product + V::load(from + d, n) * V::load(gradients + r * width + d, n);
          });
          delta[r] = sum(product);
        }
        const A* statistic = lse_in + (sequence * s.heads + head) * s.length + first;
        const std::size_t all_keys = s.causal ? first + rows : s.length;
        for (std::size_t block = 0; block < all_keys; block += ld) {
          for (std::size_t group = 0; group < groups; ++group) {
            const std::size_t row = group * tile_rows;
            const std::size_t end = s.causal ? std::min(first + row + tile_rows, s.length) : s.length;
            if (end <= block) continue;
            const std::size_t count = std::min(end - block, ld);
            A *const p = probabilities + row * ld, *const ds = d_scores + row * ld;
            for (std::size_t j = 0; j < count; j += tile_columns<V>) {
              multiply_tile<false, V>(s.head_width, queries + row * width, width, transposed_keys + block + j, keys, p + j, ld,
                                      false);
              multiply_tile<false, V>(s.head_width, gradients + row * width, width, transposed_values + block + j, keys, ds + j,
                                      ld, false);
            }
            for (std::size_t r = 0; r < tile_rows; ++r) {
              const std::size_t last = first + row + r + 1;
              std::size_t visible = s.causal ? (last > block ? std::min(last - block, count) : 0) : count;
              if (row + r >= rows) visible = 0;
              differentiate_row(p + r * ld, ds + r * ld, visible, count, visible == 0 ? A(0) : statistic[row + r],
                                delta[row + r]);
            }
            for (std::size_t d = 0; d < width; d += tile_columns<V>)
              multiply_tile<false, V>(count, ds, ld, key_rows + block * width + d, width, query_gradient + row * width + d, width,
                                      block != 0);
          }
          const std::size_t key_count = std::min(all_keys - block, ld);
          for (std::size_t j = 0; j < key_count; j += tile_rows) {
            const std::size_t row = s.causal && block + j > first ? block + j - first : 0;  // the first row that sees key j
            for (std::size_t d = 0; d < width; d += tile_columns<V>) {
              multiply_tile<true, V>(row_count - row, probabilities + row * ld + j, ld, gradients + row * width + d, width,
                                     value_gradient + (block + j) * width + d, width, true);
              multiply_tile<true, V>(row_count - row, d_scores + row * ld + j, ld, queries + row * width + d, width,
                                     key_gradient + (block + j) * width + d, width, true);
            }
          }
        }
        unpack_rows<V>(rows, s.head_width, scale, query_gradient, width, dq + (start + first) * dq_stride + column, dq_stride);
      }
    unpack_rows<V>(s.length, s.head_width, A(1), key_gradient, width, dk + start * dk_stride + kv_column, dk_stride);
    unpack_rows<V>(s.length, s.head_width, A(1), value_gradient, width, dv + start * dv_stride + kv_column, dv_stride);
  }

  /// Scores become probabilities, d_probabilities the gradient of the scores; both are 0 from `visible` to `count`.
  static void differentiate_row(A* scores, A* d_scores, std::size_t visible, std::size_t count, A statistic, A delta) {
    std::size_t j = 0;
    const V shift = V(statistic), mean = V(delta);
    for (; j + V::size <= visible; j += V::size) {
      const V p = exp(V::load(scores + j) - shift);
      p.store(scores + j);
      (p * (V::load(d_scores + j) - mean)).store(d_scores + j);
    }
    if (j < visible) {
      const V p = exp(V::load(scores + j, visible - j, -std::numeric_limits<A>::infinity()) - shift);
      p.store(scores + j);
      (p * (V::load(d_scores + j) - mean)).store(d_scores + j);
      j += V::size;
    }
    for (; j < count; j += V::size) {
      V(0).store(scores + j);
      V(0).store(d_scores + j);
    }
  }
};

template <class T, class Exec>
void attention_host_forward(Device<Exec>& device, const AttentionShape& shape, const T* q, std::size_t q_stride, const T* k,
                            std::size_t k_stride, const T* v, std::size_t v_stride, T* out, std::size_t out_stride,
                            accumulate_t<T>* lse) {
  using Loops = AttentionHost<lanes_for<Exec, T>, T>;
  Loops loops(shape);
  loops.q = q, loops.k = k, loops.v = v, loops.result = out, loops.lse = lse;
  loops.q_stride = q_stride, loops.k_stride = k_stride, loops.v_stride = v_stride, loops.out_stride = out_stride;
  Loops::run(device, shape, loops.forward_values(),
             [=](std::size_t item, accumulate_t<T>* workspace) { loops.forward(item, workspace); });
}

template <class T, class Exec>
void attention_host_backward(Device<Exec>& device, const AttentionShape& shape, const T* q, std::size_t q_stride, const T* k,
                             std::size_t k_stride, const T* v, std::size_t v_stride, const T* out, std::size_t out_stride,
                             const T* d_out, std::size_t d_out_stride, const accumulate_t<T>* lse, T* dq, std::size_t dq_stride,
                             T* dk, std::size_t dk_stride, T* dv, std::size_t dv_stride) {
  using Loops = AttentionHost<lanes_for<Exec, T>, T>;
  Loops loops(shape);
  loops.q = q, loops.k = k, loops.v = v, loops.out = out, loops.d_out = d_out, loops.lse_in = lse;
  loops.dq = dq, loops.dk = dk, loops.dv = dv;
  loops.q_stride = q_stride, loops.k_stride = k_stride, loops.v_stride = v_stride, loops.out_stride = out_stride;
  loops.d_out_stride = d_out_stride, loops.dq_stride = dq_stride, loops.dk_stride = dk_stride, loops.dv_stride = dv_stride;
  Loops::run(device, shape, loops.backward_values(),
             [=](std::size_t item, accumulate_t<T>* workspace) { loops.backward(item, workspace); });
}

}  // namespace weft::kernels::detail
