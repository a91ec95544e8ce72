// SPDX-License-Identifier: Apache-2.0
#pragma once
// PowerSGD, a communication hook that sends the gradient of a matrix as a product of two thin matrices, found by one step of
// power iteration from the last step's result. The error is added to the next gradient (Vogels, Karimireddy and Jaggi,
// arXiv:1905.13727, algorithms 1 and 2).
//
//   const auto hook = hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = 4});
//   DataParallel<models::Gpt> model(mesh, config, {.data = {.hook = hook}});

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/kernels/random.hpp>
#include <weft/parallel/hook/communication_hook.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::hook {

/// The options of PowerSgd.
struct PowerSgdOptions {
  int rank = 1;                ///< columns of the thin matrices
  bool error_feedback = true;  ///< keeps the error for the next step; takes a copy of the matrices' gradients
  bool warm_start = true;      ///< power iteration continues from the last step; else it starts from new random numbers
  int plain_steps = 0;         ///< the number of first steps that are summed whole
  std::uint64_t seed = 1;      ///< of the first right factors, the same on all ranks
};

/// A gradient of two or more dims counts as a matrix [dim 0, all others]. Vectors, and matrices that would not become smaller,
/// are summed whole. A matrix [n, m] sends rank * (n + m) numbers instead of n * m. Numerics: not equal to one rank: each step
/// has an error, while the error of the sum of all updates stays bounded. The same bits on every rank. Throws UsageError if rank
/// < 1.
class PowerSgd {
 public:
  PowerSgd(DefaultDevice& device, const PowerSgdOptions& options = {}) : device_(&device), options_(options) {
    if (options.rank < 1) throw_error<UsageError>({"PowerSgd: rank ", options.rank, " is less than 1"});
  }

  Request start(Bucket& bucket, const Communicator& comm) {
    return bucket.visit([&]<class G>(std::span<G> gradients) { return start_typed(bucket, gradients.data(), comm); });
  }
  void finish(Bucket& bucket, const Communicator& comm) {
    bucket.visit([&]<class G>(std::span<G> gradients) { finish_typed(bucket, gradients.data(), comm); });
  }

  /// In a checkpoint: the right factors, from which power iteration goes on, and this rank's error.
  void keep(Bucket& bucket, Keeper& keeper) {
    State& state = state_of(bucket);
    keeper.number("steps", state.steps);
    if (!state.right && keeper.loads("right"))
      bucket.visit([&]<class G>(std::span<G>) {
        make<G>(state);
        draw<G>(state);  // as a first step would, if the checkpoint turns out to be another layout's
      });
    if (state.right) keeper.array("right", state.right, state.right_size, bucket.type);
    if (state.error) keeper.array("error", state.error, state.error_size, bucket.type);
  }

 private:
  struct Matrix {
    std::size_t first, rows, columns;  // in the bucket
    std::size_t left, right, error;    // the first elements of its factors and its error
    std::uint64_t site;
  };
  struct Whole {
    std::size_t first, size, place;  // in the bucket, and in the first message
  };
  struct State {
    std::vector<Matrix> matrices;
    std::vector<Whole> whole;
    std::size_t sent = 0, right_size = 0, error_size = 0;
    weft::detail::Buffer left, right, error;  // `left`: the left factors, then the gradients that are summed whole
    std::int64_t steps = 0;
  };

  State& state_of(const Bucket& bucket);

  template <class G>
  static G* data(const weft::detail::Buffer& buffer) {
    return static_cast<G*>(buffer.get());
  }

  template <class G>
  void make(State& state) {
    state.right = device_->allocate_persistent(state.right_size * sizeof(G));
    if (!options_.error_feedback) return;
    state.error = device_->allocate_persistent(state.error_size * sizeof(G));
    kernels::fill<G>(*device_, state.error_size, data<G>(state.error), G(0));
  }

  template <class G>
  void draw(State& state) {
    for (const Matrix& matrix : state.matrices)
      kernels::initialise_normal<G>(*device_, 1, matrix.columns * std::size_t(options_.rank), data<G>(state.right) + matrix.right,
                                    key_of(options_.seed, matrix.site, options_.warm_start ? 0 : std::uint64_t(state.steps)), 0,
                                    0, 0, 0.0, 1.0);
  }

