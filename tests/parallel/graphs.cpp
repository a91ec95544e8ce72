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
TEST_CASE("an edge with an id of another sample is refused, on one rank and on two") {
  const auto refused = [](int ranks, bool sender, std::size_t at, const std::string& text) {
    std::mutex mutex;
    std::string found;
    run(RunOptions{.ranks = ranks}, [&](World& world) {
      const Mesh<dp, dx> mesh(world, {.dx = std::size_t(ranks)});
      auto batch = graph_batch<Meshes>({0, 1}, std::size_t(ranks), std::size_t(world.rank()), 1);
      if (world.rank() + 1 == ranks) {
        const auto ids = sender ? batch[::fields::sender].writable() : batch[::fields::receiver].writable();
        ids[ids.size() / graph_samples * at] -= std::int32_t(graph_nodes);
      }
      try {
        DataParallel<DomainParallel<MeshNet<double>, dx>> model(mesh, {});
        model.train_step(batch);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        if (found.empty() || std::string(error.what()).find(text) != std::string::npos) found = error.what();
        throw;
      }
    });
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
    CHECK(found.find('\n') == std::string::npos);
  };
  for (const bool sender : {true, false}) {
    refused(1, sender, 2, std::string(", of sample 2, has ") + (sender ? "sender " : "receiver "));
    refused(2, sender, 3, std::string(", of sample 3, has ") + (sender ? "sender " : "receiver "));
  }
  refused(2, false, 1, ", a node of sample 0: ids of sample 1 are 11 to 21");
}
TEST_CASE("a potential with forces") {
  check_graph<Potential<double>>({2, {.dx = 2}});
  check_graph<Potential<double>>({4, {.dx = 4}});
  check_graph<Potential<double>>({4, {.tp = 2, .dx = 2}});
  check_graph<Potential<double>>({4, {.dp = 2, .dx = 2}, {.shard = {.stage = 2}}, 2});
}
