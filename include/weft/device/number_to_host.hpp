// SPDX-License-Identifier: Apache-2.0
#pragma once
// A number that a device computes and the host reads while the device continues with later work.
//
//   auto& to_host = device.cache<NumberToHost<Exec>>();
//   to_host.start(device, norm.data(), norm.buffer());
//   ...                                          // more work for the device
//   const double value = to_host.wait(device);   // does not wait for that work

#include <Kokkos_Core.hpp>

#include <weft/device/device.hpp>
#include <weft/device/host_copies.hpp>

namespace weft::detail {

/// Transfers one number at a time. This general version waits for all work of the device; a GPU copies concurrently
/// (device/cuda/number_to_host.hpp). In a rehearsal the number is 0.
template <class Exec>
class NumberToHost {
 public:
  /// Reads the number after the current work. `held` is the number's memory, and is kept alive until then.
  void start(Device<Exec>& device, const double* number, const Buffer&) {
    value_ = 0;
    copy_from_device(device, &value_, number, sizeof value_);
  }
  double wait(Device<Exec>& device) {
    device.exec().fence("weft: a number on its way to the host");
    return value_;
  }

 private:
  double value_ = 0;
};

}  // namespace weft::detail

#ifdef KOKKOS_ENABLE_CUDA
#include <weft/device/cuda/number_to_host.hpp>
#endif
