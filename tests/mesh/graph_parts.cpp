// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/ghosts.hpp
// Parts of a graph, and the exchange of nodes between them, on random graphs compared with the whole: rows, their way home, and
// the message for each wrong input.
#include <weft/mesh/graph_parts.hpp>

#include <algorithm>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/ghosts.hpp>

#include "support/error_of_ranks.hpp"

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Ids = std::vector<std::int32_t>;

struct Graph {
  Ids part_of, senders, receivers;
  Graph(std::size_t nodes, std::size_t edges, int ranks, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t node = 0; node < nodes; ++node)
      part_of.push_back(std::int32_t(node < std::size_t(ranks) ? node : random() % std::size_t(ranks)));  // each rank has one
    std::shuffle(part_of.begin(), part_of.end(), random);
    for (std::size_t edge = 0; edge < edges; ++edge)
      senders.push_back(std::int32_t(random() % nodes)), receivers.push_back(std::int32_t(random() % nodes));
  }
  GraphDivision division() const { return {part_of, senders, receivers}; }
};

double value_of(std::size_t sample, std::int32_t node, std::size_t column) {
  return double(1000 * sample + std::size_t(10 * node) + column);
}

/// The plan for `samples` samples of one graph.
detail::GhostPlan plan_of(const Communicator& comm, const GraphParts& parts, std::size_t nodes, std::size_t samples) {
  std::vector<std::int64_t> from, into;
  for (std::size_t sample = 0; sample < samples; ++sample)
    for (std::size_t edge = 0; edge < parts.edges().size(); ++edge) {
      from.push_back(std::int64_t(sample * nodes) + parts.senders()[edge]);
      into.push_back(std::int64_t(sample * nodes) + parts.receivers()[edge]);
    }
  return detail::plan_ghosts(comm, {samples, parts.nodes().size()}, from, into);
}

}  // namespace

TEST_CASE("each node and edge is on one rank, and ids count nodes in the order of ranks") {
  for (const int ranks : {1, 2, 3, 4}) {
    const Graph graph(17, 60, ranks, 5);
    std::mutex mutex;
    std::vector<Ids> nodes{std::size_t(ranks)}, edges = nodes, senders = nodes, receivers = nodes;
    std::size_t cut = 0;
    REQUIRE(run(RunOptions{.ranks = ranks}, [&](World& world) {
              const GraphParts parts(world.communicator(), graph.division());
              const std::lock_guard lock(mutex);
              const auto keep = [&](std::vector<Ids>& all, std::span<const std::int32_t> some) {
                all[std::size_t(world.rank())].assign(some.begin(), some.end());
              };
              keep(nodes, parts.nodes()), keep(edges, parts.edges()), keep(senders, parts.senders());
              keep(receivers, parts.receivers());
              cut = parts.cut_edges();
            }) == 0);
    Ids order, met;  // nodes in the order of ranks
    for (const Ids& some : nodes) order.insert(order.end(), some.begin(), some.end());
    CHECK(order.size() == 17);
    std::size_t expected_cut = 0;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      CHECK(std::is_sorted(nodes[rank].begin(), nodes[rank].end()));
      for (const std::int32_t node : nodes[rank]) CHECK(graph.part_of[std::size_t(node)] == std::int32_t(rank));
      for (std::size_t i = 0; i < edges[rank].size(); ++i) {
        const auto edge = std::size_t(edges[rank][i]);
        met.push_back(edges[rank][i]);
        CHECK(order[std::size_t(senders[rank][i])] == graph.senders[edge]);
        CHECK(order[std::size_t(receivers[rank][i])] == graph.receivers[edge]);
        CHECK(graph.part_of[std::size_t(graph.receivers[edge])] == std::int32_t(rank));
        expected_cut += graph.part_of[std::size_t(graph.senders[edge])] != std::int32_t(rank) ? 1 : 0;
      }
    }
    std::sort(met.begin(), met.end());
    CHECK(met.size() == 60);
    CHECK(std::unique(met.begin(), met.end()) == met.end());
    CHECK(cut == expected_cut);
  }
}

