// SPDX-License-Identifier: Apache-2.0
#pragma once
// Readers of the value and the gradient that this rank keeps of a parameter, wherever they are stored, in the types that layers
// use.
//
//   const Buffer value = value_of(device, state);   // [state.kept()] of state.type()

#include <weft/engine/hooks.hpp>
#include <weft/kernels/elementwise.hpp>

namespace weft::detail {

/// `count` elements of type `from` as elements of type `to`; the same buffer if the types are equal.
template <class Device>
Buffer as_type(Device& device, const Buffer& buffer, std::size_t count, DataType from, DataType to) {
  if (from == to || !buffer) return buffer;
  Buffer out = device.allocate(count * size_of(to));
  dispatch_real(from, [&](auto in) {
    dispatch_real(to, [&](auto as) {
      kernels::cast<decltype(in), decltype(as)>(device, count, static_cast<const decltype(in)*>(buffer.get()),
                                                static_cast<decltype(as)*>(out.get()));
    });
  });
  return out;
}

/// The value, [kept()] of state.type(): read to the device if it is in a store, rounded if the master copy is kept. Do not write
/// to it.
template <class Device>
Buffer value_of(Device& device, const ParameterState& state) {
  if (!state.storage().store()) return as_type(device, state.value(), state.kept(), state.kept_type(), state.type());
  Buffer value = device.allocate(state.kept() * size_of(state.type()));
  if (state.kept() != 0)
    read_record(device, *state.storage().store(), state.storage().record(), value.get(), state.kept() * size_of(state.type()));
  return value;
}

/// The gradient, [kept()] of state.gradient_type(); null before the first step. Do not write to it.
template <class Device>
Buffer gradient_of(Device& device, const ParameterState& state) {
  return as_type(device, state.gradient(), state.kept(), state.kept_gradient_type(), state.gradient_type());
}

}  // namespace weft::detail
