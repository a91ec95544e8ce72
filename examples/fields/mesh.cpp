// SPDX-License-Identifier: Apache-2.0
#include "mesh.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "problem.hpp"
#include "samples.hpp"
#include "training.hpp"
#ifdef FIELDS_WITH_METIS
#include <weft/mesh/metis.hpp>
#endif

namespace fields {

namespace {

/// Random nodes on a periodic square, joined to their nearest neighbours, on which a wave of heat decays.
struct MeshProblem {
  using Laid = LaidInSpace<MeshNet<float>, dx>;
  static constexpr Defaults defaults{
      .title = "Message passing on a mesh", .unit = "meshes", .steps = 1000, .batch = 8, .learning_rate = 3e-3};
  static constexpr std::size_t nodes = 96, neighbours = 6;
  static constexpr double time = 3;

  using Place = std::array<double, 2>;
  /// In the order of the ranks of dx: sorted, so that these have strips, or in the parts that METIS makes.
  static std::vector<Place> places_of(Numbers& numbers, std::size_t metis_parts) {
    std::vector<Place> places(nodes);
    for (Place& place : places) place = {numbers.uniform(0, 1), numbers.uniform(0, 1)};
    std::sort(places.begin(), places.end());
    return metis_parts == 0 ? places : in_parts(places, metis_parts);
  }
  static std::vector<Place> in_parts(const std::vector<Place>& places, [[maybe_unused]] std::size_t parts) {
#ifdef FIELDS_WITH_METIS
    std::vector<std::int32_t> senders, receivers;
    for (std::size_t node = 0; node < nodes; ++node)
      for (const std::size_t other : nearest(places, node))
        senders.push_back(std::int32_t(other)), receivers.push_back(std::int32_t(node));
    const auto part_of = metis_part_of({.nodes = nodes, .senders = senders, .receivers = receivers}, parts);
    std::vector<Place> ordered;
    for (std::size_t part = 0; part < parts; ++part)
      for (std::size_t node = 0; node < nodes; ++node)
        if (std::size_t(part_of[node]) == part) ordered.push_back(places[node]);
    return ordered;
#else
    return places;  // options.hpp refuses METIS
#endif
  }
  /// From a to b by the shortest way over the periodic borders.
  static Place way(const Place& a, const Place& b) {
    return {std::remainder(b[0] - a[0], 1.0), std::remainder(b[1] - a[1], 1.0)};
  }
  static double distance(const Place& a, const Place& b) { return std::hypot(way(a, b)[0], way(a, b)[1]); }
  /// The neighbours of a node, the nearest first.
  static std::vector<std::size_t> nearest(const std::vector<Place>& places, std::size_t node) {
    std::vector<std::size_t> others(nodes);
    std::iota(others.begin(), others.end(), std::size_t(0));
    std::partial_sort(others.begin(), others.begin() + neighbours + 1, others.end(), [&](std::size_t a, std::size_t b) {
      return distance(places[a], places[node]) < distance(places[b], places[node]);
    });
    return {others.begin() + 1, others.begin() + neighbours + 1};  // the first one is the node
  }
  static void require_degrees(std::size_t, const std::array<Part, 3>& space) { require_equal_parts("nodes", nodes, space); }
  static Meshes batch(const Wanted& wanted) {
    const std::size_t count = wanted.count, here = wanted.space[0].of(nodes), first = here * wanted.space[0].rank;
    Meshes batch{.samples = count};
    auto now = batch[value].resize(count, {here, 1}), next = batch[next_value].resize(count, {here, 1}),
         ways = batch[edge].resize(count, {here * neighbours, 3});
    auto from = batch[sender].resize(count, {here * neighbours}), into = batch[receiver].resize(count, {here * neighbours});
    const std::size_t counted = count / wanted.micro_batches;  // samples whose nodes the ids count
    std::size_t row = 0, at = 0;
    for (std::size_t sample = 0; sample < count; ++sample) {
      Numbers numbers(wanted.seed, "mesh", wanted.first + sample);
      const Waves<2> waves(numbers, 0);
      const auto places = places_of(numbers, wanted.metis_parts);
      for (std::size_t node = first; node < first + here; ++node, ++row) {
        now[row] = float(waves.at(places[node], 0));
        next[row] = float(waves.at(places[node], time));
        for (const std::size_t other : nearest(places, node)) {
          const Place along = way(places[other], places[node]);
          for (std::size_t k = 0; k < 2; ++k) ways[3 * at + k] = float(8 * along[k]);
          ways[3 * at + 2] = float(8 * distance(places[other], places[node]));
          from[at] = std::int32_t(sample % counted * nodes + other);
          into[at++] = std::int32_t(sample % counted * nodes + node);
        }
      }
    }
    return batch;
  }
  static Report report(const Options& o, std::size_t shares, const auto& predict) {
    const std::size_t count = shared_by(8, shares);
    const auto make = [](Wanted wanted) {
      wanted.first += first_unseen;
      return batch(wanted);
    };
    const Prediction found = predict(count, make);
    const Meshes all = make({.seed = o.seed, .count = count, .metis_parts = metis_parts(o, o.dx)});  // whole meshes
    Report report{.measure = "relative error", .error = relative_error(found.values, all[next_value].values())};
    for (std::size_t sample = 0; sample < std::min<std::size_t>(2, count); ++sample) {
      Numbers numbers(o.seed, "mesh", first_unseen + sample);
      const Waves<2> waves(numbers, 0);
      std::vector<double> x, y;
      for (const Place& place : places_of(numbers, metis_parts(o, o.dx))) x.push_back(place[0]), y.push_back(place[1]);
      const auto part = [&](const auto& values) {
        return std::vector<double>(values.begin() + std::ptrdiff_t(sample * nodes),
                                   values.begin() + std::ptrdiff_t((sample + 1) * nodes));
      };
      report.picture.next_row();
      report.picture.points("before", x, y, part(all[value].values()), {-1, 1});
      report.picture.points("predicted", x, y, part(found.values), {-1, 1});
      report.picture.points("true", x, y, part(all[next_value].values()), {-1, 1});
    }
    return report;
  }
};

}  // namespace

int train_mesh(World& world, const Options& o) { return train<MeshProblem>(world, o); }

}  // namespace fields
