// SPDX-License-Identifier: Apache-2.0
#pragma once
// The scalar types of tensors and messages, with weft's bfloat16 and float16: on hosts Kokkos' bhalf_t and half_t are floats,
// which would take twice the bytes in memory and in messages.
//
//   using Sum = accumulate_t<bfloat16>;             // float
//   const DataType type = data_type_of<bfloat16>;   // DataType::bfloat16

#include <Kokkos_Core.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <weft/core/error.hpp>

namespace weft {

/// A 16-bit float with float's exponent: 8 bits of precision, rounded to nearest even. Arithmetic is done in float.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  KOKKOS_INLINE_FUNCTION explicit constexpr bfloat16(float value) : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  KOKKOS_INLINE_FUNCTION constexpr operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }

 private:
  KOKKOS_INLINE_FUNCTION static constexpr std::uint16_t round(std::uint32_t u) {
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;  // adding the rounding bias would turn some NaN into infinity
    return nan ? std::uint16_t((u >> 16) | 0x40u) : std::uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);

/// A 16-bit float in the format IEEE 754 binary16: 11 bits of precision, values up to 65504 and down to 6e-8 (6e-5 with full
/// precision), so gradients need a LossScale. Rounded to nearest even; larger values become infinity. Arithmetic is done in
/// float.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  KOKKOS_INLINE_FUNCTION explicit constexpr float16(float value) : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  KOKKOS_INLINE_FUNCTION constexpr operator float() const {
    const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
    const float subnormal = float(rest) * 0x1p-24f;  // exact
    return sign ? -subnormal : subnormal;
  }

 private:
  KOKKOS_INLINE_FUNCTION static constexpr std::uint16_t round(std::uint32_t u) {
    const std::uint32_t sign = u >> 16 & 0x8000u, rest = u & 0x7fffffffu;
    if (rest > 0x7f800000u) return std::uint16_t(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    if (rest >= 0x477ff000u) return std::uint16_t(sign | 0x7c00u);  // 65520 and beyond
    if (rest < 0x38800000u)  // below 2^-14: adding 1/2 leaves the last bit at 2^-24, and the hardware rounds
      return std::uint16_t(sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u));
    return std::uint16_t(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
  }
};
static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16>);

/// The type of sums over T: float for bfloat16, float16 and float, double for double.
template <class T>
using accumulate_t = std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

/// Element types as values, for files, fingerprints and type-erased parameters.
enum class DataType : std::uint8_t {
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  bfloat16,
  float32,
  float64
};

/// Bytes of an element.
constexpr std::size_t size_of(DataType type) {
  constexpr std::size_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  return sizes[static_cast<std::size_t>(type)];
}

/// `type` may come from another rank and may be none of the enumerators.
constexpr std::string_view name_of(DataType type) {
  constexpr std::string_view names[] = {"int8",  "uint8",  "int16",   "uint16",   "int32",   "uint32",
                                        "int64", "uint64", "float16", "bfloat16", "float32", "float64"};
  const auto number = static_cast<std::size_t>(type);
  return number < sizeof names / sizeof names[0] ? names[number] : "elements of an unknown type";
}

namespace detail {

template <class T>
constexpr int data_type_index() {
  if constexpr (std::is_same_v<T, bfloat16>) return int(DataType::bfloat16);
  else if constexpr (std::is_same_v<T, float16>) return int(DataType::float16);
  else if constexpr (std::is_same_v<T, float>) return int(DataType::float32);
  else if constexpr (std::is_same_v<T, double>) return int(DataType::float64);
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr int width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 6;
    return width + (std::is_signed_v<T> ? 0 : 1);
  } else return -1;
}

/// The element types of weft's tensors and collectives: integers of 1 to 8 bytes, float, double, bfloat16, float16.
template <class T>
concept Scalar = data_type_index<std::remove_cv_t<T>>()
>= 0;

}  // namespace detail

/// The DataType of an element type: DataType::float32 of float.
template <detail::Scalar T>
inline constexpr DataType data_type_of = static_cast<DataType>(detail::data_type_index<std::remove_cv_t<T>>());

namespace detail {

/// The type in which a model of scalar T computes: T. In a build with WEFT_PROVE_IN_DOUBLE, for proofs (runtime/prove.hpp), it is
/// double, so that layouts differ by roundings of 1e-16 and bounds are close.
#ifdef WEFT_PROVE_IN_DOUBLE
template <class T>
using computed_t = double;
#else
template <class T>
using computed_t = T;
#endif

/// Types in which a layer can compute.
template <class T>
concept Real = std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;
/// Refuses to compute on elements of type T.
template <class T>
KOKKOS_FUNCTION constexpr void require_real() {
  static_assert(Real<T>,
                "weft: arithmetic on whole numbers: layers compute on numbers with a fraction, so pixels, labels and masks of a "
                "batch become such first: cast<float>(x), in the model's scalar");
}

/// Calls `f` with a value of the C++ type that `type` names.
template <class F>
decltype(auto) dispatch(DataType type, F&& f) {
  switch (type) {
    case DataType::int8: return f(std::int8_t{});
    case DataType::uint8: return f(std::uint8_t{});
    case DataType::int16: return f(std::int16_t{});
    case DataType::uint16: return f(std::uint16_t{});
    case DataType::int32: return f(std::int32_t{});
    case DataType::uint32: return f(std::uint32_t{});
    case DataType::int64: return f(std::int64_t{});
    case DataType::uint64: return f(std::uint64_t{});
    case DataType::float16: return f(float16{});
    case DataType::bfloat16: return f(bfloat16{});
    case DataType::float32: return f(float{});
    case DataType::float64: return f(double{});
  }
  throw_error<Error>({"dispatch: unknown DataType"});
}

/// dispatch for Real types only; throws Error for others.
template <class F>
decltype(auto) dispatch_real(DataType type, F&& f) {
  switch (type) {
    case DataType::float16: return f(float16{});
    case DataType::bfloat16: return f(bfloat16{});
    case DataType::float32: return f(float{});
    case DataType::float64: return f(double{});
    default: throw_error<Error>({"expected float16, bfloat16, float32 or float64, not ", name_of(type)});
  }
}

}  // namespace detail

}  // namespace weft
