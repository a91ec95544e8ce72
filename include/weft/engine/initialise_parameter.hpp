// SPDX-License-Identifier: Apache-2.0
#pragma once
// The elements of a parameter that a rank keeps, set to their initial values (engine/initial_values.hpp). If ranks hold pieces,
// no rank has the whole parameter; only an orthogonal matrix is computed whole, on the host of each rank.
//
//   detail::initialise_parameter<float>(device, state, seed);

#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/core/scalar.hpp>
#include <weft/device/host_copies.hpp>
#include <weft/engine/parameter_state.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/random.hpp>

namespace weft::detail {

template <class T, class Exec>
WEFT_COLD void initialise_orthogonal(Device<Exec>& device, const ParameterState& state, std::uint64_t key) {
  std::vector<T> mine;
  if (device.rehearsal() == nullptr) {
    const std::size_t rows = state.global()[0];
    const std::vector<double> whole = orthogonal_matrix(rows, rows == 0 ? 0 : state.global().size() / rows, key);
    mine.assign(state.kept(), T(0.0f));
    for (const Run& run : state.runs())
      for (std::size_t i = 0; i < run.length; ++i)
        mine[run.local + i] = T(accumulate_t<T>(state.info().initial.deviation * whole[run.global + i]));
  }
  send_to_device(device, state.value().get(), mine.data(), state.kept() * sizeof(T));
}

/// The initial values of the elements that the rank keeps; padding is zero.
template <class T, class Exec>
WEFT_COLD void initialise_parameter(Device<Exec>& device, const ParameterState& state, std::uint64_t seed) {
  using Kind = InitialValues::Kind;
  const InitialValues& initial = state.info().initial;
  const std::uint64_t key = key_of(seed, site_of(state.name()));
  if (state.kept() == 0) return;
  if (initial.kind == Kind::orthogonal) return initialise_orthogonal<T>(device, state, key);
  T* data = static_cast<T*>(state.value().get());
  std::size_t held = 0;
  for (const Run& run : state.runs()) held += run.length;
  if (held != state.kept()) kernels::fill<T>(device, state.kept(), data, T(0.0f));
  for (const Run& run : state.runs()) {
    T* const out = data + run.local;
    switch (initial.kind) {
      case Kind::uniform:
        kernels::initialise_uniform<T>(device, 1, run.length, out, key, 0, run.global, 0, initial.low, initial.high);
        break;
      case Kind::normal:
        kernels::initialise_normal<T>(device, 1, run.length, out, key, 0, run.global, 0, initial.mean, initial.deviation);
        break;
      case Kind::truncated_normal:
        kernels::initialise_truncated_normal<T>(device, 1, run.length, out, key, 0, run.global, 0,
                                                {initial.mean, initial.deviation, initial.low, initial.high});
        break;
      default: kernels::fill<T>(device, run.length, out, T(accumulate_t<T>(initial.mean)));
    }
  }
}

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void initialise_parameter<float>(Device<Kokkos::DefaultHostExecutionSpace>&, const ParameterState&,
                                                 std::uint64_t);
extern template void initialise_parameter<bfloat16>(Device<Kokkos::DefaultHostExecutionSpace>&, const ParameterState&,
                                                    std::uint64_t);
extern template void initialise_parameter<double>(Device<Kokkos::DefaultHostExecutionSpace>&, const ParameterState&,
                                                  std::uint64_t);
}  // namespace weft::detail
#endif
