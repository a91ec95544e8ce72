// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention on hosts, in tiles (FlashAttention-2, Dao 2023). A worker takes one key-value head of one sequence, packs its keys
// and values, and loops over blocks of queries and blocks of keys. With a causal mask, it skips everything above the diagonal in
// units of 8 rows by 2 registers. With other masks (attention_hidden.hpp) it skips tiles whose keys are all hidden.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/attention_hidden.hpp>
#include <weft/kernels/detail/attention_pairs.hpp>
#include <weft/kernels/detail/attention_rows.hpp>
#include <weft/kernels/detail/attention_tiles.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

/// The tiles for values of type T: pairs of bfloat16 if the processor multiplies them, otherwise single numbers.
template <class V, class T>
struct TilesFor {
  using type = NumberTiles<V, T>;
};
#if WEFT_COMPILER_VECTORS && defined(__AVX512BF16__)
template <class V>
struct TilesFor<V, bfloat16> {
  using type = PairTiles;
};
#endif

/// The pointers of one call and the loops over one (sequence, key-value head). R is the type of the results.
template <class V, class T, class R>
struct AttentionHost {
  using A = accumulate_t<T>;
  using Tiles = typename TilesFor<V, T>::type;
  using Operand = typename Tiles::Operand;
  static constexpr std::size_t depth = Tiles::depth, columns = Tiles::columns;
  static constexpr std::size_t query_block = 64, key_block = 256, backward_key_block = 128;
  static_assert(sizeof(Operand) == sizeof(A), "scores turn into operands in place");

  AttentionShape shape;
  bool masked;  // the shape's mask has ranges
  const T *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *d_out = nullptr;
  std::size_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0, d_out_stride = 0, dq_stride = 0, dk_stride = 0,
              dv_stride = 0;
  R *result = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  const A* lse_in = nullptr;
  A* lse = nullptr;
  A scale;
  std::size_t width, keys, operands;  // head_width and keys padded to whole tiles; operands along head_width

  explicit AttentionHost(const AttentionShape& s)
      : shape(s),
        masked(s.mask.ranges()),
        scale(A(1) / std::sqrt(A(s.head_width))),
        operands((s.head_width + depth - 1) / depth) {
    const auto padded = [](std::size_t n, std::size_t step) { return (n + step - 1) / step * step; };
    width = padded(s.head_width, columns);
    keys = padded(s.keys, std::max(columns, tile_rows));  // keys are also rows of a tile
  }

  /// Runs `work(item, workspace)` for each (sequence, key-value head), with `values` numbers as workspace.
  template <class Exec, class Work>
  static void run(Device<Exec>& device, Traffic traffic, const AttentionShape& shape, std::size_t values, const Work& work) {
    const std::size_t items = shape.sequences * shape.kv_heads, rows = shape.sequences * shape.length * shape.heads;
    const std::size_t threads = std::size_t(device.threads()), each = (values + 63) / 64 * 64;
    const weft::detail::Buffer buffer = device.allocate(std::min(items, threads) * each * sizeof(A));
    char* const workspace = static_cast<char*>(buffer.get());
    const auto run_item = [=](std::size_t item, std::size_t thread) {
      work(item, workspace + (items < threads ? item : thread) * each * sizeof(A));
    };
    if (threads_for(device, rows * shape.keys * shape.head_width) > 1 || device.rehearsal() != nullptr)
      return for_each_piece(device, traffic, items, run_item);
    const weft::detail::ObservedKernel kernel(traffic.kind);
    for (std::size_t item = 0; item < items; ++item) work(item, workspace);
  }

  /// Allocates parts of a worker's memory.
  struct Workspace {
    char* next;
    template <class N>
    N* take(std::size_t count) {
      N* const taken = reinterpret_cast<N*>(next);
      next += count * sizeof(N);
      return taken;
    }
  };

  HiddenKeys<A> hidden() const { return {shape, std::max(columns, tile_rows)}; }
  KeySpan tile_keys(std::size_t sequence, std::size_t first, std::size_t block, std::size_t block_size) const {
    if (masked) return hidden().tile_keys(sequence, first, block, block_size);
    return {0, visible_keys(first, block, block_size)};
  }
  KeySpan block_keys(std::size_t sequence, std::size_t first, std::size_t rows) const {
    if (masked) return hidden().block_keys(sequence, first, rows);
    return {0, shape.causal ? first + rows : shape.keys};
  }

