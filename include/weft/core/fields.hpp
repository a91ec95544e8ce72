// SPDX-License-Identifier: Apache-2.0
#pragma once
// Iteration over the fields of an aggregate, without its author's help. Ranks use it to compare a model's Config field by field.
// The number of fields is found by initialising them with empty braces, which count an array or a nested aggregate once.
// Aggregates that cannot be counted (more than 32 fields, base classes, fields without a default) have no fields here.
//
//   struct Config { std::size_t width = 32; double dropout = 0; };
//   detail::for_each_field(config, [](std::size_t i, const auto& field) { ... });

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

#include <weft/core/hash.hpp>

namespace weft::detail {

struct AnyField {
  template <class T>
  operator T() const;  // declared only, never defined
};
template <class Derived>
struct AnyBase {
  template <class Base>
  requires(std::is_base_of_v<Base, Derived> && !std::is_same_v<Base, Derived>) operator Base() const;
};

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif

/// The number of fields of an aggregate T; -1 if it is unknown.
// clang-format off
#define WEFT_FIELDS(n, ...) else if constexpr (requires { T{__VA_ARGS__}; }) return requires { T{__VA_ARGS__, AnyField()}; } ? -1 : n;
template <class T>
consteval int count_fields() {
  if constexpr (!std::is_class_v<T> || !std::is_aggregate_v<T> || std::is_empty_v<T> || !std::is_default_constructible_v<T>)
      return -1;
  else if constexpr (requires { T{AnyBase<T>()}; }) return -1;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return -1;
  WEFT_FIELDS(32, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(31, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      {}, {}, {}, {}, {})
  WEFT_FIELDS(30, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      {}, {}, {}, {})
  WEFT_FIELDS(29, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      {}, {}, {})
  WEFT_FIELDS(28, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      {}, {})
  WEFT_FIELDS(27, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(26, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(25, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(24, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(23, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(22, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(21, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(20, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(19, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(18, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(17, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(16, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(15, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(14, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(13, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(12, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(11, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(10, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(9, {}, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(8, {}, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(7, {}, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(6, {}, {}, {}, {}, {}, {})
  WEFT_FIELDS(5, {}, {}, {}, {}, {})
  WEFT_FIELDS(4, {}, {}, {}, {})
  WEFT_FIELDS(3, {}, {}, {})
  WEFT_FIELDS(2, {}, {})
  WEFT_FIELDS(1, {})
  else return -1;
}
#undef WEFT_FIELDS
// clang-format on

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

template <class T>
inline constexpr int field_count = count_fields<std::remove_cv_t<T>>();

/// f(field...) with references to the n fields of an aggregate, n from 1 to 32.
template <int n, class T, class F>
constexpr decltype(auto) with_fields(T& object, F&& f) {
  static_assert(n >= 1 && n <= 32);
  // clang-format off
  if constexpr (n == 1) { auto& [a0] = object; return f(a0); }
  else if constexpr (n == 2) { auto& [a0, a1] = object; return f(a0, a1); }
  else if constexpr (n == 3) { auto& [a0, a1, a2] = object; return f(a0, a1, a2); }
  else if constexpr (n == 4) { auto& [a0, a1, a2, a3] = object; return f(a0, a1, a2, a3); }
  else if constexpr (n == 5) { auto& [a0, a1, a2, a3, a4] = object; return f(a0, a1, a2, a3, a4); }
  else if constexpr (n == 6) { auto& [a0, a1, a2, a3, a4, a5] = object; return f(a0, a1, a2, a3, a4, a5); }
  else if constexpr (n == 7) { auto& [a0, a1, a2, a3, a4, a5, a6] = object; return f(a0, a1, a2, a3, a4, a5, a6); }
  else if constexpr (n == 8) { auto& [a0, a1, a2, a3, a4, a5, a6, a7] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7); }
  else if constexpr (n == 9) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7,
      a8); }
  else if constexpr (n == 10) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9] = object; return f(a0, a1, a2, a3, a4, a5,
      a6, a7, a8, a9); }
  else if constexpr (n == 11) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10] = object; return f(a0, a1, a2, a3, a4,
      a5, a6, a7, a8, a9, a10); }
  else if constexpr (n == 12) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11] = object; return f(a0, a1, a2, a3,
      a4, a5, a6, a7, a8, a9, a10, a11); }
  else if constexpr (n == 13) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12] = object; return f(a0, a1, a2,
      a3, a4, a5, a6, a7, a8, a9, a10, a11, a12); }
  else if constexpr (n == 14) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13] = object; return f(a0,
      a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13); }
  else if constexpr (n == 15) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14] = object; return
      f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14); }
  else if constexpr (n == 16) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15] = object;
      return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15); }
  else if constexpr (n == 17) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16] = object;
      return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16); }
  else if constexpr (n == 18) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17] =
      object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17); }
  else if constexpr (n == 19) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18]
      = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18); }
  else if constexpr (n == 20) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19); }
  else if constexpr (n == 21) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19,
      a20); }
  else if constexpr (n == 22) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21); }
  else if constexpr (n == 23) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17,
      a18, a19, a20, a21, a22); }
  else if constexpr (n == 24) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16,
      a17, a18, a19, a20, a21, a22, a23); }
  else if constexpr (n == 25) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23, a24] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15,
      a16, a17, a18, a19, a20, a21, a22, a23, a24); }
  else if constexpr (n == 26) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23, a24, a25] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14,
      a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25); }
  else if constexpr (n == 27) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23, a24, a25, a26] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13,
      a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26); }
  else if constexpr (n == 28) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23, a24, a25, a26, a27] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12,
      a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27); }
  else if constexpr (n == 29) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23, a24, a25, a26, a27, a28] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11,
      a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28); }
  else if constexpr (n == 30) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10,
      a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29); }
  else if constexpr (n == 31) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9,
      a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30); }
  else if constexpr (n == 32) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18,
      a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31] = object; return f(a0, a1, a2, a3, a4, a5, a6, a7,
      a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31);
      }
  // clang-format on
}

