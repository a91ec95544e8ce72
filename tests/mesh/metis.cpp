// SPDX-License-Identifier: Apache-2.0
// Parts of graphs by METIS: equal, with fewer edges between them than contiguous blocks of a shuffled mesh, the same in every run
// and on each rank; a model trained on them equals one rank.
#include <weft/mesh/metis.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/error_of_ranks.hpp"
#include "support/graphs.hpp"

using namespace weft_test;

namespace {

using Ids = std::vector<std::int32_t>;

struct Edges {
  std::size_t nodes = 0;
  Ids senders, receivers;
  WholeGraph whole() const { return {nodes, senders, receivers}; }
  void both(std::size_t a, std::size_t b) {
    senders.insert(senders.end(), {std::int32_t(a), std::int32_t(b)});
    receivers.insert(receivers.end(), {std::int32_t(b), std::int32_t(a)});
  }
};
/// A grid of side * side nodes, each joined to its right and lower neighbour in both directions, numbered at random.
Edges shuffled_grid(std::size_t side, unsigned seed) {
  std::vector<std::size_t> number(side * side);
  std::iota(number.begin(), number.end(), std::size_t(0));
  std::shuffle(number.begin(), number.end(), std::mt19937(seed));
  Edges graph{side * side, {}, {}};
  for (std::size_t row = 0; row < side; ++row)
    for (std::size_t column = 0; column < side; ++column) {
      const std::size_t node = row * side + column;
      if (column + 1 < side) graph.both(number[node], number[node + 1]);
      if (row + 1 < side) graph.both(number[node], number[node + side]);
    }
  return graph;
}
std::size_t cut_of(const Edges& graph, const Ids& part_of) {
  std::size_t cut = 0;
  for (std::size_t edge = 0; edge < graph.senders.size(); ++edge)
    cut += part_of[std::size_t(graph.senders[edge])] != part_of[std::size_t(graph.receivers[edge])] ? 1 : 0;
  return cut;
}
/// The least and the largest number of nodes of a part.
std::pair<std::size_t, std::size_t> sizes_of(const Ids& part_of, std::size_t parts) {
  std::vector<std::size_t> sizes(parts);
  for (const std::int32_t part : part_of) ++sizes.at(std::size_t(part));
  return {*std::min_element(sizes.begin(), sizes.end()), *std::max_element(sizes.begin(), sizes.end())};
}

constexpr std::size_t samples = 2;

/// The part of a rank of one mesh for all samples. Values are functions of the sample and the node or edge of the whole.
Meshes batch_of(const data::Share& share, const GraphParts& parts, std::size_t nodes, std::size_t micro_batches) {
  const std::size_t here = samples / std::size_t(share.size), first = here * std::size_t(share.rank),
                    edges = parts.edges().size();
  Meshes batch;
  batch.samples = here, batch.first_sample = first, batch.micro_batches = micro_batches;
  const auto fill = [&](auto field, std::span<const std::int32_t> rows, std::size_t columns, double shift) {
    auto values = batch[field].resize(here, {rows.size(), columns});
    for (std::size_t at = 0; at < values.size(); ++at) {
      const std::size_t sample = first + at / (rows.size() * columns), row = std::size_t(rows[at / columns % rows.size()]);
      values[at] = float(std::sin(double((sample * 1000 + row) * columns + at % columns) * 1.37 + shift));
    }
  };
  fill(::fields::value, parts.nodes(), 1, 0), fill(::fields::next_value, parts.nodes(), 1, 1);
  fill(::fields::edge, parts.edges(), 3, 2);
  auto from = batch[::fields::sender].resize(here, {edges}), into = batch[::fields::receiver].resize(here, {edges});
  for (std::size_t at = 0; at < here * edges; ++at) {
    const std::size_t before = at / edges % (here / micro_batches) * nodes;
    from[at] = std::int32_t(before) + parts.senders()[at % edges],
    into[at] = std::int32_t(before) + parts.receivers()[at % edges];
  }
  return batch;
}

}  // namespace