  // Sums the left factors P = M Q, with the last step's error added to M, and the gradients that are summed whole.
  template <class G>
  Request start_typed(const Bucket& bucket, G* gradients, const Communicator& comm) {
    State& state = state_of(bucket);
    if (state.steps++ < options_.plain_steps || state.matrices.empty())
      return comm.all_reduce_async(std::span<G>(gradients, bucket.elements));
    const bool first = !state.right;
    const std::size_t r = std::size_t(options_.rank);
    if (first) make<G>(state);
    if (first || !options_.warm_start) draw<G>(state);
    state.left = device_->allocate(state.sent * sizeof(G));
    for (const Matrix& matrix : state.matrices) {
      G* m = gradients + matrix.first;
      if (state.error) kernels::accumulate<G, G>(*device_, matrix.rows * matrix.columns, data<G>(state.error) + matrix.error, m);
      kernels::matmul<G, G>(*device_, kernels::Transpose::no, kernels::Transpose::no, matrix.rows, r, matrix.columns, m,
                            matrix.columns, data<G>(state.right) + matrix.right, r, data<G>(state.left) + matrix.left, r);
    }
    for (const Whole& whole : state.whole)
      kernels::cast<G, G>(*device_, whole.size, gradients + whole.first, data<G>(state.left) + whole.place);
    return comm.all_reduce_async(std::span<G>(data<G>(state.left), state.sent));
  }

  // Q = M^T P with P orthonormal, summed. The sum of gradients is then P Q^T, and an equal part of it is subtracted from each
  // rank's gradient to give the rank's error.
  template <class G>
  void finish_typed(const Bucket& bucket, G* gradients, const Communicator& comm) {
    State& state = states_.at(bucket.index);
    if (!state.left) return;
    const std::size_t r = std::size_t(options_.rank);
    for (const Matrix& matrix : state.matrices) {
      Tensor<G, DefaultDevice::execution_space> p(*device_, {matrix.rows, r}, state.left, matrix.left);
      std::vector<G> columns = copy_to_host(p);
      orthogonalise(columns, matrix.rows, r);
      copy_from_host(p, std::span<const G>(columns));
      kernels::matmul<G, G>(*device_, kernels::Transpose::yes, kernels::Transpose::no, matrix.columns, r, matrix.rows,
                            gradients + matrix.first, matrix.columns, p.data(), r, data<G>(state.right) + matrix.right, r);
    }
    comm.all_reduce(std::span<G>(data<G>(state.right), state.right_size));
    for (const Matrix& matrix : state.matrices) {
      G* m = gradients + matrix.first;
      const std::size_t size = matrix.rows * matrix.columns;
      if (state.error) kernels::cast<G, G>(*device_, size, m, data<G>(state.error) + matrix.error);
      kernels::matmul<G, G>(*device_, kernels::Transpose::no, kernels::Transpose::yes, matrix.rows, matrix.columns, r,
                            data<G>(state.left) + matrix.left, r, data<G>(state.right) + matrix.right, r, m, matrix.columns);
      if (state.error) kernels::axpy<G, G>(*device_, size, G(-1) / G(comm.size()), m, data<G>(state.error) + matrix.error);
    }
    for (const Whole& whole : state.whole)
      kernels::cast<G, G>(*device_, whole.size, data<G>(state.left) + whole.place, gradients + whole.first);
    state.left.reset();
  }

  // Modified Gram-Schmidt over the columns of x [rows, r], in double. A column that depends on those before it is replaced by a
  // new direction: it would stay zero otherwise.
  template <class G>
  static void orthogonalise(std::vector<G>& x, std::size_t rows, std::size_t r) {
    std::vector<std::vector<double>> done;
    for (std::size_t c = 0; c < r; ++c) {
      std::vector<double> column(rows);
      for (std::size_t i = 0; i < rows; ++i) column[i] = double(x[i * r + c]);
      const double before = norm(column);
      reject(column, done);
      double after = norm(column);
      for (std::size_t j = 0; !(after > 1e-6 * before) && j < rows && std::isfinite(before); ++j) {
        std::fill(column.begin(), column.end(), 0.0);
        column[(c + j) % rows] = 1;
        reject(column, done);
        after = norm(column);
        if (after > 0.5 / std::sqrt(double(rows))) break;
      }
      for (std::size_t i = 0; i < rows; ++i) x[i * r + c] = G(column[i] /= after);
      done.push_back(std::move(column));
    }
  }
  static double norm(const std::vector<double>& x) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    return std::sqrt(sum);
  }
  static void reject(std::vector<double>& x, const std::vector<std::vector<double>>& directions);

  DefaultDevice* device_;
  PowerSgdOptions options_;
  std::map<std::size_t, State> states_;
};

static_assert(Hook<PowerSgd>);

}  // namespace weft::hook

#ifndef WEFT_COMPILED
#include <weft/parallel/hook/power_sgd_impl.hpp>
#endif
