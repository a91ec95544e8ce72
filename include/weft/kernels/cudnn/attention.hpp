// SPDX-License-Identifier: Apache-2.0
#pragma once
// Softmax attention, forward and backward, by cuDNN's fused kernels (FlashAttention-2, Dao 2023). The graph of a shape is
// compiled once and cached. It takes only pointers and strides; kernels/cudnn/use.hpp connects it to a device.
//
//   cudnn::Attention attention(false);
//   const std::size_t bytes = attention.forward_workspace(key);   // npos: cuDNN has no kernel for this shape
//   attention.forward(key, q, k, v, out, log_sum_exp, workspace, stream);

#include <cudnn.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <weft/core/checked.hpp>
#include <weft/kernels/cudnn/graph.hpp>

namespace weft::cudnn {

/// The distance between rows of each matrix, in values.
struct Strides {
  std::size_t q = 0, k = 0, v = 0, out = 0, d_out = 0, dq = 0, dk = 0, dv = 0;
  bool operator==(const Strides&) const = default;
};

/// The shape of a kernels::AttentionBlock: `queries` rows of each of `sequences` with `keys` rows; sequences are query_step and
/// key_step rows apart; log-sum-exp is [sequences, heads, statistic_step] in float.
struct AttentionKey {
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;      ///< of q, k, v and out
  cudnnDataType_t out_type = CUDNN_DATA_BFLOAT16;  ///< of the results: out in the forward, dq, dk and dv in the backward
  std::size_t sequences = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_width = 0;
  std::size_t query_step = 0, key_step = 0, statistic_step = 0;
  bool causal = true;
  Strides strides = {};
  bool operator==(const AttentionKey&) const = default;

  /// True if the backward writes dk and dv per query head, [sequences, keys, heads, head_width], whatever their strides, and the
  /// caller adds the heads that share a key-value head: cuDNN can add them only in 16 bits.
  bool splits_groups() const { return heads != kv_heads && out_type == CUDNN_DATA_FLOAT; }
};

namespace detail {

enum Name : std::int64_t {
  name_q = 1,
  name_k,
  name_v,
  name_out,
  name_statistics,
  name_d_out,
  name_dq,
  name_dk,
  name_dv,
  name_delta,
  name_dq_sums
};

inline std::int64_t extent(std::size_t n) { return weft::detail::narrow<std::int64_t>(n, "an extent of attention"); }

/// Dims and strides of [sequences, heads, rows, head_width], or with the last two exchanged.
struct Layout {
  Dims dims, strides;
  Layout(std::size_t sequences, std::size_t heads, std::size_t rows, std::size_t width, std::size_t step, std::size_t stride)
      : dims{extent(sequences), extent(heads), extent(rows), extent(width)},
        strides{extent(step * stride), extent(width), extent(stride), 1} {}
  Layout transposed() const {
    Layout other = *this;
    std::swap(other.dims[2], other.dims[3]);
    std::swap(other.strides[2], other.strides[3]);
    return other;
  }
};

inline Graph::Value masked(Graph& graph, Graph::Value scores, const Dims& dims, bool causal) {
  if (!causal) return scores;
  const auto row =
      graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, {scores}, graph.between(dims, CUDNN_DATA_INT32), CUDNN_DATA_FLOAT, 2);
  const auto column =
      graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, {scores}, graph.between(dims, CUDNN_DATA_INT32), CUDNN_DATA_FLOAT, 3);
  const auto seen =
      graph.pointwise(CUDNN_POINTWISE_CMP_GE, {row, column}, graph.between(dims, CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN);
  return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, graph.constant(-std::numeric_limits<float>::infinity()), seen},
                         graph.between(dims));
}

inline float scale_of(const AttentionKey& key) { return 1.f / std::sqrt(float(key.head_width)); }

