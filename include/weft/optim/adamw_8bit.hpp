// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW with moments of 8 bits (Dettmers et al., 8-bit optimizers via block-wise quantization, arXiv:2110.02861): each block of
// 256 elements has a scale, and each moment is one of 256 numbers, dense near 0 over seven decades (dynamic quantization). The
// state of an element is about 2 bytes in place of 8. Blocks are those of the whole parameter, so they do not depend on the
// layout: the moments live once, at the home of each matrix (optim/update_rule.hpp). Vectors and matrices of less than 4096
// elements keep AdamW's moments. A second moment above 0 keeps a code above 0: elements with rare gradients, as in an embedding
// table, would else move by m / epsilon. Name such tables in a group with the rule "adamw" to keep their moments whole.
//
// Rounding to the nearest number hides slow averages: a second moment keeps its number until one step moves it by half the
// distance to the next, while the largest of its block stays. With beta2 0.999 an element whose gradient falls to a tenth keeps
// its second moment, and moves at 0.16 of AdamW's rate; with beta2 0.95 it moves at 1.04. After a fall to a hundredth: 0.02 and
// 0.19.
//
//   optim::AdamW8Bit optimizer(model, {.learning_rate = 3e-4, .clip = 1.0});

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/device/parallel_for.hpp>
#include <weft/optim/direction_rule.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of AdamW8Bit.
struct AdamW8BitOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;
  bool decay_vectors = true;  ///< as in PyTorch; false: biases and gains of norms do not decay
  double clip = 0;            ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;       ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  /// Parameters with separate options; a group's rule is "adamw8bit" or "adamw".
  std::vector<ParameterGroup> groups = {};
};

namespace detail {

/// Elements with one scale.
inline constexpr std::size_t quantised_block = 256;

/// Number k of the 256 of dynamic quantization, in ascending order: 0, 1, and the middles of equal parts of [0.1, 1] times a
/// power of 10, twice as many in each decade as in the one below. Signed: 1 to 64 parts of seven decades, and their negatives.
/// Unsigned: 2 to 128.
KOKKOS_INLINE_FUNCTION double dynamic_number(bool is_signed, std::size_t k) {
  const bool negative = is_signed && k < 127;
  std::size_t place = negative ? 126 - k : is_signed ? k - 127 : k;  // among zero (unless negative) and the positive numbers
  if (!negative) {
    if (place == 0) return 0;
    --place;
  }
  if (place == (is_signed ? 127 : 254)) return 1;
  std::size_t parts = is_signed ? 1 : 2;
  double decade = 1e-6;
  for (; place >= parts; parts *= 2, decade *= 10) place -= parts;
  const double number = decade * (0.1 + 0.9 * (double(place) + 0.5) / double(parts));
  return negative ? -number : number;
}
/// numbers [2, 256]: signed, unsigned.
template <class Exec>
void write_dynamic_numbers(Device<Exec>& device, double* numbers) {
  weft::detail::for_each_index(
      device, {"optimizer", 512 * sizeof(double)}, 512,
      KOKKOS_LAMBDA(const std::size_t i) { numbers[i] = dynamic_number(i < 256, i % 256); });
}
/// The code of the nearest number; of two equally near the lower one.
KOKKOS_INLINE_FUNCTION std::uint8_t dynamic_code(const double* numbers, double x) {
  std::size_t low = 0, high = 255;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (x > (numbers[middle] + numbers[middle + 1]) / 2) low = middle + 1;
    else high = middle;
  }
  return std::uint8_t(low);
}

/// The moments of a parameter in blocks: codes [n], scales [blocks], of the first and the second.
template <class A>
struct QuantisedMoments {
  std::uint8_t* codes[2];
  A* scales[2];
  const double* numbers;  ///< [2, 256]: signed, unsigned
};

