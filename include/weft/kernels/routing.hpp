// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of a mixture of experts: routing probabilities, the choice of experts, gathering rows in the order of experts, and
// their weighted sums.
//
//   kernels::route(device, rows, experts, k, logits, bias, true, probabilities, log_sum_exp, chosen, weights);

#include <cstddef>
#include <cstdint>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

namespace detail {

// A row's softmax, its `k` best experts and their weights.
template <class A>
struct RouteRow {
  std::size_t experts, k;
  const A *logits, *bias;
  bool chosen_only;
  A *probabilities, *log_sum_exp;
  std::int32_t* chosen;
  A* weights;

  KOKKOS_FUNCTION void operator()(std::size_t row) const {
    const A* z = logits + row * experts;
    A* p = probabilities + row * experts;
    A largest = z[0], total = 0;
    for (std::size_t e = 1; e < experts; ++e) largest = z[e] > largest ? z[e] : largest;
    for (std::size_t e = 0; e < experts; ++e) total += p[e] = Kokkos::exp(z[e] - largest);
    for (std::size_t e = 0; e < experts; ++e) p[e] /= total;
    log_sum_exp[row] = largest + Kokkos::log(total);
    // Without a bias the logits decide: probabilities may underflow to ties that the logits do not have.
    std::int32_t* best = chosen + row * k;
    A* weight = weights + row * k;
    A chosen_total = 0;
    for (std::size_t slot = 0; slot < k; ++slot) {
      std::int32_t at = -1;
      A at_score = 0;
      for (std::size_t e = 0; e < experts; ++e) {
        bool taken = false;
        for (std::size_t before = 0; before < slot; ++before) taken = taken || best[before] == std::int32_t(e);
        const A score = bias ? p[e] + bias[e] : z[e];
        if (!taken && (at < 0 || score > at_score)) {
          at = std::int32_t(e);
          at_score = score;
        }
      }
      best[slot] = at;
      // Only over the chosen experts, relative to the first of them, so that underflow cannot give 0 / 0.
      weight[slot] = chosen_only ? Kokkos::exp(z[at] - z[best[0]]) : p[at];
      chosen_total += weight[slot];
    }
    if (chosen_only)
      for (std::size_t slot = 0; slot < k; ++slot) weight[slot] /= chosen_total;
  }
};

template <class A>
struct RouteRowBackward {
  std::size_t experts, k;
  const A *probabilities, *log_sum_exp;
  const std::int32_t* chosen;
  const A *weights, *d_weights;
  bool chosen_only;
  const A* balance;
  const std::int32_t* group;
  A z_scale;
  A* d_logits;

  KOKKOS_FUNCTION void operator()(std::size_t row) const {
    const A* p = probabilities + row * experts;
    A* d = d_logits + row * experts;
    // The gradient of the probabilities first, then that of the logits through the softmax.
    for (std::size_t e = 0; e < experts; ++e) d[e] = balance ? balance[std::size_t(group[row]) * experts + e] : A(0);
    if (!chosen_only)
      for (std::size_t slot = row * k; slot < (row + 1) * k; ++slot) d[chosen[slot]] += d_weights[slot];
    A mean = 0;
    for (std::size_t e = 0; e < experts; ++e) mean += p[e] * d[e];
    for (std::size_t e = 0; e < experts; ++e) d[e] = p[e] * (d[e] - mean + z_scale * A(2) * log_sum_exp[row]);
    if (!chosen_only) return;
    A chosen_mean = 0;
    for (std::size_t slot = row * k; slot < (row + 1) * k; ++slot) chosen_mean += weights[slot] * d_weights[slot];
    for (std::size_t slot = row * k; slot < (row + 1) * k; ++slot)
      d[chosen[slot]] += weights[slot] * (d_weights[slot] - chosen_mean);
  }
};

}  // namespace detail

/// For each row of logits [rows, experts]: probabilities = softmax(logits), log_sum_exp [rows], the k chosen experts [rows, k],
/// best first, and their weights [rows, k]: the softmax over only the chosen logits (chosen_only), or the probabilities. With
/// `bias` [experts] (null: none), probability + bias determines the choice but not the weights. Among equal scores the lowest
/// expert index wins. A NaN chooses the lowest remaining index.
template <class A, class Exec>
void route(Device<Exec>& device, std::size_t rows, std::size_t experts, std::size_t k, const A* logits, const A* bias,
           bool chosen_only, A* probabilities, A* log_sum_exp, std::int32_t* chosen, A* weights) {
  detail::for_each(device, {"routing", rows * ((2 * experts + 1) * sizeof(A) + k * (sizeof(A) + sizeof(std::int32_t)))}, rows,
                   detail::RouteRow<A>{.experts = experts,
                                       .k = k,
                                       .logits = logits,
                                       .bias = bias,
                                       .chosen_only = chosen_only,
                                       .probabilities = probabilities,
                                       .log_sum_exp = log_sum_exp,
                                       .chosen = chosen,
                                       .weights = weights});
}