  /// The number of a block's keys that rows [first, first + tile_rows) can use.
  std::size_t visible_keys(std::size_t first, std::size_t block, std::size_t block_size) const {
    const std::size_t end = shape.causal ? std::min(first + tile_rows, shape.length) : shape.keys;
    return end <= block ? 0 : std::min(end - block, block_size);
  }
  /// The number of the `count` keys from `block` on that the row `row` of the sequence can use.
  std::size_t visible_to(std::size_t row, std::size_t block, std::size_t count) const {
    if (row >= shape.length) return 0;
    if (masked) return count;  // `hide` treats the others
    return !shape.causal ? count : row < block ? 0 : std::min(row + 1 - block, count);
  }

  std::size_t forward_values() const {
    return 2 * keys * width + 2 * query_block * width + tile_rows * key_block + 2 * query_block;
  }

  WEFT_NOINLINE void forward(std::size_t item, char* memory) const {
    const AttentionShape& s = shape;
    const std::size_t sequence = item / s.kv_heads, kv_head = item % s.kv_heads;
    const std::size_t start = sequence * s.query_step, key_start = sequence * s.key_step;
    Workspace workspace{memory};
    Operand* const transposed_keys = workspace.template take<Operand>(keys * width);  // [operands, keys]
    Operand* const values = workspace.template take<Operand>(keys * width);           // [keys / depth, width]
    Operand* const queries = workspace.template take<Operand>(query_block * width);   // [query_block, width]
    A* const sums = workspace.template take<A>(query_block * width);                  // [query_block, width]
    A* const scores = workspace.template take<A>(tile_rows * key_block);              // [tile_rows, key_block]
    A* const top = workspace.template take<A>(query_block);
    A* const total = workspace.template take<A>(query_block);
    Tiles::right_transposed(s.keys, s.head_width, keys, k + key_start * k_stride + kv_head * s.head_width, k_stride,
                            transposed_keys);
    Tiles::right(s.keys, keys, s.head_width, width, v + key_start * v_stride + kv_head * s.head_width, v_stride, values);
    for (std::size_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head)
      for (std::size_t first = 0; first < s.length; first += query_block) {
        const std::size_t rows = std::min(query_block, s.length - first),
                          padded_rows = (rows + tile_rows - 1) / tile_rows * tile_rows;
        const std::size_t column = head * s.head_width;
        Tiles::left(rows, padded_rows, s.head_width, width, q + (start + first) * q_stride + column, q_stride, queries);
        const KeySpan all = block_keys(sequence, first, rows);
        if (masked) {  // rows begin in different blocks of keys, and a row may have no key
          std::fill(sums, sums + padded_rows * width, A(0));
          std::fill(top, top + padded_rows, -std::numeric_limits<A>::infinity());
          std::fill(total, total + padded_rows, A(0));
        }
        for (std::size_t block = all.from / key_block * key_block; block < all.end; block += key_block)
          for (std::size_t row = 0; row < padded_rows; row += tile_rows) {
            const KeySpan span = tile_keys(sequence, first + row, block, key_block);
            if (span.empty() || (masked && hidden().all_hidden(sequence, head, first + row, block, span))) continue;
            const std::size_t from = span.from, count = span.end;
            const bool fresh = !masked && block == 0;
            for (std::size_t j = from; j < count; j += columns)
              Tiles::template multiply<false>(operands, queries + row * width, width, transposed_keys + block + j, keys,
                                              scores + j, key_block, false);
            for (std::size_t r = row; r < row + tile_rows; ++r) {
              if (masked) hidden().hide(scores + (r - row) * key_block, sequence, head, first + r, block, span, scale);
              soften_row(scores + (r - row) * key_block + from, visible_to(first + r, block, count - from), count - from, fresh,
                         top[r], total[r], sums + r * width);
            }
            for (std::size_t d = 0; d < width; d += columns)
              Tiles::template multiply<false>((count - from + depth - 1) / depth, reinterpret_cast<const Operand*>(scores + from),
                                              key_block, values + (block + from) / depth * width + d, width,
                                              sums + row * width + d, width, !fresh);
          }
        for (std::size_t r = 0; r < rows; ++r) {
          const bool none = masked && total[r] == A(0);  // a row without keys: 0, with no weight in a merge
          unpack_rows<V>(1, s.head_width, none ? A(0) : A(1) / total[r], sums + r * width, width,
                         result + (start + first + r) * out_stride + column, out_stride);
          lse[(sequence * s.heads + head) * s.statistic_step + first + r] = top[r] + std::log(total[r]);
        }
      }
  }

