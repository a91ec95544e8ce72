// SPDX-License-Identifier: Apache-2.0
// The smallest program: what it includes must be found, what it calls must link.
#include <cstdio>

#include <dnnl.hpp>
#include <weft/core/version.hpp>
#include <weft/tensor/device.hpp>

int main() {
  Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(1).set_disable_warnings(true));
  weft::DefaultDevice device;
  const auto buffer = device.allocate(64);
  std::printf("weft %d.%d.%d, oneDNN %d\n", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH, dnnl::engine::get_count(dnnl::engine::kind::cpu) ? dnnl_version()->major : 0);
}
