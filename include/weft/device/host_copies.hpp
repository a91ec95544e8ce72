// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies of bytes between host memory and separate device memory: the one place that calls Kokkos' deep copy. They run after the
// device's earlier kernels. Before it reads the result or changes the source, the host must wait for the device. A rehearsal
// notes the copies.
//
//   copy_to_device(device, to, from, bytes);
//   device.exec().fence("weft: what was copied");

#include <Kokkos_Core.hpp>

#include <cstddef>

#include <weft/device/device.hpp>
#ifdef KOKKOS_ENABLE_CUDA
#include <weft/device/cuda/staged_copies.hpp>
#endif

namespace weft::detail {

template <class Space>
using ByteView = Kokkos::View<char*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class Space>
using ConstByteView = Kokkos::View<const char*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class Exec>
void copy_to_device(Device<Exec>& device, void* to, const void* from, std::size_t bytes) {
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->copied();
  Kokkos::deep_copy(device.exec(), ByteView<typename Exec::memory_space>(static_cast<char*>(to), bytes),
                    ConstByteView<Kokkos::HostSpace>(static_cast<const char*>(from), bytes));
}

/// The same, but the bytes may change as soon as this returns. On GPUs the host does not wait for earlier kernels.
template <class Exec>
void send_to_device(Device<Exec>& device, void* to, const void* from, std::size_t bytes) {
  copy_to_device(device, to, from, bytes);
  device.exec().fence("weft: bytes that may change");
}
#ifdef KOKKOS_ENABLE_CUDA
inline void send_to_device(Device<Kokkos::Cuda>& device, void* to, const void* from, std::size_t bytes) {
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->copied();
  device.template cache<gpu::StagedCopies>().start(to, from, bytes, device.exec().cuda_stream());
}
#endif

template <class Exec>
void copy_from_device(Device<Exec>& device, void* to, const void* from, std::size_t bytes) {
  if (Rehearsal* const notes = device.rehearsal(); notes != nullptr) [[unlikely]]
    return notes->copied();
  Kokkos::deep_copy(device.exec(), ByteView<Kokkos::HostSpace>(static_cast<char*>(to), bytes),
                    ConstByteView<typename Exec::memory_space>(static_cast<const char*>(from), bytes));
}

}  // namespace weft::detail
