// SPDX-License-Identifier: Apache-2.0
#pragma once
// The statistics of a softmax over the rows of logits whose columns the ranks of an axis may share. Losses, log-probabilities of
// a training forward and those of generated tokens all come from these, so they have the same bits for the same logits.
//
//   const auto statistics = softmax_statistics(&context.comm(tp{}), logits, valid, first, targets);

#include <cstddef>
#include <cstdint>

#include <weft/comm/communicator.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/cross_entropy.hpp>
#include <weft/tensor/fixed_terms.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// The statistics of each row: the largest logit, the sum of exp(logit - largest), and the target's logit minus the largest (0
/// without a target). In accumulate_t, the same on all ranks that share the row.
template <class Z>
struct SoftmaxStatistics {
  using Numbers = Tensor<accumulate_t<typename Z::value_type>, typename Z::execution_space>;
  Numbers maximum;  // [rows]
  Numbers sums;     // [2, rows]: sums of powers, targets
};

/// Throws UsageError, on all ranks, unless the terms of a sum over a vocabulary have one size and no padding
/// (NumericsOptions::reproducible_degree).
template <class Exec>
void require_whole_terms(const Device<Exec>& device, std::size_t vocabulary, std::size_t ranks) {
  if (device.sum_terms() != 0) require_even_terms("vocabulary", vocabulary, 1, device.sum_terms() * ranks);
}

/// logits [rows, columns], of which the first `valid` count; column 0 is the column `first` of the whole. `ranks`: those that
/// share the rows, null if a rank has whole rows. Communication: the row maxima, then both sums together, in rank order.
template <class Z>
SoftmaxStatistics<Z> softmax_statistics(const Communicator* ranks, const Z& logits, std::size_t valid, std::size_t first,
                                        const std::int32_t* targets) {
  using T = typename Z::value_type;
  using S = typename SoftmaxStatistics<Z>::Numbers;
  const std::size_t rows = logits.rows(), columns = logits.columns();
  auto& device = logits.device();
  SoftmaxStatistics<Z> all{S(device, {rows}), S(device, {2, rows})};
  auto *const maximum = all.maximum.data(), *const sum = all.sums.data(), *const target = all.sums.data() + rows;
  if (ranks == nullptr) {
    kernels::softmax_statistics<T>(device, rows, columns, valid, logits.data(), targets, maximum, sum, target);
    return all;
  }
  kernels::row_max<T>(device, rows, columns, valid, logits.data(), maximum);
  ranks->all_reduce(all.maximum, Reduction::max);
  if (const std::size_t terms = device.sum_terms(); terms != 0) {
    require_even_terms("vocabulary", columns, std::size_t(ranks->size()), terms);
    all.sums = sum_of_fixed_terms<S>(*ranks, device, {2, rows}, [&](std::size_t term, accumulate_t<T>* out) {
      const std::size_t begin = term * (columns / terms);
      kernels::softmax_sums<T>(device, rows, columns, columns / terms, logits.data() + begin, maximum, targets,
                               std::int64_t(first + begin), out, out + rows);
    });
    return all;
  }
  kernels::softmax_sums<T>(device, rows, columns, valid, logits.data(), maximum, targets, std::int64_t(first), sum, target);
  ranks->all_reduce(all.sums);
  return all;
}

/// The log-probability of a column, given its logit minus the row's maximum and the logarithm of the row's sum of powers: in
/// double, rounded once.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A log_probability_of(A logit, double log_sum) {
  return A(double(logit) - log_sum);
}

/// out[r] = the log-probability of the target of row r, 0 if it is negative. `sums` [2, rows]: SoftmaxStatistics.
template <class A, class Exec>
void write_log_probabilities(Device<Exec>& device, std::size_t rows, const A* sums, const std::int32_t* targets, A* out) {
  for_each_index(
      device, {"cross_entropy", rows * (3 * sizeof(A) + sizeof(std::int32_t))}, rows, KOKKOS_LAMBDA(const std::size_t row) {
        out[row] = targets[row] < 0 ? A(0) : log_probability_of(sums[rows + row], Kokkos::log(double(sums[row])));
      });
}

/// *sum = the sum of n numbers, in their order.
template <class Exec>
void add_numbers(Device<Exec>& device, std::size_t n, const double* numbers, double* sum) {
  for_each_index(
      device, {"cross_entropy", n * sizeof(double)}, 1, KOKKOS_LAMBDA(const std::size_t) {
        double total = 0;
        for (std::size_t i = 0; i < n; ++i) total += numbers[i];
        *sum = total;
      });
}

}  // namespace weft::detail