  /// Converts scores [count] in place to operands of exp(scale * scores - maximum), 0 from `visible` on, and rescales the sums of
  /// earlier keys to the new maximum.
  void soften_row(A* scores, std::size_t visible, std::size_t count, bool first, A& top, A& total, A* sums) const {
    const A lowest = -std::numeric_limits<A>::infinity();
    const std::size_t whole = visible / V::size * V::size;
    V best = V(lowest);
    for (std::size_t j = 0; j < whole; j += V::size) best = max_of(V::load(scores + j), best);
    if (whole < visible) best = max_of(V::first(V::load(scores + whole), visible - whole, lowest), best);
    A maximum = visible == 0 ? A(0) : scale * largest(best);
    if (!first) {
      maximum = visible == 0 || maximum < top ? top : maximum;
      if (maximum > top) {
        const A shrink = std::exp(top - maximum);
        total *= shrink;
        for (std::size_t d = 0; d < width; d += V::size) (V::load(sums + d) * V(shrink)).store(sums + d);
      }
    }
    auto* const probabilities = reinterpret_cast<typename Tiles::Element*>(scores);
    V sum_exp = V(A(0));
    const V shift = V(masked && maximum == lowest ? A(0) : maximum);
    for (std::size_t j = 0; j < whole; j += V::size) {
      const V p = exp(V::load(scores + j) * V(scale) - shift);
      sum_exp = sum_exp + p;
      p.store(probabilities + j);
    }
    for (std::size_t j = whole; j < count; j += V::size) {
      const V p = exp(V::first(V::load(scores + j) * V(scale), visible > j ? visible - j : 0, lowest) - shift);
      sum_exp = sum_exp + p;
      p.store(probabilities + j);
    }
    top = maximum;
    total = (first ? A(0) : total) + sum(sum_exp);
  }

  std::size_t backward_values() const {
    return 5 * keys * width + 5 * query_block * width + 2 * (query_block + tile_rows) * backward_key_block + 2 * query_block;
  }

