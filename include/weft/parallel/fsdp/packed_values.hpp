// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bytes of a message of quantised numbers: the integers, then the scales of their blocks.
//
//   const PackedValues packed(count, DataType::float32, 8);
//   packed.pack<float>(device, count, values, message);      // message: packed.bytes() bytes
//   packed.unpack<float>(device, count, message, values);

#include <cstddef>
#include <cstdint>
#include <span>

#include <weft/device/device.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/kernels/quantise.hpp>

namespace weft::detail {

class PackedValues {
 public:
  PackedValues() = default;
  /// A message of `count` numbers of a type, as integers of 8 or 4 bits.
  PackedValues(std::size_t count, DataType type, int bits)
      : integers_(whole_lines(kernels::quantised_bytes(count, bits))),
        scales_(whole_lines(kernels::quantised_blocks(count) * (type == DataType::float64 ? 8 : 4))),
        bits_(bits) {}

  std::size_t bytes() const { return integers_ + scales_; }

  /// Packs the first `count` numbers, at most as many as the message has room for.
  template <class T, class Exec>
  void pack(Device<Exec>& device, std::size_t count, const T* values, void* message) const {
    const auto integers = static_cast<std::int8_t*>(message);
    if (bits_ == 8) kernels::quantise<T, 8>(device, count, values, integers, scales<T>(message));
    else kernels::quantise<T, 4>(device, count, values, integers, scales<T>(message));
  }
  /// Unpacks the first `count` numbers; with `adds`, it adds them to `values`.
  template <class T, class Exec>
  void unpack(Device<Exec>& device, std::size_t count, const void* message, T* values, bool adds = false) const {
    const auto integers = static_cast<const std::int8_t*>(message);
    const auto factors = reinterpret_cast<const accumulate_t<T>*>(integers + integers_);
    if (bits_ == 8) kernels::dequantise<T, 8>(device, count, integers, factors, values, adds);
    else kernels::dequantise<T, 4>(device, count, integers, factors, values, adds);
  }

 private:
  static std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  template <class T>
  accumulate_t<T>* scales(void* message) const {
    return reinterpret_cast<accumulate_t<T>*>(static_cast<char*>(message) + integers_);
  }

  std::size_t integers_ = 0, scales_ = 0;
  int bits_ = 8;
};

/// Bytes as words: a message does not depend on the element type.
inline std::span<std::int64_t> words_of(const Buffer& buffer, std::size_t bytes) {
  return {static_cast<std::int64_t*>(buffer.get()), bytes / sizeof(std::int64_t)};
}

}  // namespace weft::detail
