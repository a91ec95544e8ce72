// SPDX-License-Identifier: Apache-2.0
#pragma once
// The times of collectives, and the figures of known machines. Definitions for plan/machine.hpp.

#include <weft/core/error.hpp>
#include <weft/core/inline.hpp>
#include <weft/plan/machine.hpp>

namespace weft::plan {

// Rings and trees as in Thakur, Rabenseifner and Gropp (2005). A ring over several nodes enters and leaves each node once. The
// group's ranks in a node run one ring each, so they use as many network cards.
WEFT_COLD WEFT_INLINE double Machine::collective_s(comm::Operation operation, double bytes, int ranks, int here) const {
  using comm::Operation;
  if (ranks <= 1) return 0;
  here = std::clamp(here, 1, ranks);
  const bool leaves = here < ranks;
  const double p = ranks, nodes = std::ceil(p / here), steps = std::ceil(std::log2(p));
  const double between = here > 1 ? std::min(inside.bandwidth, here * across.bandwidth) : across.bandwidth;
  const double bandwidth = link_share * (leaves ? between : inside.bandwidth);
  const double around = leaves ? (p - nodes) * inside.latency_s + (nodes - 1) * across.latency_s : (p - 1) * inside.latency_s;
  const double up = leaves
                        ? std::ceil(std::log2(double(here))) * inside.latency_s + std::ceil(std::log2(nodes)) * across.latency_s
                        : steps * inside.latency_s;
  const double once = bytes / bandwidth, pieces = (p - 1) / p * once;
  switch (operation) {
    case Operation::all_reduce: return launch_s + std::min(2 * around + 2 * pieces, 2 * up + 2 * once);
    case Operation::broadcast:
    case Operation::reduce: return launch_s + up + once;
    case Operation::barrier: return launch_s + 2 * up;
    case Operation::send:
    case Operation::recv: return message_s(bytes, leaves);
    default: return launch_s + around + pieces;  // all_gather, reduce_scatter and all_to_all
  }
}

WEFT_COLD WEFT_INLINE Machine known_machine(std::string_view name) {
  // NVIDIA's data sheets: A100 80GB SXM (NVLink 600 GB/s both ways, PCIe 64 GB/s both ways, DGX A100 with 2 TB and 200 Gb/s per
  // GPU), H100 and H200 SXM (NVLink 900 GB/s, PCIe 128 GB/s, DGX with 2 TB and 400 Gb/s per GPU). docs/planning.md gives the
  // measurements to which shares and latencies were fitted.
  Machine machine{.name = std::string(name),
                  .flops_16 = 312e12,
                  .flops_32 = 19.5e12,
                  .flops_64 = 19.5e12,
                  .memory_bandwidth = 2.039e12,
                  .product_share = 0.72,
                  .attention_share = 0.5,
                  .attention_backward_share = 0.4,
                  .memory_share = 0.85,
                  .link_share = 0.8,
                  .units = 108,
                  .half_terms = 64,
                  .launch_s = 3e-6,
                  .inside = {1.5e-6, 300e9},
                  .across = {5e-6, 25e9},
                  .host_bandwidth = 32e9,
                  .host_memory = 2e12};
  if (name == "a100") return machine;
  machine.flops_16 = 989.4e12, machine.flops_32 = 66.9e12, machine.flops_64 = 66.9e12;
  machine.memory_bandwidth = 3.35e12;
  machine.product_share = 0.7;
  machine.units = 132;
  machine.inside.bandwidth = 450e9, machine.across.bandwidth = 50e9, machine.host_bandwidth = 64e9;
  if (name == "h100") return machine;
  machine.memory_bandwidth = 4.8e12;
  if (name == "h200") return machine;
  throw_error<UsageError>({"no machine is called '", name,
                           "': known are a100, h100, h200 and this; others are read from a file (weft/plan/machine_file.hpp)"});
}

}  // namespace weft::plan
