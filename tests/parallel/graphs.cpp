// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/graph.hpp
// Graphs whose nodes dx cuts: message passing, a potential with forces and all operations over segments equal one rank in losses
// and gradients, beside dp, tp and ZeRO.
#include <weft/operations/graph.hpp>

#include "support/graphs.hpp"

using namespace weft_test;

TEST_CASE("operations over segments, and BatchNorm") {
  check_graph<AttentionNet<double>>({1, {}});
  check_graph<AttentionNet<double>>({2, {.dx = 2}});
  check_graph<AttentionNet<double>>({4, {.dx = 4}});
  check_graph<AttentionNet<double>>({4, {.dp = 2, .dx = 2}, {.shard = {.stage = 3}}});
}
TEST_CASE("message passing") {
  check_graph<MeshNet<double>>({2, {.dx = 2}});
  check_graph<MeshNet<double>>({4, {.dx = 4}});
  check_graph<MeshNet<double>>({4, {.tp = 2, .dx = 2}});
  check_graph<MeshNet<double>>({8, {.tp = 2, .dp = 2, .dx = 2}, {.shard = {.stage = 3}}, 2});
}
TEST_CASE("a potential with forces") {
  check_graph<Potential<double>>({2, {.dx = 2}});
  check_graph<Potential<double>>({4, {.dx = 4}});
  check_graph<Potential<double>>({4, {.tp = 2, .dx = 2}});
  check_graph<Potential<double>>({4, {.dp = 2, .dx = 2}, {.shard = {.stage = 2}}, 2});
}
