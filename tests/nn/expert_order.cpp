// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/expert_assignments.hpp
// The tests of mixtures again, with a device that sorts rows by expert itself, as a GPU does: by the arithmetic of
// kernels/cuda/expert_order.cuh, with the standard library's stable sort in place of CUB's.

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

#include <weft/kernels/cuda/expert_place.hpp>
#include <weft/kernels/expert_assignments.hpp>

namespace {
int sorted_there = 0;
}

template <>
struct weft::detail::DeviceOrder<Kokkos::DefaultHostExecutionSpace> {
  static constexpr bool exists = true;
  static std::vector<std::uint64_t> sort(auto&, std::size_t slots, std::size_t experts, std::size_t grain,
                                         const std::int32_t* chosen, std::int32_t* order, std::size_t room, std::int32_t* place) {
    ++sorted_there;
    std::vector<std::int32_t> slot(slots), expert, begin;
    std::iota(slot.begin(), slot.end(), 0);
    std::stable_sort(slot.begin(), slot.end(), [&](std::int32_t a, std::int32_t b) { return chosen[a] < chosen[b]; });
    for (const std::int32_t s : slot) expert.push_back(chosen[s]);
    std::fill(order, order + room, -1);
    std::fill(place, place + slots, -1);
    for (std::size_t e = 0; e <= experts; ++e)
      begin.push_back(gpu::detail::first_of_expert(expert.data(), std::int32_t(slots), std::int32_t(e)));
    for (std::size_t i = 0; i < slots; ++i) {
      const std::int32_t at = gpu::detail::place_of_sorted(begin.data(), expert[i], std::int32_t(i), std::int32_t(grain));
      order[at] = slot[i];
      place[slot[i]] = at;
    }
    std::vector<std::uint64_t> counts;
    for (std::size_t e = 0; e < experts; ++e) counts.push_back(std::uint64_t(begin[e + 1] - begin[e]));
    return counts;
  }
};

#include "mixture.cpp"

TEST_CASE("rows that the device sorts go where the host sends them") {
  CHECK_NOTHROW(check_layer(mixture_of({.experts = 4, .top_k = 2}), shape, two_sequences));
  CHECK(sorted_there > 0);
  for (const std::size_t grain : {1, 4, 32})
    for (const std::size_t experts : {1, 5, 40}) {
      std::vector<std::int32_t> chosen;
      for (std::size_t slot = 0; slot < 48; ++slot)
        chosen.push_back(std::int32_t(Philox::uniform(experts, slot) * double(experts)));
      std::vector<std::int32_t> order(chosen.size() + experts * (grain - 1)), place(chosen.size());
      DefaultDevice device;
      auto counts = detail::DeviceOrder<Exec>::sort(device, chosen.size(), experts, grain, chosen.data(), order.data(),
                                                    order.size(), place.data());
      const detail::Assignments want = detail::assign(chosen, experts, {}, grain);
      std::size_t kept = 0;
      for (auto& count : counts) kept += count = detail::filled(count, grain);
      CHECK(counts == want.counts);
      CHECK(place == want.place);
      REQUIRE(kept <= order.size());
      CHECK(std::all_of(order.begin() + std::ptrdiff_t(kept), order.end(), [](std::int32_t slot) { return slot == -1; }));
      order.resize(kept);
      CHECK(order == want.order);
    }
}
