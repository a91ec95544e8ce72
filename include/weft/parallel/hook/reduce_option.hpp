// SPDX-License-Identifier: Apache-2.0
#pragma once
// The option `reduce`, an element type that brings its code along: the code of narrow sums is compiled only in programs that set
// the option.
//
//   ModelOptions{.numerics = {.reduce = DataType::bfloat16}}

#include <concepts>
#include <memory>
#include <optional>

#include <weft/core/scalar.hpp>
#include <weft/device/device.hpp>

namespace weft {

namespace hook {
class AnyHook;
}

namespace detail {
/// The hook with which DataParallel sums its buckets in bfloat16. Defined in parallel/hook/compress.hpp.
template <class Device>
std::unique_ptr<hook::AnyHook> narrow_hook(Device& device);
}  // namespace detail

/// The type in which gradients are reduced over data ranks, or unset. Takes a DataType.
class ReduceOption {
 public:
  ReduceOption() = default;
  template <std::same_as<DataType> T>
  ReduceOption(T type) : type_(type), narrow_(&detail::narrow_hook<DefaultDevice>) {}
  /// False if unset: gradients are reduced in their own type.
  explicit operator bool() const { return type_.has_value(); }
  DataType operator*() const { return *type_; }
  friend bool operator==(const ReduceOption& option, DataType type) { return option.type_ == type; }
  using Make = std::unique_ptr<hook::AnyHook> (*)(DefaultDevice&);
  /// The function that makes DataParallel's hook; null if nothing becomes narrower.
  Make narrow() const { return type_ == DataType::bfloat16 ? narrow_ : nullptr; }

 private:
  std::optional<DataType> type_;
  Make narrow_ = nullptr;
};

}  // namespace weft
