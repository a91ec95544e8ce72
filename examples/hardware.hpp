// SPDX-License-Identifier: Apache-2.0
#pragma once
// The hardware and the software of a run, for its layout.json.
//
//   nlohmann::ordered_json here = hardware_of(world);   // {"machines": 2, "processor": "AMD EPYC 9654", "cores": 96, ...}

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/comm/run_options.hpp>
#include <weft/comm/this_host.hpp>
#include <weft/core/version.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/mesh/world.hpp>

/// The processor's name in /proc/cpuinfo; empty if it has none (ARM).
inline std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const std::size_t at = line.find(": "); line.starts_with("model name") && at != line.npos) return line.substr(at + 2);
  return {};
}

/// The number of machines, and the hardware of this rank's: host, processor, cores (hardware threads), memory, GPU, threads of a
/// rank; system, compiler and weft's version. Collective.
inline nlohmann::ordered_json hardware_of(const weft::World& world) {
  std::vector<std::uint64_t> hosts(std::size_t(world.size())), mine{weft::comm::this_host()};
  world.communicator().all_gather(mine, hosts);
  char host[256] = {};
  (void)::gethostname(host, sizeof host - 1);
  utsname system{};
  (void)::uname(&system);
  const auto& exec = world.device().exec();
  nlohmann::ordered_json json = {{"machines", std::set<std::uint64_t>(hosts.begin(), hosts.end()).size()}, {"host", host}};
  if (const std::string name = processor_name(); !name.empty()) json["processor"] = name;
  json["cores"] = weft::runtime::detail::cores();
  json["memory_bytes"] = std::uint64_t(::sysconf(_SC_PHYS_PAGES)) * std::uint64_t(::sysconf(_SC_PAGESIZE));
#ifdef KOKKOS_ENABLE_CUDA
  json["gpu"] = std::string(exec.cuda_device_prop().name);
#endif
  json["execution"] = exec.name();
  json["threads_per_rank"] = weft::detail::threads_of(exec);
  json["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  json["compiler"] = __VERSION__;
  json["weft"] = weft::version();
  return json;
}
