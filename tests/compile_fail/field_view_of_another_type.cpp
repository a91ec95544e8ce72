// SPDX-License-Identifier: Apache-2.0
// A View of doubles for a field of floats: without a copy there is nothing to convert.
// expect: the View's elements are of another type than the field's scalars
// mention: double
#include <weft/data/fields.hpp>

#include <Kokkos_Core.hpp>

#ifdef WEFT_FAIL
inline constexpr weft::data::Field<"heat", float> heat;
#else
inline constexpr weft::data::Field<"heat", double> heat;
#endif

void go(weft::FieldBatch<heat>& batch, const Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace>& frames) {
  batch[heat].view(frames);
}
