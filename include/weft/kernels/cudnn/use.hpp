// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of a device by cuDNN (target weft::cudnn). Without this call attention runs in Kokkos kernels: correct, but slow.
//
//   return run<comm::Nccl>(argc, argv, [](World& world) {
//     cudnn::use_for_attention(world.device(), cudnn::Bits::vary);

#include <concepts>
#include <cstdint>
#include <memory>

#include <weft/device/device.hpp>
#include <weft/kernels/cudnn/attention.hpp>
#include <weft/kernels/detail/attention_fused.hpp>
#include <weft/kernels/move_rows.hpp>

namespace weft::cudnn {

/// The reproducibility of a step's bits between two runs. The fast backward (`vary`) adds with atomics, in varying order.
enum class Bits { same, vary };

namespace detail {

/// The key of a call; false if cuDNN cannot run it: rows must be 16-byte aligned.
inline bool key_of(const kernels::detail::AttentionCall& call, bool backward, AttentionKey& key) {
  const auto type_of = [](DataType type) {
    return type == DataType::bfloat16 ? CUDNN_DATA_BFLOAT16 : type == DataType::float16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
  };
  const auto fits = [](const kernels::detail::AttentionCall::Rows& rows, DataType type) {
    return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.stride * size_of(type) % 16 == 0;
  };
  const auto& s = call.shape;
  if (s.head_width % 8 != 0 || !fits(call.q, call.type) || !fits(call.k, call.type) || !fits(call.v, call.type)) return false;
  if (!fits(call.out, backward ? call.type : call.out_type)) return false;
  if (reinterpret_cast<std::uintptr_t>(call.log_sum_exp) % 16 != 0)
    return false;  // the second half of a sequence may begin at
                   // any address
  if (backward && (!fits(call.d_out, call.type) || !fits(call.dq, call.out_type) || !fits(call.dk, call.out_type) ||
                   !fits(call.dv, call.out_type)))
    return false;
  key = {.type = type_of(call.type),
         .out_type = type_of(call.out_type),
         .sequences = s.sequences,
         .queries = s.length,
         .keys = s.keys,
         .heads = s.heads,
         .kv_heads = s.kv_heads,
         .head_width = s.head_width,
         .query_step = s.query_step,
         .key_step = s.key_step,
         .statistic_step = s.statistic_step,
         .causal = s.causal,
         .strides = {.q = call.q.stride,
                     .k = call.k.stride,
                     .v = call.v.stride,
                     .out = call.out.stride,
                     .d_out = call.d_out.stride,
                     .dq = call.dq.stride,
                     .dk = call.dk.stride,
                     .dv = call.dv.stride}};
  return true;
}

/// Attention of a device by `Library`, a type with the members of cudnn::Attention.
template <class Exec, class Library = Attention>
class DeviceAttention final : public kernels::detail::AttentionLibrary {
 public:
  DeviceAttention(Device<Exec>& device, cudaStream_t stream, Bits bits)
      : device_(device), stream_(stream), library_(bits == Bits::same) {}

  bool forward(const kernels::detail::AttentionCall& call) override {
    AttentionKey key;
    if (!key_of(call, false, key)) return false;
    const std::size_t bytes = library_.forward_workspace(key);
    if (bytes == Library::npos) return false;
    const weft::detail::Buffer workspace = device_.allocate(bytes);
    library_.forward(key, call.q.data, call.k.data, call.v.data, mutable_(call.out.data),
                     static_cast<float*>(mutable_(call.log_sum_exp)), workspace.get(), stream_);
    return true;
  }
  bool backward(const kernels::detail::AttentionCall& call) override {
    AttentionKey key;
    if (!key_of(call, true, key)) return false;
    const std::size_t bytes = library_.backward_workspace(key);
    if (bytes == Library::npos) return false;
    const weft::detail::Buffer workspace = device_.allocate(bytes);
    const auto run = [&](void* dk, void* dv) {
      library_.backward(key, call.q.data, call.k.data, call.v.data, call.out.data, call.d_out.data,
                        static_cast<const float*>(call.log_sum_exp), mutable_(call.dq.data), dk, dv, workspace.get(), stream_);
    };
    if (!key.splits_groups()) return run(mutable_(call.dk.data), mutable_(call.dv.data)), true;
    const std::size_t size = key.sequences * key.keys * key.heads * key.head_width;
    const weft::detail::Buffer memory = device_.allocate(2 * size * sizeof(float));
    float *const dk = static_cast<float*>(memory.get()), *const dv = dk + size;
    run(dk, dv);
    const auto add = [&](const float* from, const kernels::detail::AttentionCall::Rows& to) {
      kernels::sum_heads(device_, key.sequences, key.keys, key.key_step, key.kv_heads, key.heads / key.kv_heads, key.head_width,
                         from, static_cast<float*>(mutable_(to.data)), to.stride);
    };
    add(dk, call.dk);
    add(dv, call.dv);
    return true;
  }

 private:
  static void* mutable_(const void* pointer) { return const_cast<void*>(pointer); }
  Device<Exec>& device_;
  cudaStream_t stream_;
  Library library_;
};

}  // namespace detail

/// Makes cuDNN compute all later attention in bfloat16 and float16. Shapes without a cuDNN kernel stay in Kokkos. The device must
/// be the calling thread's current one. Throws CudaError.
template <class Exec>
requires requires(const Exec& exec) {
  { exec.cuda_stream() } -> std::convertible_to<cudaStream_t>;
}
void use_for_attention(Device<Exec>& device, Bits bits) {
  device.template cache<kernels::detail::FusedAttention>().library =
      std::make_shared<detail::DeviceAttention<Exec>>(device, device.exec().cuda_stream(), bits);
}

}  // namespace weft::cudnn