/// softmax(q kᵀ / sqrt(head_width)) v, and log(sum(exp(scores))).
inline Graph forward_graph(const AttentionKey& key) {
  const Layout q(key.sequences, key.heads, key.queries, key.head_width, key.query_step, key.strides.q);
  const Layout k(key.sequences, key.kv_heads, key.keys, key.head_width, key.key_step, key.strides.k);
  const Layout v(key.sequences, key.kv_heads, key.keys, key.head_width, key.key_step, key.strides.v);
  const Layout out(key.sequences, key.heads, key.queries, key.head_width, key.query_step, key.strides.out);
  const Dims square{q.dims[0], q.dims[1], q.dims[2], k.dims[2]}, column{q.dims[0], q.dims[1], q.dims[2], 1};
  const Dims statistics{extent(key.heads * key.statistic_step), extent(key.statistic_step), 1, 1};
  Graph graph(key.type);
  const auto products = graph.multiply(graph.memory(name_q, q.dims, q.strides),
                                       graph.memory(name_k, k.transposed().dims, k.transposed().strides), graph.between(square));
  const auto scaled = graph.pointwise(CUDNN_POINTWISE_MUL, {products, graph.constant(scale_of(key))}, graph.between(square));
  const auto scores = masked(graph, scaled, square, key.causal);
  const auto top = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, graph.between(column));
  const auto less = graph.pointwise(CUDNN_POINTWISE_SUB, {scores, top}, graph.between(square));
  const auto powers = graph.pointwise(CUDNN_POINTWISE_EXP, {less}, graph.between(square));
  const auto sums = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, graph.between(column));
  const auto logs = graph.pointwise(CUDNN_POINTWISE_LOG, {sums}, graph.between(column));
  graph.pointwise(CUDNN_POINTWISE_ADD, {top, logs}, graph.memory(name_statistics, column, statistics, CUDNN_DATA_FLOAT));
  const auto probabilities = graph.pointwise(CUDNN_POINTWISE_DIV, {powers, sums}, graph.between(square, key.type));
  graph.multiply(probabilities, graph.memory(name_v, v.dims, v.strides),
                 graph.memory(name_out, out.dims, out.strides, key.out_type));
  return graph;
}

