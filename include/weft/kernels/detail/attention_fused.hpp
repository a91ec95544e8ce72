// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a library's fused attention comes in on devices: who has one gives it to the device (cudnn::use_for_attention), and the
// kernels ask it first. Which libraries a program has is thereby no question of its headers.

#include <cstddef>
#include <memory>
#include <type_traits>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/attention_rows.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

/// One call, with what its types said as values.
struct AttentionCall {
  AttentionShape shape;
  DataType type, out_type;
  struct Rows {
    const void* data = nullptr;
    std::size_t stride = 0;
  };
  Rows q = {}, k = {}, v = {}, out = {}, d_out = {}, dq = {}, dk = {}, dv = {};  // the last four: backward; those that are computed are written to
  const void* log_sum_exp = nullptr;
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  /// False, and nothing was done, where the library has no kernel for it.
  virtual bool forward(const AttentionCall& call) = 0;
  virtual bool backward(const AttentionCall& call) = 0;
};

/// What a device was given.
struct FusedAttention {
  std::shared_ptr<AttentionLibrary> library;
};

/// Libraries have 16-bit types alone.
template <class T, class Exec>
inline constexpr bool may_be_fused = !on_host<Exec> && sizeof(T) == 2;

template <class T, class R, class Exec>
bool attention_fused_forward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in, StridedRows<R> out, accumulate_t<T>* lse) {
  AttentionLibrary* library = device.template cache<FusedAttention>().library.get();
  if (library == nullptr) return false;
  return library->forward({.shape = shape,
                           .type = data_type_of<T>,
                           .out_type = data_type_of<R>,
                           .q = {in.q, in.q_stride},
                           .k = {in.k, in.k_stride},
                           .v = {in.v, in.v_stride},
                           .out = {out.data, out.stride},
                           .log_sum_exp = lse});
}

template <class T, class R, class Exec>
bool attention_fused_backward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in, StridedRows<const T> out, StridedRows<const T> d_out, const accumulate_t<T>* lse,
                               const AttentionOperands<R>& d) {
  AttentionLibrary* library = device.template cache<FusedAttention>().library.get();
  if (library == nullptr) return false;
  return library->backward({.shape = shape,
                            .type = data_type_of<T>,
                            .out_type = data_type_of<R>,
                            .q = {in.q, in.q_stride},
                            .k = {in.k, in.k_stride},
                            .v = {in.v, in.v_stride},
                            .out = {out.data, out.stride},
                            .d_out = {d_out.data, d_out.stride},
                            .dq = {d.q, d.q_stride},
                            .dk = {d.k, d.k_stride},
                            .dv = {d.v, d.v_stride},
                            .log_sum_exp = lse});
}

/// On devices: the library's kernel where there is one, else loops over rows.
template <class T, class R, class Exec>
void attention_device_forward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in, StridedRows<R> out, accumulate_t<T>* lse) {
  if constexpr (may_be_fused<T, Exec>)
    if (attention_fused_forward(device, shape, in, out, lse)) return;
  attention_rows_forward(device, shape, in, out, lse);
}

template <class T, class R, class Exec>
void attention_device_backward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in, StridedRows<const T> out, StridedRows<const T> d_out, const accumulate_t<T>* lse,
                               const AttentionOperands<R>& d) {
  if constexpr (may_be_fused<T, Exec>)
    if (attention_fused_backward(device, shape, in, out, d_out, lse, d)) return;
  attention_rows_backward(device, shape, in, out, d_out, lse, d);
}

}  // namespace weft::kernels::detail
