// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fluid that carries heat over a periodic square or cube: from the temperatures and the fluid's velocity, which differs from
// sample to sample, a network predicts the temperatures a little later. The U-Net and the neural operator learn it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/weft.hpp>

#include "picture.hpp"
#include "report.hpp"
#include "samples.hpp"

namespace fields {

using namespace weft;

inline constexpr data::Field<"now", float> now;      // [samples, 1 + dims, side...]: temperatures, then the parts of the velocity
inline constexpr data::Field<"later", float> later;  // [samples, 1, side...]: temperatures
using Flow = FieldBatch<now, later>;

template <int Dims>
struct FlowSamples {
  static constexpr std::size_t side = Dims == 2 ? 32 : 16;
  static constexpr std::size_t points = Dims == 2 ? side * side : side * side * side;
  static constexpr double time = 0.12;

  /// `count` samples from `first` on.
  static Flow batch(std::uint64_t seed, std::uint64_t first, std::size_t count) {
    Shape in = Shape::of_rank(1 + Dims), out = Shape::of_rank(1 + Dims);
    in[0] = 1 + Dims, out[0] = 1;
    for (int dim = 1; dim <= Dims; ++dim) in[std::size_t(dim)] = out[std::size_t(dim)] = side;
    Flow batch{.samples = count};
    auto inputs = batch[now].resize(count, in);
    auto outputs = batch[later].resize(count, out);
    for (std::size_t sample = 0; sample < count; ++sample) {
      Numbers numbers(seed, "flow", first + sample);
      const Waves<Dims> waves(numbers);
      float* const channels = inputs.data() + sample * (1 + Dims) * points;
      for (std::size_t point = 0; point < points; ++point) {
        const auto place = place_of(point);
        channels[point] = float(waves.at(place, 0));
        for (int dim = 0; dim < Dims; ++dim) channels[std::size_t(1 + dim) * points + point] = float(waves.velocity()[dim]);
        outputs[sample * points + point] = float(waves.at(place, time));
      }
    }
    return batch;
  }
  /// The error of predictions, and three samples as pictures: before, predicted, true. Of a cube, its middle slice.
  static Report report(const Flow& samples, const Prediction& found) {
    constexpr std::size_t shown = side * side, first = Dims == 2 ? 0 : side / 2 * shown;
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

 private:
  static std::array<double, Dims> place_of(std::size_t point) {
    std::array<double, Dims> place{};
    for (int dim = Dims - 1; dim >= 0; --dim) {
      place[std::size_t(dim)] = double(point % side) / double(side);
      point /= side;
    }
    return place;
  }
};

}  // namespace fields