/// Gradients of q, k and v, with the probabilities recomputed from the log-sum-exp. Its kernels exchange `delta` (the sum over a
/// row of d_out * out) through memory. Unless the bits must be the same, they also exchange float sums of dq, to which blocks of
/// keys add in any order.
inline Graph backward_graph(const AttentionKey& key, bool same_bits = false) {
  const Layout q(key.sequences, key.heads, key.queries, key.head_width, key.query_step, key.strides.q);
  const Layout k(key.sequences, key.kv_heads, key.keys, key.head_width, key.key_step, key.strides.k);
  const Layout v(key.sequences, key.kv_heads, key.keys, key.head_width, key.key_step, key.strides.v);
  const auto of_queries = [&](std::size_t stride) {
    return Layout(key.sequences, key.heads, key.queries, key.head_width, key.query_step, stride);
  };
  const auto of_keys = [&](std::size_t stride) {
    return key.splits_groups() ? Layout(key.sequences, key.heads, key.keys, key.head_width, key.keys, key.heads * key.head_width)
                               : Layout(key.sequences, key.kv_heads, key.keys, key.head_width, key.key_step, stride);
  };
  const Layout out = of_queries(key.strides.out), d_out = of_queries(key.strides.d_out), dq = of_queries(key.strides.dq),
               dk = of_keys(key.strides.dk), dv = of_keys(key.strides.dv);
  const Dims square{q.dims[0], q.dims[1], q.dims[2], k.dims[2]}, column{q.dims[0], q.dims[1], q.dims[2], 1};
  const Dims turned{square[0], square[1], square[3], square[2]},
      turned_strides{square[1] * square[2] * square[3], square[2] * square[3], 1, square[3]};
  const Dims keys_of_all_heads{q.dims[0], q.dims[1], k.dims[2], k.dims[3]};
  const Dims statistics{extent(key.heads * key.statistic_step), extent(key.statistic_step), 1, 1};
  Graph graph(key.type);
  const auto in_d_out = graph.memory(name_d_out, d_out.dims, d_out.strides), in_q = graph.memory(name_q, q.dims, q.strides);
  const auto in_k = graph.memory(name_k, k.transposed().dims, k.transposed().strides);
  const auto scale = graph.constant(scale_of(key));
  // The gradient of shared keys is the sum over the heads that share them, here or later.
  const auto for_keys = [&](Graph::Value a, Graph::Value b, std::int64_t name, const Layout& to) {
    const auto result = graph.memory(name, to.dims, to.strides, key.out_type);
    if (key.heads == key.kv_heads || key.splits_groups()) graph.multiply(a, b, result);
    else graph.reduce(CUDNN_REDUCE_TENSOR_ADD, graph.multiply(a, b, graph.between(keys_of_all_heads, key.type)), result);
  };

  const Dims rows_strides{q.dims[1] * q.dims[2] * q.dims[3], q.dims[2] * q.dims[3], q.dims[3], 1};
  const auto agreement = graph.pointwise(CUDNN_POINTWISE_MUL, {in_d_out, graph.memory(name_out, out.dims, out.strides)},
                                         graph.between(q.dims, rows_strides, CUDNN_DATA_FLOAT));
  const auto row_sums = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, agreement, graph.between(column));
  const auto delta = graph.pointwise(CUDNN_POINTWISE_MUL, {row_sums, graph.constant(1.f)},
                                     graph.memory(name_delta, column, contiguous(column), CUDNN_DATA_FLOAT));

  const auto products = graph.multiply(in_q, in_k, graph.between(square));
  const auto scaled = graph.pointwise(CUDNN_POINTWISE_MUL, {products, scale}, graph.between(square));
  const auto less = graph.pointwise(
      CUDNN_POINTWISE_SUB, {scaled, graph.memory(name_statistics, column, statistics, CUDNN_DATA_FLOAT)}, graph.between(square));
  const auto probabilities =
      graph.pointwise(CUDNN_POINTWISE_EXP, {masked(graph, less, square, key.causal)}, graph.between(square));
  for_keys(graph.reshape(probabilities, graph.between(turned, turned_strides, key.type)), in_d_out, name_dv, dv);

  const auto d_probabilities =
      graph.multiply(in_d_out, graph.memory(name_v, v.transposed().dims, v.transposed().strides), graph.between(square));
  const auto centred = graph.pointwise(CUDNN_POINTWISE_SUB, {d_probabilities, delta}, graph.between(square));
  const auto weighted = graph.pointwise(CUDNN_POINTWISE_MUL, {centred, probabilities}, graph.between(square));
  const auto d_scores = graph.pointwise(CUDNN_POINTWISE_MUL, {weighted, scale}, graph.between(square, key.type));
  for_keys(graph.reshape(d_scores, graph.between(turned, turned_strides, key.type)), in_q, name_dk, dk);

  const auto keys = graph.reshape(in_k, graph.between(k.dims, k.strides, key.type)),
             result = graph.memory(name_dq, dq.dims, dq.strides, key.out_type);
  if (same_bits) graph.multiply(d_scores, keys, result);
  else
    graph.pointwise(CUDNN_POINTWISE_IDENTITY,
                    {graph.multiply(d_scores, keys, graph.memory(name_dq_sums, q.dims, contiguous(q.dims), CUDNN_DATA_FLOAT))},
                    result);
  return graph;
}

}  // namespace detail

/// Throws CudaError for a cuDNN that computes these graphs wrongly: below 9.6 the sums of dq are not set to zero before blocks of
/// keys add to them. At run time a program may load an older library than it was compiled with.
WEFT_COLD inline void require_version(std::size_t version) {
  if (version < 90800)
    throw_error<CudaError>({"cuda: cuDNN ", version / 10000, ".", version / 100 % 100,
                            " was found at run time: attention needs 9.8 or "
                            "newer; put a newer libcudnn.so.9 first in LD_LIBRARY_PATH, or leave cudnn::use_for_attention out"});
}

