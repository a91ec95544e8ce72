// SPDX-License-Identifier: Apache-2.0
#pragma once
// A base of rules that compute a direction from the whole gradient of a matrix and leave all other parameters to AdamW. A rule of
// this kind adds its name, `takes_whole` and `transform`, and redefines the members in which it differs.
//
//   struct MuonRule : optim::DirectionRule<MuonOptions> {
//     static constexpr std::array<std::string_view, 2> rules{"muon", "adamw"};
//     ...

#include <array>
#include <cstdint>
#include <string_view>

#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/update_rule.hpp>

namespace weft::optim {

/// `O` has AdamW's betas, epsilon and decays, and the options of the rule. The gradient travels to the home of each matrix, and
/// the direction back; the rule keeps no buffer of a matrix' shape.
template <class O>
struct DirectionRule {
  using Options = O;
  static constexpr Needs needs = Needs::matrix;
  static constexpr int buffers = 2, whole_buffers = 0;
  static constexpr std::array<std::string_view, 2> buffer_names = AdamWRule::buffer_names;  // in checkpoints
  static constexpr std::array<std::string_view, 0> whole_buffer_names{};

  static void check(const Options& options) { AdamWRule::check(detail::adamw_part(options)); }

  /// gradient [kept] = gradient_scale times the parameter's gradient.
  template <class P, class Exec>
  static void prepare(Device<Exec>& device, Slot& slot, const Options&, double gradient_scale, std::uint64_t,
                      accumulate_t<P>* gradient) {
    using A = accumulate_t<P>;
    kernels::scale<A>(device, slot.state->kept(), A(gradient_scale), static_cast<const A*>(slot.state->gradient().get()),
                      gradient);
  }

  /// p = (1 - learning_rate * decay) p - learning_rate * direction.
  template <class P, class Exec>
  static void apply(Device<Exec>& device, Slot& slot, const Options& options, double learning_rate, std::uint64_t,
                    const accumulate_t<P>* direction) {
    move<P>(device, slot, direction, 1 - learning_rate * options.weight_decay, learning_rate);
  }

  /// The rule of all other parameters.
  template <class A>
  static auto element(const ParameterState& state, const Options& options, double learning_rate, std::uint64_t step) {
    return AdamWRule::element<A>(state, detail::adamw_part(options), learning_rate, step);
  }

 protected:
  /// p = keep * p - length * direction.
  template <class P, class Exec>
  static void move(Device<Exec>& device, Slot& slot, const accumulate_t<P>* direction, double keep, double length) {
    kernels::direction_update<P>(device, slot.state->kept(), static_cast<P*>(slot.state->value().get()),
                                 static_cast<accumulate_t<P>*>(slot.master.get()), direction, keep, length);
  }
};

}  // namespace weft::optim
