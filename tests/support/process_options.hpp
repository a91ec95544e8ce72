// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options of a model between 2 or 4 processes: stages that differ, sums over tp in pieces, and gradients summed as integers. A
// test program for each backend calls these functions; thread ranks have pipeline/uneven_stages, nn/summed_product and
// parallel/quantised_reduction.

#include <doctest/doctest.h>

#include <stdlib.h>

#include "support/quantised_sums.hpp"
#include "support/summed_pieces.hpp"
#include "support/uneven_stages.hpp"

namespace weft_test {

/// Seven layers in stages that differ, under every schedule, equal one rank.
template <class Backend>
void check_uneven_processes(std::size_t world) {
  using Model = models::BasicGpt<double>;
  const auto config = of_layers(gpt_config(), 7);
  const std::size_t checked = check_uneven<Tensors<Model>, Backend>(of_seven, config, reference_of<Model>(config), world);
  CHECK(checked == (world == 2 ? 3 : 10));
}

/// Sums in pieces have the bits of whole sums: all-reduces and reduce-scatters, with a pipeline too.
template <class Backend>
void check_piece_processes(std::size_t world) {
  using Model = models::BasicGpt<double>;
  check_pieces<Tensors<Model>, Backend>(int(world), {.tp = world}, gpt_config(), 0, {}, world == 2 ? 100 : 128);
  check_pieces<Sequences<Model>, Backend>(int(world), {.tp = 2, .pp = world / 2}, gpt_config(), 0);
}

/// Integers between processes: errors within half a unit of each rounding, and training with the bits of thread ranks.
template <class Backend>
void check_quantised_processes(std::size_t world) {
  const std::vector<std::size_t> begins =
      world == 2 ? std::vector<std::size_t>{0, 700, 1400} : std::vector<std::size_t>{0, 700, 1400, 2100, 2800};
  for (const std::size_t node : {std::size_t(1), std::size_t(2), world})
    for (const int bits : {8, 4}) {
      INFO("nodes of " << node << ", " << bits << " bits");
      const double error = quantised_error<double, Backend>(int(world), int(node), bits, begins);
      CHECK(error <= 1);
      CHECK(error > 0.1);  // the bound is of the right size
    }
  using Sharded = Tensors<models::BasicGpt<double>>;
  using Grid = Mesh<dp, tp, pp>;
  for (const ModelOptions& options : {ModelOptions{.shard = {.stage = 2, .quantised_reduce = 2}},
                                      ModelOptions{.shard = {.stage = 3, .quantised_reduce = 1, .quantised_reduce_bits = 4}}}) {
    REQUIRE(::setenv("WEFT_IGNORE_LAUNCHER", "1", 1) == 0);  // each process has thread ranks of its own
    const QuantisedRun threads = train_quantised<Sharded, comm::Threads, Grid>(options, int(world), 2, 4);
    REQUIRE(::unsetenv("WEFT_IGNORE_LAUNCHER") == 0);
    CHECK(threads.losses.size() == 4);
    CHECK(train_quantised<Sharded, Backend, Grid>(options, int(world), 2, 4) == threads);
  }
}

}  // namespace weft_test