/// Plans of one GPU, by shape. Not thread-safe.
class Attention {
 public:
  /// Uses the current device. With `same_bits`, the backward uses only kernels that add in one fixed order, which is slower.
  explicit Attention(bool same_bits) : same_bits_(same_bits) {
    require_version(cudnnGetVersion());
    check(cudnnCreate(&handle_), "cudnnCreate");
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;
  ~Attention() {
    entries_.clear();
    report(cudnnDestroy(handle_), "cudnnDestroy");
  }

  /// The workspace that `forward` or `backward` needs, in bytes; npos if cuDNN has no kernel for the shape. The first call for a
  /// shape compiles its graph. Throws CudaError.
  static constexpr std::size_t npos = std::size_t(-1);
  std::size_t forward_workspace(const AttentionKey& key) {
    Plan& plan = find(key, false);
    return plan ? plan.workspace_bytes() : npos;
  }
  std::size_t backward_workspace(const AttentionKey& key) {
    Plan& plan = find(key, true);
    return plan ? whole(plan.workspace_bytes()) + delta_bytes(key) +
                      key.sequences * key.heads * key.queries * key.head_width * sizeof(float)
                : npos;
  }

  void forward(const AttentionKey& key, const void* q, const void* k, const void* v, void* out, float* log_sum_exp,
               void* workspace, cudaStream_t stream) {
    using namespace detail;
    check(cudnnSetStream(handle_, stream), "cudnnSetStream");
    find(key, false)
        .run(handle_, {name_q, name_k, name_v, name_out, name_statistics},
             {mutable_(q), mutable_(k), mutable_(v), out, log_sum_exp}, workspace);
  }
  void backward(const AttentionKey& key, const void* q, const void* k, const void* v, const void* out, const void* d_out,
                const float* log_sum_exp, void* dq, void* dk, void* dv, void* workspace, cudaStream_t stream) {
    using namespace detail;
    check(cudnnSetStream(handle_, stream), "cudnnSetStream");
    Plan& plan = find(key, true);
    char* const delta = static_cast<char*>(workspace) + whole(plan.workspace_bytes());
    std::vector<std::int64_t> names{name_q,          name_k,  name_v,  name_out, name_d_out,
                                    name_statistics, name_dq, name_dk, name_dv,  name_delta};
    std::vector<void*> pointers{mutable_(q), mutable_(k), mutable_(v), mutable_(out), mutable_(d_out), mutable_(log_sum_exp),
                                dq,          dk,          dv,          delta};
    if (!same_bits_) {
      names.push_back(name_dq_sums);
      pointers.push_back(delta + delta_bytes(key));
    }
    plan.run(handle_, std::move(names), std::move(pointers), workspace);
  }

 private:
  struct Entry {
    AttentionKey key;
    bool backward;
    Plan plan;
  };
  static constexpr std::size_t most_entries = 256;

  static void* mutable_(const void* pointer) { return const_cast<void*>(pointer); }
  static std::size_t whole(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  static std::size_t delta_bytes(const AttentionKey& key) {
    return whole(key.sequences * key.heads * key.queries * sizeof(float));
  }
  Plan& find(const AttentionKey& key, bool backward) {
    for (const auto& entry : entries_)
      if (entry->backward == backward && entry->key == key) return entry->plan;
    if (entries_.size() >= most_entries) entries_.clear();
    Graph graph = backward ? detail::backward_graph(key, same_bits_) : detail::forward_graph(key);
    entries_.push_back(std::make_unique<Entry>(Entry{key, backward, graph.plan(handle_, nullptr, same_bits_)}));
    return entries_.back()->plan;
  }

  cudnnHandle_t handle_ = nullptr;
  bool same_bits_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace weft::cudnn
