// SPDX-License-Identifier: Apache-2.0
#pragma once
// A 64-bit hash of elements in a device's memory, with which ranks compare parameters and gradients without sending them. It
// reads every bit once: two arrays of the same bits have the same hash, whatever their numbers mean.
//
//   hash_elements(device, gradient.data(), gradient.size(), sizeof(float))

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/core/hash.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

// out[lane] = the hash of the elements lane, lane + lanes, ...
template <class Exec, class Word>
void hash_lanes(Device<Exec>& device, std::size_t count, const Word* in, std::size_t lanes, std::uint64_t* out) {
  for_each_index(
      device, {"hash", count * sizeof(Word)}, lanes, KOKKOS_LAMBDA(const std::size_t lane) {
        std::uint64_t state = lane;
        for (std::size_t i = lane; i < count; i += lanes) {
          state ^= in[i];
          state = ((state << 29) | (state >> 35)) * 0x9E3779B97F4A7C15u;
        }
        out[lane] = state;
      });
}

/// A hash of `count` elements of `element_bytes` in the device's memory. In the host's memory blocks of bytes are hashed in
/// order, else lanes of interleaved elements. All ranks of a program use the same method.
template <class Exec>
std::uint64_t hash_elements(Device<Exec>& device, const void* data, std::size_t count, std::size_t element_bytes) {
  if constexpr (on_host<Exec>) {
    constexpr std::size_t block = 1u << 18;
    const std::size_t bytes = count * element_bytes, blocks = (bytes + block - 1) / block;
    device.exec().fence("weft: before a hash");
    if (device.rehearsal() != nullptr) return bytes;
    if (blocks <= 1) return hash_bytes(data, bytes);
    std::vector<std::uint64_t> hashes(blocks);
    std::uint64_t* out = hashes.data();
    const char* in = static_cast<const char*>(data);
    for_each_index(device, {"hash", bytes}, blocks,
                   [=](std::size_t i) { out[i] = hash_bytes(in + i * block, std::min(block, bytes - i * block), i); });
    return hash_bytes(out, blocks * sizeof(std::uint64_t), bytes);
  } else {
    constexpr std::size_t lanes = 1u << 16;
    Tensor<std::uint64_t, Exec> hashes(device, {std::min(std::max<std::size_t>(1, count), lanes)});
    std::uint64_t* out = hashes.data();
    const std::size_t stride = hashes.size();
    if (element_bytes == 2) hash_lanes(device, count, static_cast<const std::uint16_t*>(data), stride, out);
    else if (element_bytes == 4) hash_lanes(device, count, static_cast<const std::uint32_t*>(data), stride, out);
    else hash_lanes(device, count, static_cast<const std::uint64_t*>(data), stride, out);
    const std::vector<std::uint64_t> host = copy_to_host(hashes);
    return hash_bytes(host.data(), host.size() * sizeof(std::uint64_t), count);
  }
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template std::uint64_t hash_elements(Device<Kokkos::DefaultHostExecutionSpace>&, const void*, std::size_t, std::size_t);
}  // namespace weft::detail
#endif
