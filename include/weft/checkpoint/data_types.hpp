// SPDX-License-Identifier: Apache-2.0
#pragma once
// The element types of the safetensors format, their names there and their counterparts in weft.
//
//   name_of(StoredType::bf16)   // "BF16"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <weft/core/scalar.hpp>

namespace weft::checkpoint {

/// The element types of safetensors.
enum class StoredType : std::uint8_t { boolean, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64 };

namespace detail {

struct StoredTypeInfo {
  StoredType type;
  std::string_view name;
  std::size_t bytes;
  std::optional<DataType> in_weft;
};
inline constexpr std::array<StoredTypeInfo, 13> stored_types{{
    {StoredType::boolean, "BOOL", 1, std::nullopt},
    {StoredType::u8, "U8", 1, DataType::uint8},
    {StoredType::i8, "I8", 1, DataType::int8},
    {StoredType::u16, "U16", 2, DataType::uint16},
    {StoredType::i16, "I16", 2, DataType::int16},
    {StoredType::u32, "U32", 4, DataType::uint32},
    {StoredType::i32, "I32", 4, DataType::int32},
    {StoredType::u64, "U64", 8, DataType::uint64},
    {StoredType::i64, "I64", 8, DataType::int64},
    {StoredType::f16, "F16", 2, DataType::float16},
    {StoredType::bf16, "BF16", 2, DataType::bfloat16},
    {StoredType::f32, "F32", 4, DataType::float32},
    {StoredType::f64, "F64", 8, DataType::float64},
}};

}  // namespace detail

/// The name of an element type in safetensors, such as "BF16".
constexpr std::string_view name_of(StoredType type) { return detail::stored_types[std::size_t(type)].name; }
/// Bytes of an element.
constexpr std::size_t size_of(StoredType type) { return detail::stored_types[std::size_t(type)].bytes; }
/// Null for a name that the format does not define.
constexpr std::optional<StoredType> stored_type(std::string_view name) {
  for (const auto& info : detail::stored_types)
    if (info.name == name) return info.type;
  return std::nullopt;
}
constexpr StoredType stored_type(DataType type) {
  for (const auto& info : detail::stored_types)
    if (info.in_weft == type) return info.type;
  return StoredType::u8;  // not reached: every DataType is in the table
}

}  // namespace weft::checkpoint
