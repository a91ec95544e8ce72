// SPDX-License-Identifier: Apache-2.0
#pragma once
// Divisions of a model's layers into stages that differ, and their comparison with one rank.

#include <span>
#include <vector>

#include <weft/mesh/stage_layers.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

#include "support/parity.hpp"

namespace weft_test {

using Counts = std::vector<std::size_t>;

/// One division of a model's layers; dp is the rest of the world that `degrees` leaves.
struct Uneven {
  const char* schedule;
  Degrees degrees;
  Counts layers;
  std::size_t micro_batches = 4, world = 4;
  int zero = 0;  ///< stage of FullyShardedDataParallel
};

template <class Config>
Config of_layers(Config config, std::size_t layers) {
  config.layers = layers;
  return config;
}

/// Seven layers in the stages of every schedule.
inline const std::vector<Uneven> of_seven = {
    {"1f1b", {.pp = 4}, {}},  // 1, 2, 2, 2
    {"1f1b", {.pp = 4}, {1, 2, 3, 1}},
    {"1f1b", {.pp = 4}, {0, 3, 4, 0}},
    {"1f1b", {.tp = 2, .pp = 2}, {7, 0}},
    {"1f1b", {.pp = 2}, {0, 7}},
    {"gpipe", {.pp = 4}, {2, 1, 1, 3}},
    {"zb-h1", {.pp = 4}, {0, 2, 4, 1}},
    {"interleaved", {.pp = 2}, {}, 4, 2},
    {"interleaved", {.pp = 2}, {0, 3, 4, 0}, 4, 2},
    {"interleaved-zb", {.tp = 2, .pp = 2}, {3, 1, 1, 2}},
    {"zbv", {.pp = 4}, {0, 1, 1, 1, 1, 1, 2, 0}},
    {"zbv", {.tp = 2, .pp = 2}, {3, 1, 3, 0}},
    {"dualpipev", {.pp = 2}, {1, 3, 2, 1}, 4, 2},
};

/// Seven layers under FullyShardedDataParallel: chunks of several schedules, alone and with tensor parallelism.
inline const std::vector<Uneven> of_seven_sharded = {
    {"1f1b", {.pp = 2}, {5, 2}, 4, 4, 2},
    {"1f1b", {.tp = 2, .pp = 2}, {0, 7}, 4, 8, 3},
    {"interleaved", {.pp = 2}, {0, 3, 4, 0}, 4, 4, 3},
    {"interleaved", {.tp = 2, .pp = 2}, {1, 2, 3, 1}, 4, 8, 2},
    {"zb-h1", {.pp = 4}, {0, 2, 4, 1}, 4, 8, 3},
    {"zbv", {.pp = 2}, {3, 1, 3, 0}, 4, 4, 2},
    {"zbv", {.tp = 2, .pp = 2}, {1, 3, 2, 1}, 4, 8, 3},
    {"dualpipev", {.pp = 2}, {1, 3, 2, 1}, 4, 4, 3},
};

/// Compares the divisions on ranks of a backend with one rank; the world of processes takes those of its size. Returns their
/// number.
template <class Composition, class Backend = comm::Threads>
std::size_t check_uneven(std::span<const Uneven> divisions, const typename Composition::Config& config,
                         const Reference& reference, std::size_t world = 0) {
  std::size_t checked = 0;
  for (const Uneven& one : divisions) {
    if (world != 0 && one.world != world) continue;
    INFO(std::string(one.schedule) << ", layers " << mesh_layout::counts_text(one.layers) << ", ZeRO stage " << one.zero);
    ModelOptions options{.pipeline = {.schedule = schedule::choose(one.schedule), .layers = one.layers}};
    options.shard.stage = one.zero;
    check_layout<Composition, Backend>(config, reference, one.world, one.degrees, one.micro_batches, 1e-12, options);
    ++checked;
  }
  return checked;
}

}  // namespace weft_test
