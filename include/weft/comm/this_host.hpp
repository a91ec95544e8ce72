// SPDX-License-Identifier: Apache-2.0
#pragma once
// The identity of the machine that a rank runs on: ranks with the same number share its cores and its memory.
//
//   std::uint64_t host = comm::this_host();   // ranks with equal numbers are neighbours

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include <weft/core/text.hpp>

namespace weft::comm {

/// A hash of the machine's name and boot.
WEFT_COLD inline std::uint64_t this_host() {
  char name[256] = {};
  (void)::gethostname(name, sizeof name - 1);
  std::string text = name, boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::uint64_t hash = 1469598103934665603u;  // FNV-1a
  for (const char c : text + boot) hash = (hash ^ std::uint64_t(static_cast<unsigned char>(c))) * 1099511628211u;
  return hash;
}

}  // namespace weft::comm