/// AdamW's direction in place of the gradient. It has the moments before they are rounded to their codes.
template <class A>
struct QuantisedAdam {
  double beta1, beta2, correction1, correction2, epsilon;
};
template <class A, class Exec>
void quantised_direction(Device<Exec>& device, std::size_t n, const QuantisedAdam<A>& of, const QuantisedMoments<A>& moments,
                         A* gradient) {
  weft::detail::for_each_index(
      device, {"optimizer", n * (2 * sizeof(A) + 4)}, (n + quantised_block - 1) / quantised_block,
      KOKKOS_LAMBDA(const std::size_t block) {
        const std::size_t begin = block * quantised_block, count = n - begin < quantised_block ? n - begin : quantised_block;
        const double *const numbers = moments.numbers, *const powers = moments.numbers + 256;
        std::uint8_t *const codes = moments.codes[0] + begin, *const squares = moments.codes[1] + begin;
        A* const g = gradient + begin;
        const double scale = double(moments.scales[0][block]), of_squares = double(moments.scales[1][block]);
        const auto first = [&](std::size_t i) { return of.beta1 * (numbers[codes[i]] * scale) + (1 - of.beta1) * double(g[i]); };
        const auto second = [&](std::size_t i) {
          return of.beta2 * (powers[squares[i]] * of_squares) + (1 - of.beta2) * double(g[i]) * double(g[i]);
        };
        double largest = 0, largest_square = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const double m = first(i), v = second(i), size = m < 0 ? -m : m;
          largest = size > largest ? size : largest;
          largest_square = v > largest_square ? v : largest_square;
        }
        const A kept = A(largest), kept_square = A(largest_square);
        for (std::size_t i = 0; i < count; ++i) {
          const double m = first(i), v = second(i);
          codes[i] = dynamic_code(numbers, kept > 0 ? m / double(kept) : 0.0);
          squares[i] = dynamic_code(powers, kept_square > 0 ? v / double(kept_square) : 0.0);
          if (squares[i] == 0 && v > 0 && kept_square > 0) squares[i] = 1;  // 0 would make the next direction m / epsilon
          g[i] = A(m / of.correction1 / (Kokkos::sqrt(v / of.correction2) + of.epsilon));
        }
        moments.scales[0][block] = kept;
        moments.scales[1][block] = kept_square;
      });
}

}  // namespace detail

/// The gradient travels to the home of each matrix, the direction back. Codes are stored in arrays of the type of updates, four
/// (float) or eight (double) in an element.
struct AdamW8BitRule : DirectionRule<AdamW8BitOptions> {
  static constexpr std::array<std::string_view, 2> rules{"adamw8bit", "adamw"};
  static constexpr std::array<std::string_view, 4> home_names{"exp_avg_codes", "exp_avg_sq_codes", "exp_avg_scales",
                                                              "exp_avg_sq_scales"};
  static constexpr std::size_t home_bytes = 2;  ///< the first arrays hold codes of a byte each, which proofs compare
  static constexpr std::size_t fewest = 4096;   ///< elements of a parameter whose moments are quantised

  static bool takes_whole(const ParameterState& state, bool) {
    return state.global().rank() > 1 && state.global().size() >= fewest;
  }

  static std::array<std::size_t, 4> home_elements(const ParameterState& state) {
    const std::size_t n = state.global().size(), width = size_of(state.gradient_type());
    const std::size_t codes = (n + width - 1) / width, blocks = (n + detail::quantised_block - 1) / detail::quantised_block;
    return {codes, codes, blocks, blocks};
  }

  template <class A, class Exec>
  static void transform(Device<Exec>& device, const Matrix& matrix, const Options& options, A* gradient) {
    const std::size_t n = matrix.rows * matrix.columns;
    const weft::detail::Buffer memory = device.allocate(512 * sizeof(double));
    double* const numbers = static_cast<double*>(memory.get());
    detail::write_dynamic_numbers(device, numbers);
    auto* const first = reinterpret_cast<std::uint8_t*>(matrix.array<A>(0));
    auto* const second = reinterpret_cast<std::uint8_t*>(matrix.array<A>(1));
    const detail::QuantisedAdam<A> of{options.beta1, options.beta2, 1 - std::pow(options.beta1, double(matrix.step)),
                                      1 - std::pow(options.beta2, double(matrix.step)), options.epsilon};
    detail::quantised_direction<A>(device, n, of, {{first, second}, {matrix.array<A>(2), matrix.array<A>(3)}, numbers}, gradient);
  }
};

/// Numerics: in every layout the bits of one rank, if the gradients have the bits of one rank; otherwise rounding of a gradient
/// can move a moment to a neighbouring number. The arithmetic is in double.
using AdamW8Bit = Optimizer<AdamW8BitRule>;

}  // namespace weft::optim
