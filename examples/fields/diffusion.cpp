// SPDX-License-Identifier: Apache-2.0
#include "diffusion.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "problem.hpp"
#include "samples.hpp"
#include "training.hpp"

namespace fields {

namespace {

/// Pictures of a ring or a disc, anywhere; sampled by the steps of the paper's algorithm 2.
struct DiffusionProblem {
  using Laid = LaidInSpace<Diffusion<float>, dx, dy>;
  static constexpr Defaults defaults{
      .title = "Diffusion of pictures", .unit = "pictures", .steps = 800, .batch = 32, .learning_rate = 3e-3, .ema = 0.99};
  static constexpr std::size_t side = 12, pixels = side * side;
  static constexpr int times = 50;

  /// The squared part of a picture that is left at time t of `times` (Nichol and Dhariwal, arXiv:2102.09672).
  static double left_at(int t) {
    const double angle = (double(t) / times + 0.008) / 1.008 * pi / 2;
    return std::max(1e-4, std::cos(angle) * std::cos(angle));
  }
  static void set_time(Pictures& batch, std::size_t sample, int t, double left) {
    batch[remaining].writable()[sample] = float(std::sqrt(left));
    batch[spread].writable()[sample] = float(std::sqrt(1 - left));
    const auto features = features_of(double(t) / times);
    std::copy(features.begin(), features.end(), batch[moment].writable().begin() + std::ptrdiff_t(sample * time_features));
  }
  static void require_degrees(std::size_t tp, const std::array<Part, 3>& space) {
    require_whole_groups(DiffusionBlock::groups, tp);
    for (std::size_t dim = 0; dim < 2; ++dim)
      require_degree(side % space[dim].ranks == 0, axes_of_space[dim], space[dim].ranks,
                     std::to_string(side) + " points are not equal pieces");
  }
  static Pictures room(const Wanted& wanted) {
    const std::size_t count = wanted.count;
    Pictures batch{.samples = count};
    batch[picture].resize(count, {1, wanted.space[0].of(side), wanted.space[1].of(side)});
    batch[remaining].resize(count, {1, 1, 1});
    batch[spread].resize(count, {1, 1, 1});
    batch[moment].resize(count, {time_features});
    return batch;
  }
  /// Sets a sample's piece of a picture to value(pixel), with `pixel` counted in the whole picture.
  static void set_picture(Pictures& batch, std::size_t sample, const Wanted& wanted, const auto& value) {
    const std::size_t rows = wanted.space[0].of(side), columns = wanted.space[1].of(side),
                      first = rows * wanted.space[0].rank * side + columns * wanted.space[1].rank;
    float* const piece = batch[picture].writable().data() + sample * rows * columns;
    for (std::size_t i = 0; i < rows * columns; ++i) piece[i] = float(value(first + i / columns * side + i % columns));
  }
  static Pictures batch(const Wanted& wanted) {
    Pictures batch = room(wanted);
    for (std::size_t sample = 0; sample < wanted.count; ++sample) {
      Numbers numbers(wanted.seed, "picture", wanted.first + sample);
      const double x = numbers.uniform(3.5, 7.5), y = numbers.uniform(3.5, 7.5), radius = numbers.uniform(2.2, 3.4);
      const bool ring = numbers.below(2) == 1;
      set_picture(batch, sample, wanted, [&](std::size_t pixel) {
        const double away = std::hypot(double(pixel % side) - x, double(pixel / side) - y),
                     inside = ring ? 1.2 - std::abs(away - radius) : radius - away;
        return std::clamp(2 * inside, -1.0, 1.0);
      });
      const int t = 1 + int(numbers.below(times));
      set_time(batch, sample, t, left_at(t));
    }
    return batch;
  }
  /// New pictures, from noise on; beside them some that were trained on.
  static Report report(const Options& o, std::size_t shares, const auto& predict) {
    const std::size_t count = shared_by(6, shares);
    std::vector<double> drawn(count * pixels);
    Numbers start(o.seed, "start", 0);
    for (double& value : drawn) value = start.normal();
    for (int t = times; t > 0; --t) {
      const double left = left_at(t), before = left_at(t - 1), kept = left / before;
      const Prediction noise = predict(count, [&](const Wanted& wanted) {
        Pictures batch = room(wanted);
        for (std::size_t i = 0; i < wanted.count; ++i) {
          set_picture(batch, i, wanted, [&](std::size_t pixel) { return drawn[(wanted.first + i) * pixels + pixel]; });
          set_time(batch, i, t, left);
          batch[remaining].writable()[i] = 1, batch[spread].writable()[i] = 0;  // it is noisy already
        }
        return batch;
      });
      Numbers numbers(o.seed, "noise", std::uint64_t(t));
      const double deviation = t > 1 ? std::sqrt((1 - kept) * (1 - before) / (1 - left)) : 0;
      for (std::size_t i = 0; i < drawn.size(); ++i) {
        const double clean = std::clamp((drawn[i] - std::sqrt(1 - left) * noise.values[i]) / std::sqrt(left), -1.0, 1.0);
        drawn[i] = (std::sqrt(before) * (1 - kept) * clean + std::sqrt(kept) * (1 - before) * drawn[i]) / (1 - left) +
                   deviation * numbers.normal();
      }
    }
    const Pictures real = batch({o.seed, 0, 6});
    Report report{.measure = "part of black or white pixels"};
    const auto sharp = std::count_if(drawn.begin(), drawn.end(), [](double value) { return std::abs(value) > 0.8; });
    report.error = double(sharp) / double(drawn.size());
    for (const bool trained : {false, true}) {
      report.picture.next_row();
      for (std::size_t i = 0; i < 6; ++i) {
        const auto part = [&](const auto& values) {
          return std::vector<double>(values.begin() + std::ptrdiff_t(i * pixels),
                                     values.begin() + std::ptrdiff_t((i + 1) * pixels));
        };
        report.picture.grid(trained ? "trained on" : "drawn", trained ? part(real[picture].values()) : part(drawn), side, side,
                            {-1, 1});
      }
    }
    return report;
  }
};

}  // namespace

int train_diffusion(World& world, const Options& o) { return train<DiffusionProblem>(world, o); }

}  // namespace fields
