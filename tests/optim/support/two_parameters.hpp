// SPDX-License-Identifier: Apache-2.0
#pragma once
// A matrix and a vector as a model for tests of optimizers: gradients are written by hand.

#include <cmath>
#include <cstdint>
#include <deque>
#include <utility>

#include <weft/weft.hpp>

namespace weft_test {

using namespace weft;

/// The parts of a model that an optimizer needs: a matrix and a vector.
template <class S>
struct TwoParameters {
  struct model_type {
    using scalar = S;
  };
  using A = accumulate_t<S>;

  explicit TwoParameters(Shape matrix = {7, 5}) {
    for (const auto& [name, shape] : {std::pair{"matrix", matrix}, std::pair{"vector", Shape{11}}}) {
      ParameterInfo info{
          .name = name, .global = shape, .local = shape, .type = data_type_of<S>, .gradient_type = data_type_of<A>};
      info.runs = {{0, 0, shape.size()}};
      ParameterState& state = states.emplace_back(std::move(info));
      state.storage().set_value(the_device.allocate(state.bytes()));
      for (std::size_t i = 0; i < state.size(); ++i) value(state)[i] = S(A(Philox::normal(site_of(name), i)));
    }
  }

  static S* value(const ParameterState& state) { return static_cast<S*>(state.value().get()); }
  static A* gradient(const ParameterState& state) { return static_cast<A*>(state.gradient().get()); }
  void set_gradients(std::uint64_t step, double scale = 1) {
    for (ParameterState& state : states) {
      if (!state.gradient()) state.gradients().set_buffer(the_device.allocate(state.gradient_bytes()));
      for (std::size_t i = 0; i < state.size(); ++i)
        gradient(state)[i] = A(scale * Philox::normal(key_of(site_of(state.name()), step), i));
    }
  }
  double norm() const {
    double sum = 0;
    for (const ParameterState& state : states)
      for (std::size_t i = 0; i < state.size(); ++i) sum += double(gradient(state)[i]) * double(gradient(state)[i]);
    return std::sqrt(sum);
  }

  template <class F>
  void for_each_state(F&& f) {
    for (ParameterState& state : states) f(state);
  }
  Communicator communicator() const { return {}; }
  DefaultDevice& device() { return the_device; }

  DefaultDevice the_device;
  std::deque<ParameterState> states;
};

}  // namespace weft_test
