// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cross-entropy over logits whose columns (the vocabulary) may be distributed over ranks. It has three steps, so that a caller
// can reduce between them: the maximum of each row (max over ranks), the sums of each row (sum over ranks), and the loss with its
// gradient. Columns >= valid are padding: they are ignored, and their gradient is 0. A target < 0 is ignored.
//
//   kernels::row_max(device, rows, columns, valid, logits, max);  // softmax_statistics does both where a rank has whole rows
//   kernels::softmax_sums(device, rows, columns, valid, logits, max, targets, first, sum_exp, target_logit);
//   kernels::cross_entropy_finish(device, rows, columns, valid, logits, max, sum_exp, target_logit, targets, first, loss,
//                                 gradient);

#include <cstddef>
#include <cstdint>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// max[r] = the largest of logits[r, 0 .. valid); the lowest finite number if valid is 0. logits is [rows, columns].
template <class T, class Exec>
void row_max(Device<Exec>& device, std::size_t rows, std::size_t columns, std::size_t valid, const T* logits,
             accumulate_t<T>* max) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  constexpr A lowest = Kokkos::Experimental::finite_min_v<A>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"cross_entropy", rows * (valid * sizeof(T) + sizeof(A))}, rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const A result = team.template maximum<V>(valid, logits + row * columns, lowest);
        if (team.leads()) max[row] = result;
      });
}

/// sum_exp[r] = sum over c < valid of exp(logits[r, c] - max[r]); target_logit[r] = logits[r, targets[r] - first] - max[r] if
/// that column is on this rank, else 0. `first` is the global number of column 0.
template <class T, class Exec>
void softmax_sums(Device<Exec>& device, std::size_t rows, std::size_t columns, std::size_t valid, const T* logits,
                  const accumulate_t<T>* max, const std::int32_t* targets, std::int64_t first, accumulate_t<T>* sum_exp,
                  accumulate_t<T>* target_logit) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"cross_entropy", rows * (valid * sizeof(T) + 3 * sizeof(A) + sizeof(std::int32_t)), rows * valid}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const T* in = logits + row * columns;
        const A top = max[row];
        const A result = team.template total_of_powers<V>(valid, in, top);
        if (!team.leads()) return;
        sum_exp[row] = result;
        const std::int64_t column = std::int64_t(targets[row]) - first;
        target_logit[row] = targets[row] >= 0 && column >= 0 && column < std::int64_t(valid) ? A(in[column]) - top : A(0);
      });
}

/// out[r] = 1 if targets[r] >= 0, else 0.
template <class T, class Exec>
void has_target(Device<Exec>& device, std::size_t rows, const std::int32_t* targets, T* out) {
  using A = accumulate_t<T>;
  detail::for_each(
      device, {"cross_entropy", rows * (sizeof(T) + sizeof(std::int32_t))}, rows,
      KOKKOS_LAMBDA(std::size_t row) { out[row] = T(targets[row] >= 0 ? A(1) : A(0)); });
}

/// row_max and softmax_sums for rows that no other rank shares: on devices in one pass over the logits.
template <class T, class Exec>
requires(detail::on_host<Exec>) void softmax_statistics(Device<Exec>& device, std::size_t rows, std::size_t columns,
                                                        std::size_t valid, const T* logits, const std::int32_t* targets,
                                                        accumulate_t<T>* max, accumulate_t<T>* sum_exp,
                                                        accumulate_t<T>* target_logit) {
  row_max(device, rows, columns, valid, logits, max);
  softmax_sums(device, rows, columns, valid, logits, max, targets, 0, sum_exp, target_logit);
}
template <class T, class Exec>
requires(!detail::on_host<Exec>) void softmax_statistics(Device<Exec>& device, std::size_t rows, std::size_t columns,
                                                         std::size_t valid, const T* logits, const std::int32_t* targets,
                                                         accumulate_t<T>* max, accumulate_t<T>* sum_exp,
                                                         accumulate_t<T>* target_logit) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"cross_entropy", rows * (valid * sizeof(T) + 3 * sizeof(A) + sizeof(std::int32_t))}, rows,
      KOKKOS_LAMBDA(std::size_t row, Team team) {
        const T* in = logits + row * columns;
        const detail::PowerSum<A> powers = team.template powers<V>(valid, in);
        if (!team.leads()) return;
        max[row] = powers.top;
        sum_exp[row] = powers.total;
        const std::int64_t column = targets[row];
        target_logit[row] = column >= 0 && column < std::int64_t(valid) ? A(in[column]) - powers.top : A(0);
      });
}