/// Calls f(0, first field), f(1, second field), ... for an aggregate with countable fields.
template <class T, class F>
constexpr void for_each_field(const T& object, F&& f) {
  [[maybe_unused]] std::size_t at = 0;
  if constexpr (field_count < T >> 0) with_fields<field_count<T>>(object, [&](const auto&... fields) { (f(at++, fields), ...); });
}

/// Adds a value to a hash. Returns false, and skips the value, if its kind has no hash (pointers, functions, classes with private
/// members).
template <class T>
bool hash_value(std::uint64_t& state, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    state = hash_of(state, static_cast<std::uint64_t>(static_cast<std::underlying_type_t<T>>(value)));
  } else if constexpr (std::is_integral_v<T>) {
    state = hash_of(state, static_cast<std::uint64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    state = hash_of(state, std::bit_cast<std::uint64_t>(static_cast<double>(value)));
  } else if constexpr (std::is_pointer_v<T>) {
    return false;
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    const std::string_view text = value;
    state = hash_of(state, hash_bytes(text.data(), text.size()));
  } else if constexpr (requires {
                         { value.has_value() } -> std::convertible_to<bool>;
                         *value;
                       }) {
    state = hash_of(state, value.has_value());
    return !value.has_value() || hash_value(state, *value);
  } else if constexpr (requires {
                         std::begin(value) != std::end(value);
                         requires !std::is_same_v<std::remove_cvref_t<decltype(*std::begin(value))>, T>;
                       }) {
    std::uint64_t count = 0;
    for (const auto& element : value) {
      ++count;
      if (!hash_value<std::remove_cvref_t<decltype(element)>>(state, element)) return false;
    }
    state = hash_of(state, count);
  } else if constexpr (field_count<T> > 0) {
    bool any = false;
    for_each_field(value, [&](std::size_t, const auto& field) { any = hash_value(state, field) || any; });
    return any;
  } else {
    return false;
  }
  return true;
}

}  // namespace weft::detail
