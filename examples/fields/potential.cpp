// SPDX-License-Identifier: Apache-2.0
#include "potential.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "problem.hpp"
#include "samples.hpp"
#include "training.hpp"

namespace fields {

namespace {

/// Clusters of atoms, each pair of which has Morse's energy, (1 - exp(-a (r - r0)))² - 1.
struct PotentialProblem {
  using Laid = LaidInSpace<Potential<float>, dx>;
  static constexpr Defaults defaults{
      .title = "Potential with energies and forces", .unit = "clusters", .steps = 800, .batch = 32, .learning_rate = 4e-3};
  static constexpr std::size_t atoms = 6;
  static constexpr double steepness = 1.5, rest = 1.2, closest = 0.9, box = 2.2;

  using Place = std::array<double, 3>;
  static double distance(const Place& a, const Place& b) { return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]); }
  /// Random places, none closer than `closest` to another.
  static std::vector<Place> cluster(Numbers& numbers) {
    std::vector<Place> all;
    while (all.size() < atoms) {
      const double x = numbers.uniform(0, box), y = numbers.uniform(0, box);
      const Place next{x, y, numbers.uniform(0, box)};
      if (std::all_of(all.begin(), all.end(), [&](const Place& other) { return distance(next, other) > closest; }))
        all.push_back(next);
    }
    return all;
  }
  static void require_degrees(std::size_t, const std::array<Part, 3>& space) { require_equal_parts("atoms", atoms, space); }
  static Molecules batch(const Wanted& wanted) {
    const std::size_t count = wanted.count, here = wanted.space[0].of(atoms), first = here * wanted.space[0].rank,
                      pairs = here * (atoms - 1);
    Molecules batch{.samples = count};
    auto places = batch[position].resize(count, {here, 3}), energies = batch[energy].resize(count, {1}),
         forces = batch[force].resize(count, {here, 3});
    auto of = batch[atom].resize(count, {pairs}), beside = batch[neighbour].resize(count, {pairs});
    const std::size_t counted = count / wanted.micro_batches;  // samples whose atoms the ids count
    std::size_t row = 0, at = 0;
    for (std::size_t sample = 0; sample < count; ++sample) {
      Numbers numbers(wanted.seed, "cluster", wanted.first + sample);
      const auto all = cluster(numbers);
      double sum = 0;
      for (std::size_t a = 0; a < atoms; ++a) {
        const bool mine = a >= first && a < first + here;
        Place pull{};
        for (std::size_t b = 0; b < atoms; ++b) {
          if (a == b) continue;
          const double r = distance(all[a], all[b]), decayed = std::exp(-steepness * (r - rest));
          sum += ((1 - decayed) * (1 - decayed) - 1) / 2;  // each pair is met twice
          for (std::size_t k = 0; k < 3; ++k) pull[k] -= 2 * steepness * decayed * (1 - decayed) * (all[a][k] - all[b][k]) / r;
          if (!mine) continue;
          of[at] = std::int32_t(sample % counted * atoms + a), beside[at++] = std::int32_t(sample % counted * atoms + b);
        }
        if (!mine) continue;
        for (std::size_t k = 0; k < 3; ++k) places[3 * row + k] = float(all[a][k]), forces[3 * row + k] = float(pull[k]);
        ++row;
      }
      energies[sample] = float(sum);
    }
    return batch;
  }
  static Report report(const Options& o, std::size_t shares, const auto& predict) {
    const std::size_t count = shared_by(32, shares);
    const auto make = [](Wanted wanted) {
      wanted.first += first_unseen;
      return batch(wanted);
    };
    const Prediction found = predict(count, make);  // [samples, atoms, 4]: energies and forces of atoms
    const Molecules all = make({o.seed, 0, count});
    std::vector<double> energies(count), forces;
    for (std::size_t row = 0; row < count * atoms; ++row) {
      const auto atom = found.values.begin() + std::ptrdiff_t(4 * row);
      energies[row / atoms] += *atom;
      forces.insert(forces.end(), atom + 1, atom + 4);
    }
    const auto numbers_of = [](const auto& values) { return std::vector<double>(values.begin(), values.end()); };
    Report report{.measure = "relative error of forces", .error = relative_error(forces, all[force].values())};
    report.picture.compare("energies, predicted over true", energies, numbers_of(all[energy].values()));
    report.picture.compare("forces, predicted over true", forces, numbers_of(all[force].values()));
    return report;
  }
};

}  // namespace

int train_potential(World& world, const Options& o) { return train<PotentialProblem>(world, o); }

}  // namespace fields
