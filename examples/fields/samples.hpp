// SPDX-License-Identifier: Apache-2.0
#pragma once
// Generated samples: random numbers of a sample as a function of the seed and its index, so that every layout trains on the same
// data, and exact solutions of advection and diffusion.
//
//   Numbers numbers(seed, "flow", index);
//   const Waves<2> waves(numbers);
//   const double later = waves.at({0.25, 0.5}, 0.1);   // the state there, at time 0.1

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string_view>

#include <weft/core/philox.hpp>
#include <weft/mesh/axis.hpp>

namespace fields {

inline constexpr double pi = std::numbers::pi;

/// A rank's part of a dim of space: parts are of equal extents.
struct Part {
  std::size_t rank = 0, ranks = 1;
  std::size_t of(std::size_t extent) const { return extent / ranks; }
};
/// The samples that a rank asks for: `count` from `first` on, and of each its piece of space.
struct Wanted {
  std::uint64_t seed = 1, first = 0;
  std::size_t count = 1;
  std::size_t micro_batches = 1;   ///< into which they are divided
  std::array<Part, 3> space = {};  ///< along x, y and z
  std::size_t metis_parts = 0;     ///< into which METIS cuts a mesh
};

/// The part of space of this rank of a mesh.
template <class Ranks>
std::array<Part, 3> space_of(const Ranks& mesh) {
  std::array<Part, 3> space;
  const auto along = [&]<class A>(A axis, Part& part) {
    if constexpr (Ranks::has(A())) part = {std::size_t(mesh.rank(axis)), std::size_t(mesh.size(axis))};
  };
  along(weft::dx(), space[0]), along(weft::dy(), space[1]), along(weft::dz(), space[2]);
  return space;
}

/// The random numbers of one sample, in the order in which they are drawn.
class Numbers {
 public:
  Numbers(std::uint64_t seed, std::string_view purpose, std::uint64_t sample)
      : key_(weft::key_of(seed, weft::site_of(purpose), sample)) {}
  /// Uniform in [low, high).
  double uniform(double low, double high) { return low + (high - low) * double(weft::Philox::uniform(key_, next_++)); }
  /// Normally distributed with mean 0 and deviation 1.
  double normal() { return weft::Philox::normal(weft::key_of(key_, 1), next_++); }
  /// One of [0, count).
  std::size_t below(std::size_t count) { return std::size_t(uniform(0, double(count))); }

 private:
  std::uint64_t key_, next_ = 0;
};

/// Plane waves on the periodic unit square or cube. Their sum solves u_t + c ∇u = κ Δu exactly: a wave moves with the velocity c
/// and decays as exp(-κ |k|² t).
template <int Dims>
class Waves {
 public:
  using Place = std::array<double, Dims>;
  static constexpr double diffusivity = 2e-3;

  /// Velocities are up to `fastest` in each dim.
  explicit Waves(Numbers& numbers, double fastest = 1) {
    for (double& speed : velocity_) speed = numbers.uniform(-fastest, fastest);
    for (Wave& wave : waves_) {
      for (double& k : wave.k) k = 2 * pi * (double(numbers.below(5)) - 2);
      wave.amplitude = numbers.uniform(-1, 1);
      wave.phase = numbers.uniform(0, 2 * pi);
    }
  }
  const Place& velocity() const { return velocity_; }
  /// The state at a place and a time.
  double at(const Place& x, double time) const {
    double sum = 0;
    for (const Wave& wave : waves_) {
      double square = 0, angle = wave.phase;
      for (int dim = 0; dim < Dims; ++dim) {
        square += wave.k[dim] * wave.k[dim];
        angle += wave.k[dim] * (x[dim] - velocity_[dim] * time);
      }
      sum += wave.amplitude * std::exp(-diffusivity * square * time) * std::cos(angle);
    }
    return sum;
  }

 private:
  struct Wave {
    Place k{};
    double amplitude = 0, phase = 0;
  };
  Place velocity_{};
  std::array<Wave, 4> waves_{};
};

}  // namespace fields
