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
  using Laid = LaidModule<Potential<float>>;
  static constexpr Defaults defaults{
      .title = "Potential with energies and forces", .unit = "clusters", .steps = 800, .batch = 32, .learning_rate = 4e-3};
  static constexpr std::size_t atoms = 6, pairs = atoms * (atoms - 1);
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
  static Molecules batch(const Wanted& wanted) {
    const std::size_t count = wanted.count;
    Molecules batch{.samples = count};
    auto places = batch[position].resize(count, {atoms, 3}), energies = batch[energy].resize(count, {1}),
         forces = batch[force].resize(count, {atoms, 3});
    auto of = batch[atom].resize(count, {pairs}), beside = batch[neighbour].resize(count, {pairs});
    const std::size_t counted = count / wanted.micro_batches;  // samples whose atoms the ids count
    std::size_t at = 0;
    for (std::size_t sample = 0; sample < count; ++sample) {
      Numbers numbers(wanted.seed, "cluster", wanted.first + sample);
      const auto all = cluster(numbers);
      double sum = 0;
      for (std::size_t a = 0; a < atoms; ++a) {
        Place pull{};
        for (std::size_t b = 0; b < atoms; ++b) {
          if (a == b) continue;
          const double r = distance(all[a], all[b]), decayed = std::exp(-steepness * (r - rest));
          sum += ((1 - decayed) * (1 - decayed) - 1) / 2;  // each pair is met twice
          for (std::size_t k = 0; k < 3; ++k) pull[k] -= 2 * steepness * decayed * (1 - decayed) * (all[a][k] - all[b][k]) / r;
          of[at] = std::int32_t(sample % counted * atoms + a), beside[at++] = std::int32_t(sample % counted * atoms + b);
        }
        for (std::size_t k = 0; k < 3; ++k) {
          places[(sample * atoms + a) * 3 + k] = float(all[a][k]);
          forces[(sample * atoms + a) * 3 + k] = float(pull[k]);
        }
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
    const Prediction found = predict(count, make);  // [samples, 1 + 3 atoms]
    const Molecules all = make({o.seed, 0, count});
    std::vector<double> energies, forces;
    for (std::size_t sample = 0; sample < count; ++sample) {
      const auto row = found.values.begin() + std::ptrdiff_t(sample * (1 + 3 * atoms));
      energies.push_back(*row);
      forces.insert(forces.end(), row + 1, row + 1 + 3 * atoms);
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
