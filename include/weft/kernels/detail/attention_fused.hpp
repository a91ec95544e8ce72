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
  Rows q, k, v, out, d_out, dq = {}, dk = {}, dv = {};  // the last four: backward; those that are computed are written to
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
bool attention_fused_forward(Device<Exec>& device, const AttentionShape& shape, const T* q, std::size_t q_stride, const T* k, std::size_t k_stride, const T* v, std::size_t v_stride,
                             R* out, std::size_t out_stride, accumulate_t<T>* lse) {
  AttentionLibrary* library = device.template cache<FusedAttention>().library.get();
  if (library == nullptr) return false;
  AttentionCall call{shape, data_type_of<T>, data_type_of<R>, {q, q_stride}, {k, k_stride}, {v, v_stride}, {out, out_stride}, {}};
  call.log_sum_exp = lse;
  return library->forward(call);
}

template <class T, class R, class Exec>
bool attention_fused_backward(Device<Exec>& device, const AttentionShape& shape, const T* q, std::size_t q_stride, const T* k, std::size_t k_stride, const T* v, std::size_t v_stride,
                              const T* out, std::size_t out_stride, const T* d_out, std::size_t d_out_stride, const accumulate_t<T>* lse, R* dq, std::size_t dq_stride, R* dk,
                              std::size_t dk_stride, R* dv, std::size_t dv_stride) {
  AttentionLibrary* library = device.template cache<FusedAttention>().library.get();
  if (library == nullptr) return false;
  AttentionCall call{shape, data_type_of<T>, data_type_of<R>, {q, q_stride}, {k, k_stride}, {v, v_stride}, {out, out_stride}, {d_out, d_out_stride}, {dq, dq_stride}, {dk, dk_stride}, {dv, dv_stride}, lse};
  return library->backward(call);
}

/// On devices: the library's kernel where there is one, else loops over rows.
template <class T, class R, class Exec>
void attention_device_forward(Device<Exec>& device, const AttentionShape& shape, const T* q, std::size_t q_stride, const T* k, std::size_t k_stride, const T* v, std::size_t v_stride,
                              R* out, std::size_t out_stride, accumulate_t<T>* lse) {
  if constexpr (may_be_fused<T, Exec>)
    if (attention_fused_forward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, lse)) return;
  attention_rows_forward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, lse);
}

template <class T, class R, class Exec>
void attention_device_backward(Device<Exec>& device, const AttentionShape& shape, const T* q, std::size_t q_stride, const T* k, std::size_t k_stride, const T* v, std::size_t v_stride,
                               const T* out, std::size_t out_stride, const T* d_out, std::size_t d_out_stride, const accumulate_t<T>* lse, R* dq, std::size_t dq_stride, R* dk,
                               std::size_t dk_stride, R* dv, std::size_t dv_stride) {
  if constexpr (may_be_fused<T, Exec>)
    if (attention_fused_backward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, d_out, d_out_stride, lse, dq, dq_stride, dk, dk_stride, dv, dv_stride)) return;
  attention_rows_backward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, d_out, d_out_stride, lse, dq, dq_stride, dk, dk_stride, dv, dv_stride);
}

}  // namespace weft::kernels::detail
