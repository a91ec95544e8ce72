// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fluid that carries heat over a periodic square or cube: from the temperatures and the fluid's velocity, which differs from
// sample to sample, a network predicts the temperatures a little later. The U-Net and the neural operator learn it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <weft/weft.hpp>

#include "picture.hpp"
#include "report.hpp"
#include "samples.hpp"

namespace fields {

using namespace weft;

/// [samples, 1 + dims, x, y, z]: temperatures, then the parts of the velocity.
inline constexpr data::Field<"now", float, data::Cut<dx, 2>, data::Cut<dy, 3>, data::Cut<dz, 4>> now;
/// [samples, 1, x, y, z]: temperatures.
inline constexpr data::Field<"later", float, data::Cut<dx, 2>, data::Cut<dy, 3>, data::Cut<dz, 4>> later;
using Flow = FieldBatch<now, later>;

template <int Dims>
struct FlowSamples {
  static constexpr std::size_t side = Dims == 2 ? 32 : 16;
  static constexpr double time = 0.12;

  /// The samples, and of each the piece of space.
  static Flow batch(const Wanted& wanted) {
    std::array<std::size_t, Dims> first{}, extent{};
    Shape in = Shape::of_rank(1 + Dims), out = Shape::of_rank(1 + Dims);
    in[0] = 1 + Dims, out[0] = 1;
    for (std::size_t dim = 0; dim < Dims; ++dim) {
      extent[dim] = side / wanted.space[dim].ranks;
      first[dim] = extent[dim] * wanted.space[dim].rank;
      in[1 + dim] = out[1 + dim] = extent[dim];
    }
    const std::size_t points = out.size();
    Flow batch{.samples = wanted.count};
    auto inputs = batch[now].resize(wanted.count, in);
    auto outputs = batch[later].resize(wanted.count, out);
    for (std::size_t sample = 0; sample < wanted.count; ++sample) {
      Numbers numbers(wanted.seed, "flow", wanted.first + sample);
      const Waves<Dims> waves(numbers);
      float* const channels = inputs.data() + sample * (1 + Dims) * points;
      for (std::size_t point = 0; point < points; ++point) {
        std::array<double, Dims> place{};
        for (std::size_t dim = Dims, rest = point; dim-- > 0; rest /= extent[dim])
          place[dim] = double(first[dim] + rest % extent[dim]) / double(side);
        channels[point] = float(waves.at(place, 0));
        for (std::size_t dim = 0; dim < Dims; ++dim) channels[(1 + dim) * points + point] = float(waves.velocity()[dim]);
        outputs[sample * points + point] = float(waves.at(place, time));
      }
    }
    return batch;
  }
  /// The error of predictions, and three samples as pictures: before, predicted, true; the middle slice of a cube.
  static Report report(const Flow& samples, const Prediction& found) {
    constexpr std::size_t points = Dims == 2 ? side * side : side * side * side, shown = side * side,
                          first = Dims == 2 ? 0 : side / 2 * shown;
    Report report{.measure = "relative error", .error = relative_error(found.values, samples[later].values())};
    for (std::size_t sample = 0; sample < std::min<std::size_t>(3, samples.samples); ++sample) {
      const auto slice = [&](const auto& values, std::size_t channels) {
        const auto begin = values.begin() + std::ptrdiff_t(sample * channels * points + first);
        return std::vector<double>(begin, begin + std::ptrdiff_t(shown));
      };
      report.picture.next_row();
      report.picture.grid("before", slice(samples[now].values(), 1 + Dims), side, side, {-2, 2});
      report.picture.grid("predicted", slice(found.values, 1), side, side, {-2, 2});
      report.picture.grid("true", slice(samples[later].values(), 1), side, side, {-2, 2});
    }
    return report;
  }
};

}  // namespace fields