TEST_CASE("a part over an axis of a mesh") {
  CHECK(run(RunOptions{.ranks = 4}, [](World& world) {
          const Mesh<dp, dx> mesh(world, {.dx = 2});
          const Ids part_of{1, 0, 1}, senders{0, 1}, receivers{1, 2};
          const GraphParts parts(mesh.comm(dx{}), {.part_of = part_of, .senders = senders, .receivers = receivers});
          CHECK(parts.nodes().size() == (mesh.rank(dx{}) == 0 ? 1 : 2));
          CHECK(parts.edges().size() == 1);
          CHECK(parts.senders()[0] == (mesh.rank(dx{}) == 0 ? 1 : 0));
        }) == 0);
}

TEST_CASE("each edge finds the row of its sender, and gradients go home") {
  constexpr std::size_t columns = 3, count = 19;
  for (const int ranks : {1, 2, 3, 4})
    for (const std::size_t samples : {std::size_t(1), std::size_t(2)})
      for (const std::size_t edges : {std::size_t(0), std::size_t(3), std::size_t(80)}) {
        const Graph graph(count, edges, ranks, unsigned(edges + samples));
        // The number of edges from each node of each sample, times what their ranks add.
        std::vector<double> expected(samples * count), found = expected;
        for (std::size_t sample = 0; sample < samples; ++sample) {
          for (std::size_t node = 0; node < count; ++node)
            expected[sample * count + node] = 1 + graph.part_of[node];  // the rank's term of its nodes
          std::vector<bool> lacked(count * std::size_t(ranks));
          for (std::size_t edge = 0; edge < edges; ++edge) {
            const auto sender = std::size_t(graph.senders[edge]);
            const std::int32_t rank = graph.part_of[std::size_t(graph.receivers[edge])];
            if (rank == graph.part_of[sender] || lacked[std::size_t(rank) * count + sender]) continue;
            lacked[std::size_t(rank) * count + sender] = true;
            expected[sample * count + sender] += 1 + rank;
          }
        }
        std::mutex mutex;
        CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
                const Communicator& comm = world.communicator();
                const GraphParts parts(comm, graph.division());
                const detail::GhostPlan plan = plan_of(comm, parts, count, samples);
                const detail::GhostRows<Exec> rows(world.device(), plan);
                const std::size_t own = parts.nodes().size();
                using X = Tensor<double, Exec, Shard<dx, 0>>;
                X x(world.device(), {samples * own, columns});
                std::vector<double> values;
                for (std::size_t sample = 0; sample < samples; ++sample)
                  for (const std::int32_t node : parts.nodes())
                    for (std::size_t column = 0; column < columns; ++column) values.push_back(value_of(sample, node, column));
                copy_from_host(x, std::span<const double>(values));
                const auto wide = copy_to_host(detail::bring_ghosts<Tensor<double, Exec, Ghosts<dx>>>(comm, x, rows));
                const Tensor<double, Exec, GhostTerms<dx>> terms(world.device(), {samples * own + rows.ghosts, columns});
                const std::vector<double> mine(terms.size(), 1 + world.rank());
                copy_from_host(terms, std::span<const double>(mine));
                const auto home = copy_to_host(detail::send_ghosts_home<X>(comm, terms, rows));
                const std::lock_guard lock(mutex);
                CHECK(wide.size() == (samples * own + rows.ghosts) * columns);
                CHECK(plan.from.size() == samples * parts.edges().size());
                for (std::size_t at = 0; at < plan.from.size(); ++at) {
                  const std::size_t sample = at / parts.edges().size(),
                                    edge = std::size_t(parts.edges()[at % parts.edges().size()]);
                  for (std::size_t column = 0; column < columns; ++column) {
                    CHECK(wide[std::size_t(plan.from[at]) * columns + column] == value_of(sample, graph.senders[edge], column));
                    CHECK(wide[std::size_t(plan.into[at]) * columns + column] == value_of(sample, graph.receivers[edge], column));
                  }
                }
                for (std::size_t row = 0; row < samples * own; ++row) {
                  const std::size_t place = row / own * count + std::size_t(parts.nodes()[row % own]);
                  for (std::size_t column = 0; column < columns; ++column) CHECK(home[row * columns + column] == expected[place]);
                }
              }) == 0);
      }
}

