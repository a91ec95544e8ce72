// SPDX-License-Identifier: Apache-2.0
#pragma once
// The update of parameters element by element, in one pass over memory. A rule writes the arithmetic of an element; the loop
// handles gradients, master copies and the scale of the gradients. On devices one launch updates many parameters.
//
//   struct Descent {                                        // the arithmetic of one or several elements
//     static constexpr int buffers = 0;
//     float rate;
//     template <class V>
//     KOKKOS_FUNCTION void operator()(V gradient, V& value, V*) const { value = value - V(rate) * gradient; }
//     bool operator==(const Descent&) const = default;
//   };
//   kernels::update_elements(device, arrays, Descent{0.1f}, {.value = 0.5});

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/part_table.hpp>

namespace weft::kernels {

/// The arrays of a parameter's update, [n] each. `master` holds the parameter in accumulate_t<P> if P is narrower; otherwise it
/// is null and the parameter itself is updated. With a master copy `parameter` may be null. If an element of `parameter` is not
/// the rounding of its master value, the program has written it, and the update starts from it. `buffers` are the rule's.
template <class P, class G, int count>
struct UpdateArrays {
  std::size_t n = 0;
  P* parameter = nullptr;
  accumulate_t<P>* master = nullptr;
  const G* gradient = nullptr;
  accumulate_t<P>* buffers[count == 0 ? 1 : count] = {};
  bool operator==(const UpdateArrays&) const = default;
};

/// The factor by which clipping scales gradients whose norm is `norm` without their loss scale: min(1, clip / (norm + 1e-6)),
/// divided by the loss scale. A clip of 0 disables clipping.
KOKKOS_INLINE_FUNCTION double clip_factor(double norm, double loss_scale, double clip) {
  const double shrink = clip / (norm + 1e-6);
  return 1 / loss_scale * (clip > 0 && shrink < 1 ? shrink : 1.0);
}

/// The factor of all gradients in an update: a number; or on devices, so that the host need not wait for the norm, the clipping
/// factor of a sum of squares in device memory. An update with a norm that is not finite writes nothing.
struct GradientScale {
  double value = 1;
  const double* squares = nullptr;  ///< the sum of the squares of all gradients, loss scale included; null: use `value`
  double loss_scale = 1, clip = 0;

