// SPDX-License-Identifier: Apache-2.0
#pragma once
// The hook for a library's fused attention on devices. A program registers the library with its device
// (cudnn::use_for_attention), and the kernels try it first. So these headers do not depend on a program's libraries.

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <weft/core/scalar.hpp>
#include <weft/core/text.hpp>
#include <weft/kernels/detail/attention_rows.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

/// A call of attention with its types as values.
struct AttentionCall {
  AttentionShape shape;
  DataType type, out_type;
  struct Rows {
    const void* data = nullptr;
    std::size_t stride = 0;
  };
  // The last four belong to the backward; results are written through these pointers.
  Rows q = {}, k = {}, v = {}, out = {}, d_out = {}, dq = {}, dk = {}, dv = {};
  const void* log_sum_exp = nullptr;
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  /// Returns false, and does nothing, if the library has no kernel for the call.
  virtual bool forward(const AttentionCall& call) = 0;
  virtual bool backward(const AttentionCall& call) = 0;
};

/// The library of a device, or null.
struct FusedAttention {
  std::shared_ptr<AttentionLibrary> library;
  bool told = false;  ///< the warning about slow kernels has been printed
};

/// Prints once per device that attention runs in slow Kokkos kernels although the device has a library for it.
WEFT_COLD inline void tell_slow_attention(FusedAttention& fused, const AttentionShape& shape, DataType type, bool backward) {
  if (fused.library == nullptr || std::exchange(fused.told, true)) return;
  const std::string text = weft::detail::joined(
      {"weft: attention", backward ? " (backward)" : "", " in ", name_of(type), ", ", shape.heads, " heads of width ",
       shape.head_width, ", ", shape.kv_heads, " of them with keys, ", shape.length, " queries against ", shape.keys,
       " keys: the device's library has no kernel for it, so it runs in Kokkos kernels, many times slower; it takes bfloat16 and "
       "float16, causal and full masks, heads of a width that 8 divides, and rows and statistics at multiples of 16 bytes"});
  std::fprintf(stderr, "%s\n", text.c_str());
}

/// The libraries support 16-bit types only.
template <class T, class Exec>
inline constexpr bool may_be_fused = !on_host<Exec> && sizeof(T) == 2;
/// The library supports only causal and full attention. Loops over rows compute windows, documents and mask arrays.
inline bool may_be_fused_under(const MaskView& mask) { return !mask.ranges(); }

template <class T, class R, class Exec>
bool attention_fused_forward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in,
                             StridedRows<R> out, accumulate_t<T>* lse) {
  AttentionLibrary* library = device.template cache<FusedAttention>().library.get();
  if (library == nullptr) return false;
  // A variable: nvcc garbles the designators of an argument.
  const AttentionCall call{.shape = shape,
                           .type = data_type_of<T>,
                           .out_type = data_type_of<R>,
                           .q = {in.q, in.q_stride},
                           .k = {in.k, in.k_stride},
                           .v = {in.v, in.v_stride},
                           .out = {out.data, out.stride},
                           .log_sum_exp = lse};
  return library->forward(call);
}

template <class T, class R, class Exec>
bool attention_fused_backward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in,
                              StridedRows<const T> out, StridedRows<const T> d_out, const accumulate_t<T>* lse,
                              const AttentionOperands<R>& d) {
  AttentionLibrary* library = device.template cache<FusedAttention>().library.get();
  if (library == nullptr) return false;
  // A variable: nvcc garbles the designators of an argument.
  const AttentionCall call{.shape = shape,
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
                           .log_sum_exp = lse};
  return library->backward(call);
}

/// In a rehearsal, notes a kernel of the device's library. The rehearsal has no library, so the workspace is unknown.
template <class T, class R, class Exec>
bool rehearsed_fused(Device<Exec>& device, const AttentionShape& shape, std::size_t bytes) {
  Rehearsal* const notes = device.rehearsal();
  if (notes == nullptr || !may_be_fused<T, Exec> || !may_be_fused_under(shape.mask)) [[likely]]
    return false;
  notes->launched({"attention", bytes});
  return true;
}

/// On devices: the library's kernel if it has one, otherwise loops over rows.
template <class T, class R, class Exec>
void attention_device_forward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in,
                              StridedRows<R> out, accumulate_t<T>* lse) {
  if (rehearsed_fused<T, R>(device, shape, attention_bytes<T, R>(shape))) return;
  if constexpr (may_be_fused<T, Exec>)
    if (may_be_fused_under(shape.mask) && attention_fused_forward(device, shape, in, out, lse)) return;
  if constexpr (!on_host<Exec>) tell_slow_attention(device.template cache<FusedAttention>(), shape, data_type_of<T>, false);
  attention_rows_forward(device, shape, in, out, lse);
}

template <class T, class R, class Exec>
void attention_device_backward(Device<Exec>& device, const AttentionShape& shape, const AttentionOperands<const T>& in,
                               StridedRows<const T> out, StridedRows<const T> d_out, const accumulate_t<T>* lse,
                               const AttentionOperands<R>& d) {
  if (rehearsed_fused<T, R>(device, shape, attention_backward_bytes<T, R>(shape))) return;
  if constexpr (may_be_fused<T, Exec>)
    if (may_be_fused_under(shape.mask) && attention_fused_backward(device, shape, in, out, d_out, lse, d)) return;
  if constexpr (!on_host<Exec>) tell_slow_attention(device.template cache<FusedAttention>(), shape, data_type_of<T>, true);
  attention_rows_backward(device, shape, in, out, d_out, lse, d);
}

}  // namespace weft::kernels::detail
