// SPDX-License-Identifier: Apache-2.0
#pragma once
// Updates of slots by a rule's arithmetic per element (Rule::element): of one slot, and of all slots at once on devices. Both use
// the same code, so the bits are equal.
//
//   update_slot<AdamWRule, float>(device, slot, options, learning_rate, {.value = gradient_scale}, step);

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/device/device.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/update_elements.hpp>
#include <weft/optim/rule_parts.hpp>
#include <weft/optim/slot.hpp>
#include <weft/optim/update_rule.hpp>

namespace weft::optim {

namespace detail {

/// The arrays of a slot for the update of a rule.
template <class P, int buffers>
kernels::UpdateArrays<P, accumulate_t<P>, buffers> arrays_of(const Slot& slot) {
  using A = accumulate_t<P>;
  kernels::UpdateArrays<P, A, buffers> arrays{.n = slot.state->kept(),
                                              .parameter = static_cast<P*>(slot.state->value().get()),
                                              .master = static_cast<A*>(slot.master.get()),
                                              .gradient = static_cast<const A*>(slot.state->gradient().get())};
  for (int k = 0; k < buffers; ++k) arrays.buffers[k] = static_cast<A*>(slot.kept[std::size_t(k)].get());
  return arrays;
}

}  // namespace detail

/// Updates one slot by Rule::element. Your own rule can call it with another rule.
template <class Rule, class P, class Exec>
void update_slot(Device<Exec>& device, Slot& slot, const typename Rule::Options& options, double learning_rate,
                 const kernels::GradientScale& scale, std::uint64_t step) {
  using Element = detail::ElementOf<Rule, P>;
  kernels::update_elements(device, detail::arrays_of<P, Element::buffers>(slot),
                           Rule::template element<accumulate_t<P>>(*slot.state, options, learning_rate, step), scale);
}

namespace detail {

/// A slot that is due, and the inputs of its update.
template <class Options>
struct SlotUpdate {
  Slot* slot;
  const Options* options;
  double learning_rate;
  std::uint64_t step;
};

/// Updates slots with one launch per different element: with a single set of options, one launch.
template <class Rule, class P, class Exec>
void update_slots(Device<Exec>& device, std::span<const SlotUpdate<typename Rule::Options>> slots,
                  const kernels::GradientScale& scale) {
  using Element = ElementOf<Rule, P>;
  using Arrays = kernels::UpdateArrays<P, accumulate_t<P>, Element::buffers>;
  struct Launch {
    Element element;
    std::vector<Arrays> parts;
  };
  std::vector<Launch> launches;
  for (const auto& [slot, options, learning_rate, step] : slots) {
    const LentSlot lent(*slot, slot->state->gradient());
    const Element element = Rule::template element<accumulate_t<P>>(*slot->state, *options, learning_rate, step);
    auto same = std::find_if(launches.begin(), launches.end(), [&](const Launch& one) { return one.element == element; });
    if (same == launches.end()) same = launches.insert(same, Launch{element, {}});
    same->parts.push_back(arrays_of<P, Element::buffers>(*slot));
  }
  for (const Launch& one : launches) kernels::update_elements(device, std::span<const Arrays>(one.parts), one.element, scale);
}

/// The average of a slot's values moves towards them: average += rate (value - average).
template <class A, class Exec>
void average_values(Device<Exec>& device, Slot& slot, double rate) {
  const std::size_t n = slot.state->kept();
  const A* const values = static_cast<const A*>(slot.wide_value());
  A* const averages = static_cast<A*>(slot.kept.back().get());
  const A part = A(rate);
  weft::detail::for_each_index(
      device, {"optimizer", 3 * n * sizeof(A)}, n,
      KOKKOS_LAMBDA(const std::size_t i) { averages[i] = averages[i] + part * (values[i] - averages[i]); });
}

/// The element-wise updates of a rule, for the model's element type.
template <class Options, class Exec>
struct ElementUpdates {
  void (*one)(Device<Exec>&, Slot&, const Options&, double, const kernels::GradientScale&, std::uint64_t) = nullptr;
  /// Updates many slots at once, with a scale that can stay on the device; null on hosts, and if the rule has its own update.
  void (*all)(Device<Exec>&, std::span<const SlotUpdate<Options>>, const kernels::GradientScale&) = nullptr;
};
template <class Rule, class P, class Exec>
ElementUpdates<typename Rule::Options, Exec> element_updates() {
  using Options = typename Rule::Options;
  if constexpr (has_update<Rule>()) {
    return {.one = [](Device<Exec>& device, Slot& slot, const Options& options, double learning_rate,
                      const kernels::GradientScale& scale, std::uint64_t step) {
      Rule::template update<P, Exec>(device, slot, options, learning_rate, scale.value, step);
    }};
  } else if constexpr (weft::detail::on_host<Exec>) {
    return {.one = &update_slot<Rule, P, Exec>};
  } else {
    return {.one = &update_slot<Rule, P, Exec>, .all = &update_slots<Rule, P, Exec>};
  }
}

}  // namespace detail

}  // namespace weft::optim
