// SPDX-License-Identifier: Apache-2.0
#pragma once
// Muon: the momentum of each matrix is orthogonalised before it is applied (Jordan et al. 2024), and scaled so that AdamW's rates
// and decay are suitable (Liu et al., Muon is scalable for LLM training, arXiv:2502.16982). AdamW updates embeddings, heads,
// vectors and all parameters that do not have two dims.
//
//   optim::Muon optimizer(model, {.learning_rate = 3e-4, .weight_decay = 0.1});

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include <weft/kernels/newton_schulz.hpp>
#include <weft/optim/direction_rule.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of Muon.
struct MuonOptions {
  double learning_rate = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  int steps = 5;                                     ///< of the Newton-Schulz iteration
  double scale = 0.2;                                ///< approximate root mean square of an update, as AdamW's
  double weight_decay = 0.1;                         ///< decoupled; also of the parameters that AdamW updates
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;  ///< for AdamW
  bool decay_vectors = true;                         ///< as AdamWOptions::decay_vectors
  double clip = 0;                                   ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;                              ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  /// The type of the products: bfloat16 or float32. Momentum is kept in float32; models in double compute in double.
  DataType products = DataType::float32;
  Work work = Work::home;  ///< the ranks that orthogonalise matrices
  /// Parameters with separate options; a group's rule is "muon" or "adamw".
  std::vector<ParameterGroup> groups = {};
};

/// Muon for matrices between hidden states, AdamW for all others. A parameter whose sharding names segments, such as query, key
/// and value in one, is orthogonalised segment by segment, as if they were separate parameters.
struct MuonRule : DirectionRule<MuonOptions> {
  static constexpr std::array<std::string_view, 2> rules{"muon", "adamw"};
  static constexpr int whole_buffers = 1;
  static constexpr std::array<std::string_view, 1> whole_buffer_names{"momentum_buffer"};

  static void check(const Options& options) {
    DirectionRule::check(options);
    require_option("momentum", options.momentum, 1);
    require_option("scale", options.scale, largest_decay);
    if (options.steps < 1) throw_error<UsageError>({"steps ", options.steps, ": Newton and Schulz's iteration has at least one"});
    if (options.steps > 1000)
      throw_error<UsageError>({"steps ", options.steps, ": Newton and Schulz's iteration has at most 1000"});
    if (options.products != DataType::float32 && options.products != DataType::bfloat16)
      throw_error<UsageError>({"products ", name_of(options.products), ": Muon's are in float32 or bfloat16"});
  }

  /// `inner`: only blocks use the parameter, not the model's front or back.
  static bool takes_whole(const ParameterState& state, bool inner) { return inner && state.global().rank() == 2; }

  /// Upper bound of the additional elements that `transform` needs.
  static std::size_t workspace(const ParameterState& state) {
    const std::size_t rows = state.global()[0], columns = state.global()[1];
    const ParameterInfo& info = state.info();
    if (info.segments.size() < 2) return kernels::newton_schulz_elements(rows, columns);
    std::size_t most = 0;
    for (const std::size_t extent : info.segments)
      most = std::max(most, info.segment_dim == 0 ? kernels::newton_schulz_elements(extent, columns)
                                                  : rows * extent + kernels::newton_schulz_elements(rows, extent));
    return most;
  }

  template <class P, class Exec>
  static void prepare(Device<Exec>& device, Slot& slot, const Options& options, double gradient_scale, std::uint64_t,
                      accumulate_t<P>* direction) {
    using A = accumulate_t<P>;
    kernels::momentum_direction<A>(device, slot.state->kept(), static_cast<const A*>(slot.state->gradient().get()),
                                   static_cast<A*>(slot.kept[0].get()), direction, options.momentum, options.nesterov,
                                   gradient_scale);
  }

  template <class A, class Exec>
  static void transform(Device<Exec>& device, const Matrix& matrix, const Options& options, A* direction) {
    const ParameterInfo& info = matrix.state->info();
    if (info.segments.size() < 2) return orthogonalise(device, matrix.rows, matrix.columns, direction, options);
    std::size_t before = 0;
    for (const std::size_t extent : info.segments) {
      if (info.segment_dim == 0) {  // rows are contiguous
        orthogonalise(device, extent, matrix.columns, direction + before * matrix.columns, options);
      } else {
        const weft::detail::Buffer apart = device.allocate(matrix.rows * extent * sizeof(A));
        A* segment = static_cast<A*>(apart.get());
        weft::detail::copy_rows(device, matrix.rows, extent, static_cast<const A*>(direction) + before, matrix.columns, segment,
                                extent);
        orthogonalise(device, matrix.rows, extent, segment, options);
        weft::detail::copy_rows(device, matrix.rows, extent, static_cast<const A*>(segment), extent, direction + before,
                                matrix.columns);
      }
      before += extent;
    }
  }

 private:
  // The orthogonal matrix times scale * sqrt(max(rows, columns)).
  template <class A, class Exec>
  static void orthogonalise(Device<Exec>& device, std::size_t rows, std::size_t columns, A* x, const Options& options) {
    if constexpr (std::is_same_v<A, float>) {
      if (options.products == DataType::bfloat16) kernels::newton_schulz<bfloat16>(device, rows, columns, x, options.steps);
      else kernels::newton_schulz<float>(device, rows, columns, x, options.steps);
    } else {
      kernels::newton_schulz<A>(device, rows, columns, x, options.steps);
    }
    const A factor = A(options.scale * std::sqrt(double(rows > columns ? rows : columns)));
    kernels::scale<A>(device, rows * columns, factor, x, x);
  }
};

/// Numerics: in every layout the bits of one rank, if the gradients have the bits of one rank. In 16-bit and 32-bit models
/// momentum, updates and master copies are in float.
using Muon = Optimizer<MuonRule>;

}  // namespace weft::optim
