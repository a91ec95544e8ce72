// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention over sequences sharded over the ranks of cp, by an exchange of tokens for heads: an all-to-all gives each rank whole
// sequences of some of the heads, and a second one returns the result (DeepSpeed-Ulysses, arXiv:2309.14509). If there are fewer
// key-value heads than ranks, several ranks hold the same one.
//
//   const HeadExchange<T, Exec> exchange(device, context.comm(cp{}), extents);
//   const auto fused = exchange.gather(in);   // [whole rows, query + 2 key-value width]

#include <algorithm>
#include <cstddef>

#include <weft/kernels/attention.hpp>
#include <weft/kernels/move_rows.hpp>
#include <weft/nn/ring_attention.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// The exchange between [rows of this rank, all its heads] and [all rows, some heads], for one attention.
template <class T, class Exec>
class HeadExchange {
 public:
  using X = Tensor<T, Exec>;
  using A = accumulate_t<T>;

  HeadExchange(Device<Exec>& device, const Communicator& comm, const AttentionExtents& local)
      : device_(&device),
        comm_(&comm),
        local_(local),
        ranks_(std::size_t(comm.size())),
        copies_(std::max<std::size_t>(1, ranks_ / local.kv_heads)),
        whole_{.sequences = local.sequences,
               .length = local.length * ranks_,
               .heads = local.heads / ranks_,
               .kv_heads = std::max<std::size_t>(1, local.kv_heads / ranks_),
               .head_width = local.head_width},
        fused_(whole_.width() + 2 * whole_.kv_width()) {}

  /// The extents of whole sequences of this rank's heads.
  const AttentionExtents& whole() const { return whole_; }

  /// Query, key and value of whole sequences in one tensor: [whole rows, query + 2 key-value width].
  X gather(const Operands<const T>& in) const {
    X pieces(*device_, {ranks_ * local_.rows(), fused_});
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      T* const to = pieces.data() + rank * local_.rows() * fused_;
      const std::size_t kv = kv_column(rank);
      copy(whole_.width(), in.q + rank * whole_.width(), in.q_stride, to, fused_);
      copy(whole_.kv_width(), in.k + kv, in.k_stride, to + whole_.width(), fused_);
      copy(whole_.kv_width(), in.v + kv, in.v_stride, to + whole_.width() + whole_.kv_width(), fused_);
    }
    return ordered(exchange(pieces), false);
  }
  /// Whole sequences of this rank's heads, from the values of its rows and all heads, [rows, width].
  X gather(const T* in) const {
    X pieces(*device_, {ranks_ * local_.rows(), whole_.width()});
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      copy(whole_.width(), in + rank * whole_.width(), local_.width(), pieces.data() + rank * local_.rows() * whole_.width(),
           whole_.width());
    return ordered(exchange(pieces), false);
  }
  /// The inverse: x [whole rows, width of this rank's heads] to out [rows, width of all heads].
  void scatter(const X& x, T* out) const {
    const X pieces = exchange(ordered(x, true));
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      copy(whole_.width(), pieces.data() + rank * local_.rows() * whole_.width(), whole_.width(), out + rank * whole_.width(),
           local_.width());
  }
  /// The inverse for gradients of query, key and value; gradients of a key-value head that several ranks hold are added.
  void scatter(const X& x, const Operands<T>& out) const {
    const X pieces = exchange(ordered(x, true));
    const std::size_t step = local_.rows() * fused_;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const T* const from = pieces.data() + rank * step;
      const std::size_t kv = kv_column(rank);
      copy(whole_.width(), from, fused_, out.q + rank * whole_.width(), out.q_stride);
      if (rank % copies_ != 0) continue;
      const T* const keys = from + whole_.width();
      kernels::sum_parts(*device_, local_.rows(), whole_.kv_width(), copies_, step, keys, fused_, out.k + kv, out.k_stride);
      kernels::sum_parts(*device_, local_.rows(), whole_.kv_width(), copies_, step, keys + whole_.kv_width(), fused_, out.v + kv,
                         out.v_stride);
    }
  }

  /// Query, key and value in the fused array.
  template <class U>
  Operands<U> operands(U* fused) const {
    return {.q = fused,
            .k = fused + whole_.width(),
            .v = fused + whole_.width() + whole_.kv_width(),
            .q_stride = fused_,
            .k_stride = fused_,
            .v_stride = fused_};
  }

 private:
  std::size_t kv_column(std::size_t rank) const { return rank / copies_ * whole_.kv_width(); }
  void copy(std::size_t width, const T* from, std::size_t from_stride, T* to, std::size_t to_stride) const {
    kernels::cast_rows(*device_, local_.rows(), width, from, from_stride, to, to_stride);
  }
  X exchange(const X& pieces) const {
    X arrived(*device_, pieces.shape());
    comm_->all_to_all(pieces, arrived);
    return arrived;
  }
  X ordered(const X& x, bool back) const {
    X y(*device_, x.shape());
    kernels::order_rows(*device_, whole_.length, ranks_, local_.rows(), x.columns(), x.data(), y.data(), back);
    return y;
  }

  Device<Exec>* device_;
  const Communicator* comm_;
  AttentionExtents local_;
  std::size_t ranks_, copies_;  // ranks that hold the same key-value head
  AttentionExtents whole_;
  std::size_t fused_;
};

}  // namespace weft::detail