TEST_CASE("numbers of rand() go on as if no graph had been cut") {
  const std::vector<std::int32_t> from{0, 1, 2, 3, 4, 5}, into{1, 2, 3, 4, 5, 0};
  std::srand(5);
  const int wanted[] = {std::rand(), std::rand()};
  std::srand(5);
  CHECK(std::rand() == wanted[0]);
  CHECK(metis_part_of({6, from, into}, 2).size() == 6);
  CHECK(std::rand() == wanted[1]);
}
TEST_CASE("parts are equal, and few edges lie between them") {
  for (const std::size_t parts :
       {std::size_t(1), std::size_t(2), std::size_t(3), std::size_t(4), std::size_t(7), std::size_t(16)})
    for (const std::size_t side : {std::size_t(5), std::size_t(12), std::size_t(40)}) {
      const Edges graph = shuffled_grid(side, unsigned(parts));
      const Ids part_of = metis_part_of(graph.whole(), parts);
      REQUIRE(part_of.size() == graph.nodes);
      const auto [least, most] = sizes_of(part_of, parts);
      CHECK(least == graph.nodes / parts);
      CHECK(most == (graph.nodes + parts - 1) / parts);
      Ids blocks(graph.nodes);
      for (std::size_t node = 0; node < graph.nodes; ++node) blocks[node] = std::int32_t(node * parts / graph.nodes);
      // Cuts along rows and columns would have about 2 * side * (sqrt(parts) - 1) pairs.
      CHECK(double(cut_of(graph, part_of)) <= 1.6 * 4 * double(side) * (std::sqrt(double(parts)) - 1) + 2);
      if (parts > 1 && side > 5) CHECK(4 * cut_of(graph, part_of) < 3 * cut_of(graph, blocks));
      CHECK(metis_part_of(graph.whole(), parts) == part_of);
    }
}
TEST_CASE("graphs that METIS does not cut evenly") {
  const auto equal = [](const Edges& graph, std::size_t parts) {
    const auto [least, most] = sizes_of(metis_part_of(graph.whole(), parts), parts);
    CHECK(least == graph.nodes / parts);
    CHECK(most == (graph.nodes + parts - 1) / parts);
  };
  equal({6, {}, {}}, 4);                      // no edges
  equal({1, {0}, {0}}, 1);                    // an edge to itself
  equal({5, {1, 1, 1, 2}, {2, 2, 2, 1}}, 5);  // edges several times, nodes without edges
  Edges star{9, {}, {}};
  for (std::size_t node = 1; node < 9; ++node) star.both(0, node);
  for (std::size_t parts = 1; parts <= 9; ++parts) equal(star, parts);
  Edges cliques{24, {}, {}};  // of sizes that do not fit the parts
  for (std::size_t a = 0; a < 24; ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (a / 7 == b / 7) cliques.both(a, b);
  for (std::size_t parts = 1; parts <= 24; ++parts) equal(cliques, parts);
}
TEST_CASE("nodes that lose fewest edges move") {
  // Two cliques of 5 and 3 nodes, of which node 4 has an edge to the smaller one.
  Edges graph{8, {}, {}};
  for (std::size_t a = 0; a < 8; ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (a < 4 || (a >= 5 && b >= 5)) graph.both(a, b);
  graph.both(4, 3), graph.both(4, 5);
  std::vector<idx_t> part_of{0, 0, 0, 0, 0, 1, 1, 1};
  weft::detail::make_parts_equal(weft::detail::MetisGraph(graph.whole()), 2, part_of);
  CHECK(part_of == std::vector<idx_t>{0, 0, 0, 0, 1, 1, 1, 1});
}
TEST_CASE("all ranks take one division") {
  const Edges graph = shuffled_grid(10, 3);
  for (const int ranks : {1, 2, 4}) {
    std::mutex mutex;
    const Ids part_of = metis_part_of(graph.whole(), std::size_t(ranks));
    std::size_t met = 0;
    CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
            const GraphParts parts = metis_parts(world.communicator(), graph.whole());
            const std::lock_guard lock(mutex);
            met += parts.nodes().size();
            for (const std::int32_t node : parts.nodes()) CHECK(part_of[std::size_t(node)] == world.rank());
            CHECK(parts.cut_edges() == cut_of(graph, part_of));
          }) == 0);
    CHECK(met == graph.nodes);
  }
}
TEST_CASE("the parts of the axis of a mesh") {
  const Edges graph = shuffled_grid(6, 1);
  const std::size_t nodes = graph.nodes;
  const Ids &senders = graph.senders, &receivers = graph.receivers;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          const Mesh<dp, dx> mesh(world, {.dp = 2, .dx = 2});
          const GraphParts parts = metis_parts(mesh.comm(dx{}), {.nodes = nodes, .senders = senders, .receivers = receivers});
          CHECK(parts.nodes().size() == 18);
        }) == 0);
}
TEST_CASE("a model on parts by METIS equals one rank") {
  const Edges graph = shuffled_grid(7, 5);
  const auto check = [&](int ranks, const Degrees& degrees, const ModelOptions& options, std::size_t micro_batches) {
    std::mutex mutex;
    std::size_t compared = 0;
    CHECK(
        run(RunOptions{.ranks = ranks}, [&](World& world) {
          const DomainSteps reference = [&] {
            SingleDevice<MeshNet<double>> model(world.device(), {.width = 8, .layers = 2});
            const Ids one_part(graph.nodes);
            const GraphParts all(world.communicator().split(world.rank(), 0, "one"), {one_part, graph.senders, graph.receivers});
            return graph_steps(model, batch_of({0, 1}, all, graph.nodes, 1));
          }();
          const Mesh<dp, tp, dx> mesh(world, degrees);
          const GraphParts parts = metis_parts(mesh.comm(dx{}), graph.whole());
          FullyShardedDataParallel<TensorParallel<DomainParallel<MeshNet<double>, dx>>> model(mesh, {.width = 8, .layers = 2},
                                                                                              options);
          const double worst =
              domain_difference(graph_steps(model, batch_of(data::share_of(mesh), parts, graph.nodes, micro_batches)), reference);
          const std::lock_guard lock(mutex);
          INFO(mesh.text(), ": ", worst);
          CHECK(worst < 1e-13);
          CHECK((mesh.size(dx{}) == 1 || parts.cut_edges() > 0));
          ++compared;
        }) == 0);
    CHECK(compared == std::size_t(ranks));
  };
  check(2, {.dx = 2}, {}, 1);
  check(4, {.dx = 4}, {}, 2);
  check(4, {.dp = 2, .dx = 2}, {.shard = {.stage = 3}}, 1);
  check(4, {.tp = 2, .dx = 2}, {}, 2);
}
TEST_CASE("wrong graphs") {
  const auto refused = [](const std::string& text, std::size_t nodes, Ids senders, Ids receivers) {
    const std::string found = error_of_ranks(2, text, [&](World& world) {
      metis_parts(world.communicator(), {nodes, senders, receivers});
    });
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
    CHECK(found.find('\n') == std::string::npos);
  };
  refused("GraphParts: edge 1 has sender 3, and there are 3 nodes", 3, {0, 3}, {1, 1});
  refused("GraphParts: edge 0 has receiver -1, and there are 3 nodes", 3, {0, 2}, {-1, 1});
  refused("GraphParts: 2 senders and 1 receivers", 3, {0, 2}, {1});
  refused("metis: 2 parts of 1 nodes: each part has a node", 1, {}, {});
  const std::string text =
      "GraphParts: the ranks of world(2) have different graphs: 3 nodes and 1 edges on rank 0, 4 and 1 on rank 1";
  const std::string found = error_of_ranks(2, text, [](World& world) {
    const Ids end{1};
    metis_parts(world.communicator(), {std::size_t(3 + world.rank()), end, end});
  });
  CHECK_MESSAGE(found.find(text) != std::string::npos, found);
}
