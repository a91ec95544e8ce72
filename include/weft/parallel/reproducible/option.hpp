// SPDX-License-Identifier: Apache-2.0
#pragma once
// The option `reproducible`, a bool that brings its code along: the accumulator of reproducible runs is compiled only in programs
// that set the option, to a constant or to a variable.
//
//   ModelOptions{.numerics = {.reproducible = true}}

#include <concepts>
#include <memory>

#include <weft/device/device.hpp>

namespace weft {

namespace detail {

class GradientAccumulator;
/// Defined in parallel/reproducible/parts.hpp.
template <class Device>
std::shared_ptr<GradientAccumulator> reproducible_accumulator(Device& device);

}  // namespace detail

/// True: the run is reproducible. Takes a bool, and nothing that converts to one.
class ReproducibleOption {
 public:
  using Make = std::shared_ptr<detail::GradientAccumulator> (*)(DefaultDevice&);
  ReproducibleOption() = default;
  template <std::same_as<bool> B>
  ReproducibleOption(B on) : make_(on ? &detail::reproducible_accumulator<DefaultDevice> : nullptr) {}
  explicit operator bool() const { return make_ != nullptr; }
  /// The function that makes the accumulator; null if the option is off.
  Make accumulator() const { return make_; }

 private:
  Make make_ = nullptr;
};

}  // namespace weft
