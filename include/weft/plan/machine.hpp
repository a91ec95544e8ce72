// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine as an estimate of time sees it: what its ranks compute, read and send in a second. Known by name, measured here
// (plan/this_machine.hpp) or read from a file (plan/machine_file.hpp).
//
//   const Machine machine = known_machine("h100");
//   machine.product_s(8192, 4096, 1024, bytes, DataType::bfloat16)   // seconds

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/operation.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/scalar.hpp>

namespace weft::plan {

/// The way between two ranks.
struct Link {
  double latency_s = 0;  ///< of one message, or of one step of a collective
  double bandwidth = 0;  ///< bytes a second of one rank, one way
};

/// Nodes of equal ranks. Speeds are of one rank; shares are of what the maker says, as real kernels reach it.
struct Machine {
  std::string name;
  int ranks_per_node = 8;
  double flops_16 = 0, flops_32 = 0, flops_64 = 0;  ///< a second in products of 16-bit floats, of float and of double
  double memory_bandwidth = 0;                      ///< bytes a second
  double product_share = 1;                         ///< of large products
  double attention_share = 1, attention_backward_share = 1;
  double attention_scale_16 = 1, attention_backward_scale_16 = 1;  ///< where elements have 16 bits: cores convert them
  double memory_share = 1;
  double link_share = 1;
  /// A product is cut into tiles, each on one of `units`; 0 units: it is not. The last tiles and the last wave are done in part.
  double tile_rows = 256, tile_columns = 128, units = 0;
  /// Of products with few rows, columns or terms: at this number of them the speed is one half of that with many.
  double half_rows = 0, half_columns = 0, half_terms = 0;
  double hidden_bytes = 1;        ///< the share of a product's reads and writes that goes on beside its arithmetic
  double launch_s = 0;            ///< the shortest kernel
  double exponential_s = 0;       ///< of one exponential function, in a kernel that computes many
  Link inside = {}, across = {};  ///< in a node, and between nodes
  double host_bandwidth = 0;      ///< bytes a second to the host's memory, and as many back; 0: the device computes in it
  bool hides_messages = true;     ///< they move beside computing; false: what computes moves them, as cores do
  double ranks_per_core = 1;      ///< that compute in turns if it is more than one; a rank that waits leaves the core to others

  double flops(DataType type) const {
    return type == DataType::float64 ? flops_64 : type == DataType::float32 ? flops_32 : flops_16;
  }

  /// The share of the units' time in which they work: whole waves of whole tiles are 1. The best of the tile and its smaller
  /// ones, which are slower by themselves, as libraries choose.
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

  /// Of [m, k] by [k, n], whose matrices have `bytes`.
  double product_s(double m, double n, double k, double bytes, DataType type) const {
    const double shape = tile_share(m, n) * (m / (m + half_rows)) * (n / (n + half_columns)) * (k / (k + half_terms));
    const double computing = 2 * m * n * k / (flops(type) * product_share * shape);
    return launch_s + together_s(k > 0 ? computing : 0, bytes);
  }
  /// Computing that takes so long, and beside it reading and writing, of which some is hidden.
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

  /// What is added to a step by `bytes` that come from the host's memory and go back: half each way, both at once and beside
  /// `computing_s`, if messages are hidden at all.
  double offload_s(double bytes, double computing_s) const {
    if (host_bandwidth <= 0) return memory_s(2 * bytes);  // each byte is read and written
    const double one_way = bytes / 2 / (host_bandwidth * link_share);
    return hides_messages ? std::max(0.0, one_way - computing_s) : 2 * one_way;
  }

  /// A collective of `ranks` ranks, of which `here` are in each node: rings for what is long, trees for all_reduce of what is
  /// short. `bytes` as in Rehearsal::Messages.
  double collective_s(comm::Operation operation, double bytes, int ranks, int here) const;
  /// From one rank to another.
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