TEST_CASE("wrong graphs") {
  const auto refused = [](int ranks, const std::string& text, auto&& f) {
    const std::string found = weft_test::error_of_ranks(ranks, text, [&](World& world) { f(world.communicator()); });
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
    CHECK(found.find('\n') == std::string::npos);
  };
  const auto divide = [](Ids part_of, Ids senders, Ids receivers) {
    return [=](const Communicator& comm) { GraphParts(comm, {part_of, senders, receivers}); };
  };
  refused(2, "GraphParts: node 2 has part 2, and world has 2 ranks", divide({0, 1, 2}, {}, {}));
  refused(2, "GraphParts: node 0 has part -1, and world has 2 ranks", divide({-1, 1, 0}, {}, {}));
  refused(3, "GraphParts: no node of 3 has part 1, and world has 3 ranks", divide({0, 2, 2}, {}, {}));
  refused(2, "GraphParts: edge 1 has sender 3, and there are 3 nodes", divide({0, 1, 1}, {0, 3}, {1, 1}));
  refused(2, "GraphParts: edge 0 has receiver -1, and there are 3 nodes", divide({0, 1, 1}, {0, 2}, {-1, 1}));
  refused(2, "GraphParts: 2 senders and 1 receivers", divide({0, 1, 1}, {0, 2}, {1}));
  refused(3, "GraphParts: the ranks of world(3) have different graphs: 3 nodes and 1 edges on rank 0, 4 and 1 on rank 2",
          [](const Communicator& comm) {
            const Ids end{1}, parts = comm.rank() == 2 ? Ids{0, 1, 2, 2} : Ids{0, 1, 2};
            GraphParts(comm, {parts, end, end});
          });
  refused(2, "2 nodes and 1 edges on rank 0, 2 and 1 on rank 1, with other parts", [](const Communicator& comm) {
    const Ids end{1}, parts = comm.rank() == 1 ? Ids{1, 0} : Ids{0, 1};
    GraphParts(comm, {parts, end, end});
  });
  refused(2, "on rank 1, with other ends of edges", [](const Communicator& comm) {
    const Ids end{comm.rank()}, parts{0, 1};
    GraphParts(comm, {parts, end, end});
  });
}

TEST_CASE("wrong edges of a rank") {
  using Edges = std::vector<std::int64_t>;
  const auto refused = [](const std::string& text, std::size_t samples, std::size_t nodes, Edges from, Edges into) {
    const std::string found = weft_test::error_of_ranks(2, text, [&](World& world) {
      const Communicator& comm = world.communicator();
      if (comm.rank() == 0) return void(detail::plan_ghosts(comm, {2, 3}, Edges{0, 5}, Edges{1, 6}));
      detail::plan_ghosts(comm, {samples, nodes}, from, into);
    });
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
    CHECK(found.find('\n') == std::string::npos);
  };
  refused("graph_part: edge 0 has sender 10, and there are 10 nodes, 5 of each sample", 2, 2, {10, 5}, {3, 8});
  refused("graph_part: edge 0 has receiver -1, and there are 10 nodes", 2, 2, {0, 5}, {-1, 8});
  refused("graph_part: edge 1 of rank 1 of world has receiver 7, a node of rank 0: an edge belongs to the rank of its receiver",
          2, 2, {0, 5}, {3, 7});
  refused("graph_part: edge 1, of sample 1, has receiver 4, a node of sample 0: ids of sample 1 are 5 to 9", 2, 2, {0, 5},
          {3, 4});
  refused("graph_part: edge 0, of sample 0, has receiver 8, a node of sample 1: ids of sample 0 are 0 to 4", 2, 2, {0, 5},
          {8, 8});
  refused("graph_part: edge 3, of sample 1, has sender 0, a node of sample 0: ids of sample 1 are 5 to 9", 2, 2, {0, 4, 5, 0},
          {3, 4, 8, 8});
  refused("graph_part: edge 1, of sample 0, has sender 5, a node of sample 1: ids of sample 0 are 0 to 4", 2, 2, {0, 5, 5, 9},
          {3, 4, 8, 8});
  refused("graph_part: 2 samples on rank 0 of world and 1 on rank 1", 1, 2, {0}, {3});
  refused("graph_part: rank 1 of world(2) has no nodes", 2, 0, {0, 5}, {3, 8});
}
