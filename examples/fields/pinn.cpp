// SPDX-License-Identifier: Apache-2.0
#include "pinn.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "problem.hpp"
#include "samples.hpp"
#include "training.hpp"

namespace fields {

namespace {

constexpr double viscosity = Pinn<float>::viscosity;

double at_start(double x) { return -std::sin(pi * x); }

/// The solution by the formula of Cole and Hopf, a quotient of two integrals over the whole line with the weight of a normal
/// distribution. Sums at equal distances converge faster than any power of the distance.
double solution(double x, double t) {
  if (t <= 0) return at_start(x);
  const double width = std::sqrt(4 * viscosity * t);
  double above = 0, below = 0;
  for (int i = -120; i <= 120; ++i) {
    const double s = i * 0.05, y = x - width * s, weight = std::exp(-s * s - std::cos(pi * y) / (2 * pi * viscosity));
    above += at_start(y) * weight;
    below += weight;
  }
  return above / below;
}

struct PinnProblem {
  using Laid = LaidModule<Pinn<float>>;
  static constexpr Defaults defaults{
      .title = "Burgers by a physics-informed network", .unit = "points", .steps = 1500, .batch = 128, .learning_rate = 5e-3};
  static constexpr std::size_t side = 40;  // of the picture

  static Points batch(const Wanted& wanted) {
    const std::size_t count = wanted.count;
    Points batch{.samples = count};
    auto free = batch[inside].resize(count, {2}), known = batch[border].resize(count, {2}),
         values = batch[given].resize(count, {1});
    for (std::size_t i = 0; i < count; ++i) {
      Numbers numbers(wanted.seed, "points", wanted.first + i);
      free[2 * i] = float(numbers.uniform(-1, 1)), free[2 * i + 1] = float(numbers.uniform(0, 1));
      const bool wall = numbers.below(2) == 1;
      const double x = numbers.uniform(-1, 1);
      known[2 * i] = wall ? (x < 0 ? -1 : 1) : float(x);
      known[2 * i + 1] = wall ? float(numbers.uniform(0, 1)) : 0;
      values[i] = wall ? 0 : float(at_start(x));
    }
    return batch;
  }
  static Report report(const Options&, std::size_t shares, const auto& predict) {
    const auto place = [](std::size_t i) {  // rows of x, columns of t
      return std::array{2 * double(i / side % side) / double(side - 1) - 1, double(i % side) / double(side - 1)};
    };
    const Prediction found = predict(shared_by(side * side, shares), [&](const Wanted& wanted) {
      Points batch{.samples = wanted.count};
      auto points = batch[inside].resize(wanted.count, {2});
      for (std::size_t i = 0; i < wanted.count; ++i)
        for (std::size_t k = 0; k < 2; ++k) points[2 * i + k] = float(place(wanted.first + i)[k]);
      return batch;
    });
    std::vector<double> wanted, predicted(found.values.begin(), found.values.begin() + side * side), off;
    for (std::size_t i = 0; i < side * side; ++i) {
      wanted.push_back(solution(place(i)[0], place(i)[1]));
      off.push_back(10 * (predicted[i] - wanted[i]));
    }
    Report report{.measure = "relative error", .error = relative_error(predicted, wanted)};
    report.picture.grid("predicted, t to the right", predicted, side, side, {-1, 1});
    report.picture.grid("true", wanted, side, side, {-1, 1});
    report.picture.grid("difference, ten times", off, side, side, {-1, 1});
    return report;
  }
};

}  // namespace

int train_pinn(World& world, const Options& o) { return train<PinnProblem>(world, o); }

}  // namespace fields