  /// NaN: write nothing.
  KOKKOS_INLINE_FUNCTION double factor() const {
    if (squares == nullptr) return value;
    const double norm = Kokkos::sqrt(*squares) / loss_scale;
    return norm <= std::numeric_limits<double>::max() ? clip_factor(norm, loss_scale, clip)
                                                      : std::numeric_limits<double>::quiet_NaN();
  }
};

namespace detail {

/// Bytes per element that an update reads and writes of a parameter and its master copy; either may be null.
template <class P>
std::size_t weight_bytes(const P* parameter, const accumulate_t<P>* master) {
  constexpr std::size_t reads = std::is_same_v<P, accumulate_t<P>> ? 0 : 1;  // see values_before
  if (master == nullptr) return 2 * sizeof(P);
  return 2 * sizeof(*master) + (parameter == nullptr ? 0 : (reads + 1) * sizeof(P));
}

template <class P, class G, int count>
std::size_t update_bytes(const UpdateArrays<P, G, count>& of) {
  return of.n * (sizeof(G) + 2 * count * sizeof(accumulate_t<P>) + weight_bytes(of.parameter, of.master));
}

/// The values from which an update starts: those of the master copy. If a 16-bit parameter is not the rounding of its master
/// value, the program has written the parameter after the last update, and the written value is used.
template <class V, class P>
KOKKOS_FORCEINLINE_FUNCTION V values_before(const P* parameter, const accumulate_t<P>* master, std::size_t i, std::size_t count) {
  if (master == nullptr) return V::load(parameter + i, count);
  const V old = V::load(master + i, count);
  if constexpr (std::is_same_v<P, accumulate_t<P>>) return old;
  else return parameter == nullptr ? old : V::unless_written(old, parameter + i, count);
}

/// Updates the elements [i, i + n) of a parameter, with n at most the size of V.
template <class V, class Element, class P, class G, int count>
KOKKOS_FORCEINLINE_FUNCTION void update_lanes(const UpdateArrays<P, G, count>& of, const Element& element, accumulate_t<P> scale,
                                              std::size_t i, std::size_t n) {
  const V gradient = V(scale) * V::load(of.gradient + i, n);
  V kept[count == 0 ? 1 : count];
  for (int k = 0; k < count; ++k) kept[k] = V::load(of.buffers[k] + i, n);
  V value = values_before<V>(of.parameter, of.master, i, n);
  element(gradient, value, kept);
  for (int k = 0; k < count; ++k) kept[k].store(of.buffers[k] + i, n);
  if (of.parameter != nullptr) value.store(of.parameter + i, n);
  if (of.master != nullptr) value.store(of.master + i, n);
}

/// Elements per team of lanes.
inline constexpr std::size_t update_piece = 4096;

}  // namespace detail

/// Updates one parameter. `element(gradient, value, buffers)` gets one or several elements: the gradient times the scale, the
/// value and Element::buffers buffers. It changes the value and the buffers.
template <class Element, class P, class G, class Exec>
requires(detail::on_host<Exec>) void update_elements(Device<Exec>& device, const UpdateArrays<P, G, Element::buffers>& arrays,
                                                     const Element& element, const GradientScale& scale) {
  using V = detail::lanes_for<Exec, accumulate_t<P>>;  // most of the traffic is in accumulate_t
  const auto factor = accumulate_t<P>(scale.value);
  detail::for_lanes<V>(device, {"optimizer", detail::update_bytes(arrays)}, arrays.n,
                       [=](std::size_t i, std::size_t n) { detail::update_lanes<V>(arrays, element, factor, i, n); });
}
template <class Element, class P, class G, class Exec>
requires(!detail::on_host<Exec>) void update_elements(Device<Exec>& device, const UpdateArrays<P, G, Element::buffers>& arrays,
                                                      const Element& element, const GradientScale& scale) {
  using V = detail::lanes_for<Exec, accumulate_t<P>>;
  using Team = detail::row_team<Exec>;
  constexpr std::size_t piece = detail::update_piece;
  detail::for_each_row(
      device, {"optimizer", detail::update_bytes(arrays)}, (arrays.n + piece - 1) / piece,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const double factor = scale.factor();
        if (factor != factor) return;
        const std::size_t begin = row * piece, rest = arrays.n - begin;
        team.template sweep<V>(rest < piece ? rest : piece, [&](std::size_t i, std::size_t n) {
          detail::update_lanes<V>(arrays, element, accumulate_t<P>(factor), begin + i, n);
        });
      });
}

/// Updates many parameters with one Element, on devices in one launch. The bits equal those of one update after the other.
template <class Element, class P, class G, class Exec>
requires(!detail::on_host<Exec>) void update_elements(Device<Exec>& device,
                                                      std::span<const UpdateArrays<P, G, Element::buffers>> all,
                                                      const Element& element, const GradientScale& scale) {
  using V = detail::lanes_for<Exec, accumulate_t<P>>;
  using Team = detail::row_team<Exec>;
  using Arrays = UpdateArrays<P, G, Element::buffers>;
  std::size_t bytes = 0;
  for (const Arrays& arrays : all) bytes += detail::update_bytes(arrays);
  const auto& table = device.template cache<detail::PartTables<Arrays, detail::update_piece>>().of(device, all);
  const auto list = table.list();
  detail::for_each_row(
      device, {"optimizer", bytes}, table.pieces(), KOKKOS_LAMBDA(std::size_t row, Team team) {
        const double factor = scale.factor();
        if (factor != factor) return;
        const Arrays arrays = list.part_of(row);
        const std::size_t begin = list.begin(row);
        team.template sweep<V>(list.end(row) - begin, [&](std::size_t i, std::size_t n) {
          detail::update_lanes<V>(arrays, element, accumulate_t<P>(factor), begin + i, n);
        });
      });
}

}  // namespace weft::kernels