/// d_logits [rows, experts] from d_weights [rows, k], from `balance` [groups, experts] (null: none), the gradient of every
/// probability in a row's group, and from z_scale times the gradient of log_sum_exp².
template <class A, class Exec>
void route_backward(Device<Exec>& device, std::size_t rows, std::size_t experts, std::size_t k, const A* probabilities,
                    const A* log_sum_exp, const std::int32_t* chosen, const A* weights, const A* d_weights, bool chosen_only,
                    const A* balance, const std::int32_t* group, A z_scale, A* d_logits) {
  detail::for_each(device, {"routing", rows * ((2 * experts + 1) * sizeof(A) + k * (2 * sizeof(A) + sizeof(std::int32_t)))}, rows,
                   detail::RouteRowBackward<A>{.experts = experts,
                                               .k = k,
                                               .probabilities = probabilities,
                                               .log_sum_exp = log_sum_exp,
                                               .chosen = chosen,
                                               .weights = weights,
                                               .d_weights = d_weights,
                                               .chosen_only = chosen_only,
                                               .balance = balance,
                                               .group = group,
                                               .z_scale = z_scale,
                                               .d_logits = d_logits});
}

/// out[i] = scale x[order[i] / k], with scale = weights[order[i]] (null: 1), and 0 if order[i] is -1; x is [.., width], out
/// [count, width].
template <class T, class Exec>
void gather_rows(Device<Exec>& device, std::size_t count, std::size_t width, const std::int32_t* order, std::size_t k, const T* x,
                 const accumulate_t<T>* weights, T* out) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  using A = accumulate_t<T>;
  detail::for_each_row(
      device, {"routing", count * (2 * width * sizeof(T) + sizeof(std::int32_t))}, count,
      KOKKOS_LAMBDA(std::size_t i, Team team) {
        if (order[i] < 0) {
          team.template sweep<V>(width, [&](std::size_t c, std::size_t n) { V(A(0)).store(out + i * width + c, n); });
          return;
        }
        const std::size_t slot = std::size_t(order[i]);
        const T* from = x + slot / k * width;
        const V scale = V(weights ? weights[slot] : A(1));
        team.template sweep<V>(
            width, [&](std::size_t c, std::size_t n) { (scale * V::load(from + c, n)).store(out + i * width + c, n); });
      });
}

/// out[row] = Σ over its k slots, in order, of weights[slot] y[place[slot]] (null weights: 1); a place of -1 adds nothing.
template <class T, class Exec>
void sum_places(Device<Exec>& device, std::size_t rows, std::size_t width, const std::int32_t* place, std::size_t k, const T* y,
                const accumulate_t<T>* weights, T* out) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  using A = accumulate_t<T>;
  detail::for_each_row(
      device, {"routing", rows * ((k + 1) * width * sizeof(T) + k * sizeof(std::int32_t))}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        team.template sweep<V>(width, [&](std::size_t c, std::size_t n) {
          V total = V(A(0));
          for (std::size_t slot = row * k; slot < (row + 1) * k; ++slot)
            if (place[slot] >= 0)
              total = total + V(weights ? weights[slot] : A(1)) * V::load(y + std::size_t(place[slot]) * width + c, n);
          total.store(out + row * width + c, n);
        });
      });
}

/// d_weights[slot] = g[row] · y[place[slot]]; 0 if the place is -1.
template <class T, class Exec>
void dot_places(Device<Exec>& device, std::size_t rows, std::size_t width, const std::int32_t* place, std::size_t k, const T* y,
                const T* g, accumulate_t<T>* d_weights) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  using A = accumulate_t<T>;
  detail::for_each_row(
      device, {"routing", rows * ((k + 1) * width * sizeof(T) + k * (sizeof(A) + sizeof(std::int32_t)))}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        for (std::size_t slot = row * k; slot < (row + 1) * k; ++slot) {
          const T* from = place[slot] >= 0 ? y + std::size_t(place[slot]) * width : nullptr;
          const V total = team.template add_up<V>(from ? width : 0, [&](std::size_t c, std::size_t n) {
            return V::load(from + c, n) * V::load(g + row * width + c, n);
          });
          if (team.leads()) d_weights[slot] = from ? sum(total) : A(0);
        }
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
