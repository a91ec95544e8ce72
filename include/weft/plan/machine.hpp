// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine's speeds for estimates of time: computation, memory and communication of its ranks. A Machine is known by name,
// measured on this computer (plan/this_machine.hpp) or read from a file (plan/machine_file.hpp).
//
//   const Machine machine = known_machine("h100");
//   machine.product_s(8192, 4096, 1024, bytes, DataType::bfloat16)   // seconds

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include <weft/comm/operation.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/scalar.hpp>

namespace weft::plan {

/// The connection between two ranks.
struct Link {
  double latency_s = 0;  ///< per message, or per step of a collective
  double bandwidth = 0;  ///< bytes per second of one rank, one way
};

/// Nodes with the same number of ranks. Speeds are per rank. Shares are the fraction of the specification that kernels reach.
struct Machine {
  std::string name;
  int ranks_per_node = 8;
  double flops_16 = 0, flops_32 = 0, flops_64 = 0;  ///< FLOP per second in products of 16-bit floats, of float and of double
  double memory_bandwidth = 0;                      ///< bytes per second
  double product_share = 1;                         ///< fraction reached by large products
  double attention_share = 1, attention_backward_share = 1;
  double attention_scale_16 = 1, attention_backward_scale_16 = 1;  ///< with 16-bit elements, which CPU cores convert
  double memory_share = 1;
  double link_share = 1;
  /// A product is divided into tiles, each on one of `units` units; 0: no tiles. The last tiles and the last wave are partly
  /// idle.
  double tile_rows = 256, tile_columns = 128, units = 0;
  /// A product with this number of rows, columns or terms has half the speed of one with many.
  double half_rows = 0, half_columns = 0, half_terms = 0;
  double hidden_bytes = 1;        ///< fraction of a product's reads and writes that overlaps with its arithmetic
  double launch_s = 0;            ///< the shortest kernel
  double exponential_s = 0;       ///< per exponential, in a kernel that computes many
  Link inside = {}, across = {};  ///< within a node, and between nodes
  double host_bandwidth = 0;      ///< bytes per second to host memory, and as many back; 0: the device uses host memory
  double host_memory = 0;         ///< bytes of a node's host memory; 0: unknown, and without a limit
  bool hides_messages = true;     ///< messages overlap with computation; false: the cores that compute also move them
  double ranks_per_core = 1;      ///< above 1, ranks of a core compute in turns, and a waiting rank yields the core

  double flops(DataType type) const {
    return type == DataType::float64 ? flops_64 : type == DataType::float32 ? flops_32 : flops_16;
  }

  /// The fraction of time in which units compute: 1 for whole waves of whole tiles. Takes the best of the tile and its smaller
  /// variants, which have a lower speed, as libraries do.
  double tile_share(double m, double n) const {
    if (units <= 0) return 1;
    constexpr struct { double rows, columns, speed; } cuts[] = {{1, 1, 1}, {0.5, 1, 0.95}, {0.5, 0.5, 0.8}, {0.25, 0.5, 0.6}};
    double best = 0;
    for (const auto& cut : cuts)
      for (const bool turned : {false, true}) {
        const double rows = (turned ? tile_columns : tile_rows) * cut.rows,
                     columns = (turned ? tile_rows : tile_columns) * cut.columns;
        const double tiles = std::ceil(m / rows) * std::ceil(n / columns), waves = std::ceil(tiles / units);
        best = std::max(best, cut.speed * m * n / (rows * columns * waves * units));
      }
    return best;
  }

  /// Seconds of a product [m, k] by [k, n] whose matrices have `bytes` bytes in total.
  double product_s(double m, double n, double k, double bytes, DataType type) const {
    const double shape = tile_share(m, n) * (m / (m + half_rows)) * (n / (n + half_columns)) * (k / (k + half_terms));
    const double computing = 2 * m * n * k / (flops(type) * product_share * shape);
    return launch_s + together_s(k > 0 ? computing : 0, bytes);
  }
  /// Seconds of computation that partly hides the memory traffic of `bytes` bytes.
  double together_s(double computing_s, double bytes) const {
    const double moving_s = memory_s(bytes);
    return std::max(computing_s, moving_s) + (1 - hidden_bytes) * std::min(computing_s, moving_s);
  }
  double attention_s(double flop, bool backward, DataType type) const {
    const double scale = type == DataType::float32 || type == DataType::float64 ? 1
                         : backward                                             ? attention_backward_scale_16
                                                                                : attention_scale_16;
    return launch_s + flop / (flops(type) * scale * (backward ? attention_backward_share : attention_share));
  }
  double memory_s(double bytes) const { return bytes / (memory_bandwidth * memory_share); }
  double kernel_s(double bytes, double exponentials = 0) const {
    return std::max(launch_s, together_s(exponentials * exponential_s, bytes));
  }

  /// Seconds of a copy between the device and host memory. A device that uses host memory reads and writes each byte there.
  double host_copy_s(double bytes) const {
    return host_bandwidth > 0 ? bytes / (host_bandwidth * link_share) : memory_s(2 * bytes);
  }
  /// Seconds that a step takes longer to move `bytes` bytes from host memory and back: half each way, both at once. They overlap
  /// with `computing_s` if the machine hides messages.
  double offload_s(double bytes, double computing_s) const {
    const double one_way = host_copy_s(bytes / 2);
    return host_bandwidth > 0 && hides_messages ? std::max(0.0, one_way - computing_s) : 2 * one_way;
  }

  /// Seconds of a collective on `ranks` ranks, `here` of them in each node. Rings for long messages; trees for all_reduce of
  /// short ones. `bytes` as in Rehearsal::Messages.
  double collective_s(comm::Operation operation, double bytes, int ranks, int here) const;
  /// Seconds of a message from one rank to another.
  double message_s(double bytes, bool leaves_node) const {
    const Link& link = leaves_node ? across : inside;
    return link.latency_s + bytes / (link.bandwidth * link_share);
  }
};

/// "a100", "h100" or "h200": nodes of 8 with a network card for each. Throws UsageError for other names.
Machine known_machine(std::string_view name);

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/machine_impl.hpp>
#endif