  WEFT_NOINLINE void backward(std::size_t item, char* memory) const {
    const AttentionShape& s = shape;
    constexpr std::size_t ld = backward_key_block;
    const std::size_t sequence = item / s.kv_heads, kv_head = item % s.kv_heads;
    const std::size_t start = sequence * s.query_step, key_start = sequence * s.key_step;
    Workspace workspace{memory};
    Operand* const transposed_keys = workspace.template take<Operand>(keys * width);    // [operands, keys]
    Operand* const transposed_values = workspace.template take<Operand>(keys * width);  // [operands, keys]
    Operand* const key_rows = workspace.template take<Operand>(keys * width);           // [keys / depth, width]
    A* const key_gradient = workspace.template take<A>(keys * width);                   // [keys, width]
    A* const value_gradient = workspace.template take<A>(keys * width);                 // [keys, width]
    Operand* const queries = workspace.template take<Operand>(query_block * width);     // [query_block, width]
    Operand* const gradients = workspace.template take<Operand>(query_block * width);   // [query_block, width], of the output
    Operand* query_columns = workspace.template take<Operand>(query_block * width);     // [query_block / depth, width]
    Operand* gradient_columns = workspace.template take<Operand>(query_block * width);  // [query_block / depth, width]
    A* const query_gradient = workspace.template take<A>(query_block * width);          // [query_block, width]
    A* const scores = workspace.template take<A>(tile_rows * ld);                       // [tile_rows, ld]
    A* const d_scores = workspace.template take<A>(tile_rows * ld);                     // [tile_rows, ld]
    Operand* const probability_columns = workspace.template take<Operand>(query_block * ld);  // [query_block / depth, ld]
    Operand* const d_score_columns = workspace.template take<Operand>(query_block * ld);      // [query_block / depth, ld]
    A* const statistic = workspace.template take<A>(query_block);
    A* const delta = workspace.template take<A>(query_block);  // sum over d of d_out * out
    if constexpr (depth == 1) query_columns = queries, gradient_columns = gradients;
    const std::size_t kv_column = kv_head * s.head_width;
    Tiles::right_transposed(s.keys, s.head_width, keys, k + key_start * k_stride + kv_column, k_stride, transposed_keys);
    Tiles::right_transposed(s.keys, s.head_width, keys, v + key_start * v_stride + kv_column, v_stride, transposed_values);
    Tiles::right(s.keys, keys, s.head_width, width, k + key_start * k_stride + kv_column, k_stride, key_rows);
    for (std::size_t i = 0; i < 2 * keys * width; i += V::size) V(A(0)).store(key_gradient + i);
    for (std::size_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head)
      for (std::size_t first = 0; first < s.length; first += query_block) {
        const std::size_t rows = std::min(query_block, s.length - first),
                          padded_rows = (rows + tile_rows - 1) / tile_rows * tile_rows;
        const std::size_t column = head * s.head_width;
        const KeySpan all = block_keys(sequence, first, rows);
        const T* const q_rows = q + (start + first) * q_stride + column;
        const T* const d_rows = d_out + (start + first) * d_out_stride + column;
        Tiles::left(rows, padded_rows, s.head_width, width, q_rows, q_stride, queries);
        Tiles::left(rows, padded_rows, s.head_width, width, d_rows, d_out_stride, gradients);
        if constexpr (depth > 1) {
          Tiles::right(rows, padded_rows, s.head_width, width, q_rows, q_stride, query_columns);
          Tiles::right(rows, padded_rows, s.head_width, width, d_rows, d_out_stride, gradient_columns);
        }
        for (std::size_t r = 0; r < padded_rows; ++r) {
          V product = V(A(0));
          fetch(out + (start + first + r + rows_ahead) * out_stride + column, s.head_width);
          if (r < rows)
            sweep<V>(s.head_width, [&](std::size_t d, std::size_t n) {
              product = product + V::load(out + (start + first + r) * out_stride + column + d, n) *
                                      V::load(d_rows + r * d_out_stride + d, n);
            });
          delta[r] = sum(product);
          statistic[r] = r < rows ? lse_in[(sequence * s.heads + head) * s.statistic_step + first + r] : A(0);
          if (masked && statistic[r] == -std::numeric_limits<A>::infinity()) statistic[r] = -statistic[r];  // no key
        }
        if (masked) std::fill(query_gradient, query_gradient + padded_rows * width, A(0));
        for (std::size_t block = all.from / ld * ld; block < all.end; block += ld) {
          KeySpan spans[query_block / tile_rows];  // under a mask
          for (std::size_t row = 0; row < padded_rows; row += tile_rows) {
            KeySpan span = tile_keys(sequence, first + row, block, ld);
            if (masked) {
              if (!span.empty() && hidden().all_hidden(sequence, head, first + row, block, span)) span = {0, 0};
              spans[row / tile_rows] = span;
            }
            if (span.empty()) continue;
            const std::size_t from = span.from, count = span.end;
            for (std::size_t j = from; j < count; j += columns) {
              Tiles::template multiply<false>(operands, queries + row * width, width, transposed_keys + block + j, keys,
                                              scores + j, ld, false);
              Tiles::template multiply<false>(operands, gradients + row * width, width, transposed_values + block + j, keys,
                                              d_scores + j, ld, false);
            }
            if (masked)
              for (std::size_t r = row; r < row + tile_rows; ++r)
                hidden().hide(scores + (r - row) * ld, sequence, head, first + r, block, span, scale);
            for (std::size_t r = row; r < row + tile_rows; r += depth)
              differentiate_rows(scores + (r - row) * ld + from, d_scores + (r - row) * ld + from, first + r, block, count - from,
                                 statistic + r, delta + r, probability_columns + r / depth * ld + from,
                                 d_score_columns + r / depth * ld + from);
            for (std::size_t d = 0; d < width; d += columns)
              Tiles::template multiply<false>((count - from + depth - 1) / depth,
                                              reinterpret_cast<const Operand*>(d_scores + from), ld,
                                              key_rows + (block + from) / depth * width + d, width,
                                              query_gradient + row * width + d, width, masked || block != 0);
          }
          const std::size_t key_count = std::min(all.end - block, ld);
          for (std::size_t j = 0; j < key_count; j += tile_rows) {
            const auto add_rows = [&](std::size_t row, std::size_t end_row) {
              for (std::size_t d = 0; d < width; d += columns) {
                const std::size_t count = (end_row - row) / depth, from = row / depth;
                Tiles::template multiply<true>(count, probability_columns + from * ld + j, ld,
                                               gradient_columns + from * width + d, width,
                                               value_gradient + (block + j) * width + d, width, true);
                Tiles::template multiply<true>(count, d_score_columns + from * ld + j, ld, query_columns + from * width + d,
                                               width, key_gradient + (block + j) * width + d, width, true);
              }
            };
            if (masked) {
              const auto sees = [&](std::size_t row) {
                return spans[row / tile_rows].from <= j && j < spans[row / tile_rows].end;
              };
              for (std::size_t row = 0, end_row = 0; row < padded_rows; row = end_row + tile_rows) {
                for (end_row = row; end_row < padded_rows && sees(end_row);) end_row += tile_rows;
                if (end_row != row) add_rows(row, end_row);
              }
            } else {
              add_rows(s.causal && block + j > first ? block + j - first : 0, padded_rows);  // from the first row that uses key j
            }
          }
        }
        unpack_rows<V>(rows, s.head_width, scale, query_gradient, width, dq + (start + first) * dq_stride + column, dq_stride);
      }
    unpack_rows<V>(s.keys, s.head_width, scale, key_gradient, width, dk + key_start * dk_stride + kv_column, dk_stride);
    unpack_rows<V>(s.keys, s.head_width, A(1), value_gradient, width, dv + key_start * dv_stride + kv_column, dv_stride);
  }