/// gradient[r, c] = (exp(logits - max) / sum_exp - (c is the target's column)) * factor[r * factor_step] (null: 1), rounded once:
/// [rows, columns], 0 in padding columns and in rows without a target. `gradient` may be `logits`. sum_exp is that of the whole
/// row over all ranks; the factors are in device memory, one (factor_step 0) or one for each row (1).
template <class T, class Exec>
void cross_entropy_gradient(Device<Exec>& device, std::size_t rows, std::size_t columns, std::size_t valid, const T* logits,
                            const accumulate_t<T>* max, const accumulate_t<T>* sum_exp, const std::int32_t* targets,
                            std::int64_t first, const double* factor, T* gradient, std::size_t factor_step = 0) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  constexpr bool host = detail::on_host<Exec>;
  detail::for_each_row(
      device, {"cross_entropy", rows * ((valid + columns) * sizeof(T) + 2 * sizeof(A) + sizeof(std::int32_t)), rows * valid},
      rows, KOKKOS_LAMBDA(std::size_t row, Team team) {
        const T* in = logits + row * columns;
        T* out = gradient + row * columns;
        if (targets[row] < 0)
          return team.template sweep<V>(columns, [&](std::size_t i, std::size_t count) { V(A(0)).store(out + i, count); });
        const A by = factor == nullptr ? A(1) : A(factor[row * factor_step]);
        const V top = V(max[row]), inverse = V(A(1) / sum_exp[row]), times = V(by);
        const std::int64_t column = std::int64_t(targets[row]) - first;
        const bool here = column >= 0 && column < std::int64_t(valid);
        // Every lane reads the target before any lane writes, since `gradient` may be `logits`.
        const A target = team.template same<A>([&] { return A(in[here ? column : 0]); });
        const A one_hot = here ? (A(Kokkos::exp(target - max[row])) / sum_exp[row] - A(1)) * by : A(0);
        team.template sweep<V>(valid, [&](std::size_t i, std::size_t count) {
          (exp(V::load(in + i, count) - top) * inverse * times).store(out + i, count);
          if (!host && here && std::size_t(column) >= i && std::size_t(column) < i + count) out[column] = T(one_hot);
        });
        team.template sweep<V>(columns - valid, [&](std::size_t i, std::size_t count) { V(A(0)).store(out + valid + i, count); });
        if (host && here) out[column] = T(one_hot);
      });
}

/// *loss_sum = sum over rows with a target of log(sum_exp) - target_logit, in double; and, unless `gradient` is null, the
/// gradient without a factor. sum_exp and target_logit are those of the whole row, over all ranks.
template <class T, class Exec>
void cross_entropy_finish(Device<Exec>& device, std::size_t rows, std::size_t columns, std::size_t valid, const T* logits,
                          const accumulate_t<T>* max, const accumulate_t<T>* sum_exp, const accumulate_t<T>* target_logit,
                          const std::int32_t* targets, std::int64_t first, double* loss_sum, T* gradient) {
  if (loss_sum != nullptr)
    detail::sum_blocks(
        device, {"cross_entropy", rows * (2 * sizeof(accumulate_t<T>) + sizeof(std::int32_t))}, rows, loss_sum,
        KOKKOS_LAMBDA(std::size_t begin, std::size_t end) {
          double total = 0;
          for (std::size_t row = begin; row < end; ++row)
            if (targets[row] >= 0) total += Kokkos::log(double(sum_exp[row])) - double(target_logit[row]);
          return total;
        });
  if (gradient != nullptr)
    cross_entropy_gradient(device, rows, columns, valid, logits, max, sum_exp, targets, first,
                           static_cast<const double*>(nullptr), gradient);
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
