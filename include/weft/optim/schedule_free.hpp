// SPDX-License-Identifier: Apache-2.0
#pragma once
// Schedule-free AdamW (Defazio et al., The Road Less Scheduled, arXiv:2405.15682, algorithm 1): a constant learning rate after a
// warm-up, and an average of the iterates in place of a schedule, so the length of a run need not be known. The parameters of the
// model are y, where gradients are computed. The average x, which evaluation and export use, lies between y and the iterate z:
//
//   optim::ScheduleFreeAdamW optimizer(model, {.learning_rate = 2.5e-3, .warmup = 500});
//   {
//     const optim::UseEma averages(model, optimizer);   // optim/ema.hpp: until the end of the block the parameters are x
//     model.evaluate(batch);
//   }

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <weft/kernels/update_elements.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of ScheduleFreeAdamW.
struct ScheduleFreeAdamWOptions {
  double learning_rate = 2.5e-3;  ///< after the warm-up; step(rate) takes no other
  double beta1 = 0.9;             ///< of the interpolation y = (1 - beta1) z + beta1 x, above 0
  double beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;                  ///< decoupled, at y
  bool decay_vectors = true;                ///< false: biases and gains of norms do not decay
  std::uint64_t warmup = 0;                 ///< steps of linear warm-up, whose iterates have less weight in the average
  double clip = 0;                          ///< maximum global gradient norm; 0: no clipping
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

namespace detail {

/// z and the second moment of an element. The first step begins z at the parameter.
template <class A>
struct ScheduleFreeElement {
  static constexpr int buffers = 2;
  A first, not_first;                    // 1 and 0 in the first step, then 0 and 1
  A beta2, one_less_beta2, correction2;  // of the second moment
  A epsilon, decay, rate, weight, pull;  // weight: of z in the average x; pull: rate (beta1 (1 - weight) - 1)

  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(V gradient, V& value, V* kept) const {
    const V z = V(not_first) * kept[0] + V(first) * value;
    const V moment = V(beta2) * kept[1] + V(one_less_beta2) * gradient * gradient;
    const V direction = gradient / (sqrt(moment / V(correction2)) + V(epsilon)) + V(decay) * value;
    value = value + V(weight) * (z - value) + V(pull) * direction;
    kept[0] = z - V(rate) * direction;
    kept[1] = moment;
  }
  bool operator==(const ScheduleFreeElement&) const = default;
};

/// The weight of step `step` (from 1) in the average: its squared rate divided by the sum of all until then. The rate rises
/// linearly over `warmup` steps and is constant after it.
inline double schedule_free_weight(std::uint64_t step, std::uint64_t warmup) {
  const double n = double(std::min(step, warmup)), w = double(warmup);
  const double rising = warmup == 0 ? 0 : n * (n + 1) * (2 * n + 1) / (6 * w * w), constant = double(step) - n;
  const double rate = step < warmup ? double(step) / w : 1;
  return rate * rate / (rising + constant);
}

}  // namespace detail

/// Buffers "z" and "exp_avg_sq". Throws UsageError if step(rate) is given another rate than the options', since the weights of
/// the average are a function of the step only while the rate is constant. A parameter that is written between steps moves y, not
/// z.
struct ScheduleFreeAdamWRule {
  using Options = ScheduleFreeAdamWOptions;
  static constexpr bool elementwise = true;
  static constexpr int buffers = 2;
  static constexpr std::array<std::string_view, 2> buffer_names{"z",
                                                                "exp_avg_sq"};  // names in checkpoints, as in the authors' code

  static void check(const Options& options) {
    AdamWRule::check(detail::adamw_part(options));
    if (options.beta1 == 0)
      throw_error<UsageError>({"beta1 0: schedule-free AdamW computes its average from y and z, which needs a beta1 above 0"});
  }
  static void check_rate(const Options& options, double learning_rate) {
    if (learning_rate != options.learning_rate)
      throw_error<UsageError>(
          {"learning rate ", std::to_string(learning_rate), ": schedule-free AdamW has the constant rate of its options, ",
           std::to_string(options.learning_rate), ": call step() without a rate, and give the options .warmup for a warm-up"});
  }

  template <class A>
  static detail::ScheduleFreeElement<A> element(const ParameterState& state, const Options& options, double learning_rate,
                                                std::uint64_t step) {
    const double decay = state.global().rank() > 1 || options.decay_vectors ? options.weight_decay : 0;
    const double rate = step < options.warmup ? learning_rate * double(step) / double(options.warmup) : learning_rate;
    const double weight = detail::schedule_free_weight(step, options.warmup);
    return {A(step == 1 ? 1 : 0),
            A(step == 1 ? 0 : 1),
            A(options.beta2),
            A(1 - options.beta2),
            A(1 - std::pow(options.beta2, double(step))),
            A(options.epsilon),
            A(decay),
            A(rate),
            A(weight),
            A(rate * (options.beta1 * (1 - weight) - 1))};
  }

  /// The average is parameter + this * (kept[0] - parameter): x = y + (1 - 1 / beta1) (z - y).
  static double average_beyond(const Options& options) { return 1 - 1 / options.beta1; }
};

/// Numerics: in every layout the bits of one rank, if the gradients have the bits of one rank.
using ScheduleFreeAdamW = Optimizer<ScheduleFreeAdamWRule>;

}  // namespace weft::optim
