// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl/room.hpp"

#include <algorithm>

#include "support/fake_nccl/fake.hpp"

namespace fake_nccl {

Occupied::Room& Occupied::room() {
  static auto* const room = new Room;  // threads of streams outlive static objects
  return *room;
}

Occupied::Occupied(int device, const std::atomic<bool>& aborted) : device_(device) {
  std::unique_lock lock(room().mutex);
  auto& kernels = room().kernels[device_];
  kernels.push_back(this);
  room().changed.wait(lock, [&] {
    const auto before = std::find(kernels.begin(), kernels.end(), this) - kernels.begin();
    return aborted || before < machine().kernels;
  });
}

Occupied::~Occupied() {
  std::lock_guard lock(room().mutex);
  std::erase(room().kernels[device_], this);
  room().changed.notify_all();
}

void Occupied::notice_aborts() {
  std::lock_guard lock(room().mutex);
  room().changed.notify_all();
}

}  // namespace fake_nccl
