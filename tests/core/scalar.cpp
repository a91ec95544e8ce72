// SPDX-License-Identifier: Apache-2.0
#include <weft/core/scalar.hpp>

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

using weft::bfloat16;
using weft::float16;

namespace {
// Round to nearest even by comparison of neighbours in double: slow, and independent of the bits that bfloat16 uses.
float rounded(float x) {
  if (std::isnan(x) || std::isinf(x)) return x;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const float below = std::bit_cast<float>(bits & 0xffff0000u);  // towards zero
  const std::uint32_t next = (bits & 0xffff0000u) + 0x10000u;
  const float above = std::bit_cast<float>(next);
  const double to_below = std::abs(double(x) - double(below));
  const double to_above = std::isinf(above) ? std::ldexp(1.0, 128) - std::abs(double(x)) : std::abs(double(above) - double(x));
  if (to_below != to_above) return to_below < to_above ? below : above;
  return (next & 0x10000u) == 0 ? above : below;
}
}  // namespace

TEST_CASE("bfloat16: every value survives the way through float") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    bfloat16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const float wide = value;
    if (std::isnan(wide)) CHECK(std::isnan(float(bfloat16(wide))));
    else REQUIRE(bfloat16(wide).bits == bits);
  }
}

TEST_CASE("bfloat16 rounds to nearest, ties to even") {
  for (std::uint64_t i = 0; i < 0x100000000ull; i += 40503) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
    if (std::isnan(x)) continue;
    REQUIRE(float(bfloat16(x)) == rounded(x));
  }
  CHECK(float(bfloat16(1.00390625f)) == 1.0f);       // halfway to 1.0078125, whose last bit is odd
  CHECK(float(bfloat16(1.01171875f)) == 1.015625f);  // halfway up from an odd one
  CHECK(std::isinf(float(bfloat16(std::numeric_limits<float>::max()))));
}

TEST_CASE("bfloat16 keeps NaN, also those whose bits would round to infinity") {
  CHECK(std::isnan(float(bfloat16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(float(bfloat16(std::bit_cast<float>(0xffffffffu)))));
}

TEST_CASE("float16: every value survives the way through float, and has IEEE 754's meaning") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    float16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const float wide = value;
    const int exponent = int(bits >> 10 & 31), fraction = int(bits & 1023);
    if (exponent == 31 && fraction != 0) {
      CHECK(std::isnan(wide));
      CHECK(std::isnan(float(float16(wide))));
      continue;
    }
    const double meant = exponent == 31  ? INFINITY
                         : exponent == 0 ? std::ldexp(fraction, -24)
                                         : std::ldexp(1024 + fraction, exponent - 25);
    REQUIRE(double(wide) == (bits & 0x8000u ? -meant : meant));
    REQUIRE(float16(wide).bits == bits);
  }
}

TEST_CASE("float16 rounds to nearest, ties to even, and overflows to infinity from 65520 on") {
  const auto at = [](std::uint32_t bits) {
    float16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    return double(float(value));
  };
  for (std::uint32_t bits = 0; bits < 0x7bffu; ++bits) {  // between each value and the next
    const double low = at(bits), high = at(bits + 1), middle = (low + high) / 2;
    REQUIRE(float16(float(middle)).bits == (bits & 1u ? bits + 1 : bits));
    REQUIRE(float16(std::nextafter(float(middle), 0.f)).bits == bits);
    REQUIRE(float16(std::nextafter(float(middle), INFINITY)).bits == bits + 1);
    REQUIRE(float16(float(-middle)).bits == ((bits & 1u ? bits + 1 : bits) | 0x8000u));
  }
  CHECK(float(float16(65519.99f)) == 65504.f);
  CHECK(std::isinf(float(float16(65520.f))));
  CHECK(float(float16(std::numeric_limits<float>::max())) == INFINITY);
  CHECK(float(float16(0x1p-25f)) == 0.f);
  CHECK(float(float16(std::nextafter(0x1p-25f, 1.f))) == 0x1p-24f);
}

TEST_CASE("types and their names belong together") {
  static_assert(weft::data_type_of<bfloat16> == weft::DataType::bfloat16);
  static_assert(weft::data_type_of<const std::int32_t> == weft::DataType::int32);
  static_assert(weft::data_type_of<unsigned char> == weft::DataType::uint8);
  static_assert(weft::detail::Scalar<long> && weft::detail::Scalar<long long> && !weft::detail::Scalar<bool> &&
                !weft::detail::Scalar<long double> && !weft::detail::Scalar<float*>);
  static_assert(weft::detail::Real<double> && weft::detail::Real<bfloat16> && !weft::detail::Real<int>);
  for (int i = 0; i <= int(weft::DataType::float64); ++i) {
    const auto type = static_cast<weft::DataType>(i);
    weft::detail::dispatch(type, [&](auto zero) {
      CHECK(weft::data_type_of<decltype(zero)> == type);
      CHECK(weft::size_of(type) == sizeof(zero));
    });
  }
  CHECK(weft::name_of(weft::DataType::uint16) == "uint16");
  CHECK_THROWS_WITH_AS(weft::detail::dispatch(static_cast<weft::DataType>(200), [](auto) {}), "weft: dispatch: unknown DataType",
                       weft::Error);
}