  /// Converts `depth` rows of scores to probabilities p, and those of d_scores to p * (d_scores - delta), both 0 for keys that a
  /// row cannot use. Writes the latter in place as left operands, and both as operands along the rows.
  void differentiate_rows(A* scores, A* d_scores, std::size_t row, std::size_t block, std::size_t count, const A* statistic,
                          const A* delta, Operand* probability_columns, Operand* d_score_columns) const {
    constexpr std::size_t ld = backward_key_block;
    const A lowest = -std::numeric_limits<A>::infinity();
    for (std::size_t j = 0; j < count; j += V::size) {
      V p[depth], ds[depth];
      for (std::size_t r = 0; r < depth; ++r) {
        const std::size_t visible = visible_to(row + r, block, count);
        V score = V::load(scores + r * ld + j) * V(scale);
        if (visible < j + V::size) score = V::first(score, visible > j ? visible - j : 0, lowest);
        p[r] = exp(score - V(statistic[r]));
        ds[r] = p[r] * (V::load(d_scores + r * ld + j) - V(delta[r]));
        ds[r].store(reinterpret_cast<typename Tiles::Element*>(d_scores + r * ld) + j);
      }
      Tiles::store_column(p, probability_columns + j);
      Tiles::store_column(ds, d_score_columns + j);
    }
  }
};

template <class T, class R, class Exec>
void attention_host_forward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in,
                            StridedRows<R> out, accumulate_t<T>* lse) {
  using Loops = AttentionHost<lanes_for<Exec, T>, T, R>;
  Loops loops(shape);
  loops.q = in.q, loops.k = in.k, loops.v = in.v, loops.result = out.data, loops.lse = lse;
  loops.q_stride = in.q_stride, loops.k_stride = in.k_stride, loops.v_stride = in.v_stride, loops.out_stride = out.stride;
  Loops::run(device, {"attention", attention_bytes<T, R>(shape)}, shape, loops.forward_values(),
             [=](std::size_t item, char* workspace) { loops.forward(item, workspace); });
}

template <class T, class R, class Exec>
void attention_host_backward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in,
                             StridedRows<const T> out, StridedRows<const T> d_out, const accumulate_t<T>* lse,
                             const AttentionOperands<R>& d) {
  using Loops = AttentionHost<lanes_for<Exec, T>, T, R>;
  Loops loops(shape);
  loops.q = in.q, loops.k = in.k, loops.v = in.v, loops.out = out.data, loops.d_out = d_out.data, loops.lse_in = lse;
  loops.dq = d.q, loops.dk = d.k, loops.dv = d.v;
  loops.q_stride = in.q_stride, loops.k_stride = in.k_stride, loops.v_stride = in.v_stride, loops.out_stride = out.stride;
  loops.d_out_stride = d_out.stride, loops.dq_stride = d.q_stride, loops.dk_stride = d.k_stride, loops.dv_stride = d.v_stride;
  Loops::run(device, {"attention", attention_backward_bytes<T, R>(shape)}, shape, loops.backward_values(),
             [=](std::size_t item, char* workspace) { loops.backward(item, workspace); });
}

}  // namespace weft::kernels::detail
