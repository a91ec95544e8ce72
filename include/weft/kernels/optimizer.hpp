// SPDX-License-Identifier: Apache-2.0
#pragma once
// Updates of parameters, fused into one pass over memory, and the sum of squares for gradient clipping. PyTorch's formulas: AdamW
// (Loshchilov and Hutter 2019) with decoupled decay, SGD with momentum.
//
//   kernels::adamw_update(device, n, parameter, master, gradient, m, v, {.learning_rate = 3e-4});

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/device/host_copies.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// *out = sum of g[i]^2, in double over blocks of a fixed size: the same bits for any number of threads on a host. NaN and
/// infinity propagate. `out` lies in the device's memory space.
template <class T, class Exec>
void squared_norm(Device<Exec>& device, std::size_t n, const T* g, double* out) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  detail::sum_blocks(
      device, {"gradient_norm", n * sizeof(T)}, n, out, KOKKOS_LAMBDA(std::size_t begin, std::size_t end) {
        double total = 0;
        for (std::size_t i = begin; i < end;) {  // short sums in float, long ones in double
          const std::size_t stop = end - i < 1024 ? end : i + 1024;
          V even = V(A(0)), odd = V(A(0));
          for (; i + 2 * V::size <= stop; i += 2 * V::size) {
            const V a = V::load(g + i), b = V::load(g + i + V::size);
            even = even + a * a;
            odd = odd + b * b;
          }
          for (; i < stop; i += V::size) {
            const V a = V::load(g + i, stop - i);
            even = even + a * a;
          }
          total += double(sum(even + odd));
          i = stop;
        }
        return total;
      });
}

/// One of the arrays of squared_norms.
template <class T>
struct NormPart {
  const T* data;
  std::size_t n;
  bool operator==(const NormPart&) const = default;
};

namespace detail {
/// Where the pieces of the arrays begin, in the device's memory; kept from step to step, for the arrays stay where they are.
template <class T>
struct NormTable {
  static constexpr std::size_t piece = 16384;  // elements that a team of lanes adds up
  struct Piece {
    const T* data;
    std::size_t n;
  };
  std::vector<NormPart<T>> parts;
  std::vector<Piece> pieces;
  std::size_t elements = 0;        // of all parts
  std::vector<std::size_t> first;  // piece of each part, and the number of all
  weft::detail::Buffer on_device;  // pieces, then first

  template <class Exec>
  void update(Device<Exec>& device, std::span<const NormPart<T>> of) {
    if (std::equal(parts.begin(), parts.end(), of.begin(), of.end())) return;
    parts.assign(of.begin(), of.end());
    pieces.clear(), first.assign(1, 0), elements = 0;
    for (const auto& [data, n] : parts) {
      for (std::size_t i = 0; i < n; i += piece) pieces.push_back({data + i, n - i < piece ? n - i : piece});
      first.push_back(pieces.size()), elements += n;
    }
    const std::size_t bytes = pieces.size() * sizeof(Piece), words = first.size() * sizeof(std::size_t);
    on_device = device.allocate_persistent(bytes + words);
    weft::detail::copy_to_device(device, on_device.get(), pieces.data(), bytes);
    weft::detail::copy_to_device(device, static_cast<char*>(on_device.get()) + bytes, first.data(), words);
    device.exec().fence("weft: the table of squared_norms");
  }
};
}  // namespace detail

/// out[p] = the sum of the squares of part p, as squared_norm computes it: on devices in two launches for all parts.
template <class T, class Exec>
requires(detail::on_host<Exec>) void squared_norms(Device<Exec>& device, std::span<const NormPart<T>> parts, double* out) {
  for (std::size_t p = 0; p < parts.size(); ++p) squared_norm(device, parts[p].n, parts[p].data, out + p);
}
template <class T, class Exec>
requires(!detail::on_host<Exec>) void squared_norms(Device<Exec>& device, std::span<const NormPart<T>> parts, double* out) {
  using V = detail::lanes_for<Exec, T>;
  using Team = detail::row_team<Exec>;
  using Table = detail::NormTable<T>;
  using Piece = typename Table::Piece;
  Table& table = device.template cache<Table>();
  table.update(device, parts);
  const std::size_t count = table.pieces.size();
  const weft::detail::Buffer sums = device.allocate((count + 1) * sizeof(double));
  double* const partial = static_cast<double*>(sums.get());
  const Piece* const pieces = static_cast<const Piece*>(table.on_device.get());
  const std::size_t* const first = reinterpret_cast<const std::size_t*>(pieces + count);
  detail::for_each_row(
      device, {"gradient_norm", table.elements * sizeof(T)}, count, KOKKOS_LAMBDA(std::size_t i, Team team) {
        const T* g = pieces[i].data;
        const double total = team.template total<double>((pieces[i].n + V::size - 1) / V::size, [&](std::size_t j, double& part) {
          const V x = V::load(g + j * V::size, pieces[i].n - j * V::size);
          part += double(sum(x * x));
        });
        if (team.leads()) partial[i] = total;
      });
  detail::for_each_row(
      device, {"gradient_norm", (count + parts.size()) * sizeof(double)}, parts.size(), KOKKOS_LAMBDA(std::size_t p, Team team) {
        const double* from = partial + first[p];
        const double total =
            team.template total<double>(first[p + 1] - first[p], [&](std::size_t i, double& part) { part += from[i]; });
        if (team.leads()) out[p] = total;
      });
}

namespace detail {
/// That an update reads and writes of each element of a parameter and its master copy; either may be null.
template <class P>
std::size_t weight_bytes(const P* parameter, const accumulate_t<P>* master) {
  constexpr std::size_t reads = std::is_same_v<P, accumulate_t<P>> ? 0 : 1;  // see values_before
  if (master == nullptr) return 2 * sizeof(P);
  return 2 * sizeof(*master) + (parameter == nullptr ? 0 : (reads + 1) * sizeof(P));
}

/// The values from which an update starts: those of the master copy. If a 16-bit parameter is not the rounding of its master
/// value, the program wrote the parameter after the last update, and the written value counts.
template <class V, class P>
KOKKOS_FORCEINLINE_FUNCTION V values_before(const P* parameter, const accumulate_t<P>* master, std::size_t i, std::size_t count) {
  if (master == nullptr) return V::load(parameter + i, count);
  const V old = V::load(master + i, count);
  if constexpr (std::is_same_v<P, accumulate_t<P>>) return old;
  else return parameter == nullptr ? old : V::unless_written(old, parameter + i, count);
}
}  // namespace detail

/// Options of adamw_update. The gradient is first multiplied by gradient_scale (clipping).
struct AdamwOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double bias_correction1 = 1;  ///< 1 - beta1^step
  double bias_correction2 = 1;  ///< 1 - beta2^step
  double gradient_scale = 1;
};

/// One AdamW step on n elements. `master` holds the parameter in accumulate_t<P> if P is narrower; otherwise it is null and the
/// parameter itself is updated. With a master copy `parameter` may be null; an element of `parameter` that is not the rounding of
/// its master value was written by the program, and the update starts from it. m and v are the moments.
template <class P, class G, class Exec>
void adamw_update(Device<Exec>& device, std::size_t n, P* parameter, accumulate_t<P>* master, const G* gradient,
                  accumulate_t<P>* m, accumulate_t<P>* v, const AdamwOptions& options) {
  using V = detail::lanes_for<Exec, accumulate_t<P>>;  // most of what moves is in accumulate_t
  using A = accumulate_t<P>;
  const A scale = A(options.gradient_scale), beta1 = A(options.beta1), beta2 = A(options.beta2);
  const A one_less_beta1 = A(1 - options.beta1), one_less_beta2 = A(1 - options.beta2);
  const A keep = A(1 - options.learning_rate * options.weight_decay), step = A(options.learning_rate / options.bias_correction1);
  const A correction = A(1 / std::sqrt(options.bias_correction2)), epsilon = A(options.epsilon);
  detail::for_lanes<V>(
      device, {"optimizer", n * (sizeof(G) + 4 * sizeof(A) + detail::weight_bytes(parameter, master))}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        const V g = V(scale) * V::load(gradient + i, count);
        const V first = V(beta1) * V::load(m + i, count) + V(one_less_beta1) * g;
        const V second = V(beta2) * V::load(v + i, count) + V(one_less_beta2) * g * g;
        const V old = detail::values_before<V>(parameter, master, i, count);
        const V updated = V(keep) * old - V(step) * first / (sqrt(second) * V(correction) + V(epsilon));
        first.store(m + i, count);
        second.store(v + i, count);
        if (parameter != nullptr) updated.store(parameter + i, count);
        if (master != nullptr) updated.store(master + i, count);
      });
}

/// Options of sgd_update. The gradient is first multiplied by gradient_scale (clipping).
struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  double gradient_scale = 1;
};

/// One SGD step on n elements: g += decay * p; buffer = momentum * buffer + g; p -= rate * (nesterov ? g + momentum * buffer :
/// buffer). `momentum` may be null if options.momentum is 0; otherwise it starts at 0. `master` is the same as in adamw_update.
template <class P, class G, class Exec>
void sgd_update(Device<Exec>& device, std::size_t n, P* parameter, accumulate_t<P>* master, const G* gradient,
                accumulate_t<P>* momentum, const SgdOptions& options) {
  using V = detail::lanes_for<Exec, accumulate_t<P>>;  // most of what moves is in accumulate_t
  using A = accumulate_t<P>;
  const A scale = A(options.gradient_scale), rate = A(options.learning_rate), decay = A(options.weight_decay);
  const A factor = A(options.momentum);
  const bool nesterov = options.nesterov;
  detail::for_lanes<V>(
      device,
      {"optimizer", n * (sizeof(G) + (momentum == nullptr ? 0 : 2) * sizeof(A) + detail::weight_bytes(parameter, master))}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        const V old = detail::values_before<V>(parameter, master, i, count);
        V g = V(scale) * V::load(gradient + i, count) + V(decay) * old;
        if (momentum != nullptr) {
          const V buffer = V(factor) * V::load(momentum + i, count) + g;
          buffer.store(momentum + i, count);
          g = nesterov ? g + V(factor) * buffer : buffer;
        }
        const V updated = old - V(rate) * g;
        if (parameter != nullptr) updated.store(parameter + i, count);
        if (master != nullptr) updated.store(master + i, count);
      });
}

/// Momentum and the direction of an update on n elements: buffer = momentum * buffer + g; direction = nesterov ? g + momentum *
/// buffer : buffer, with g = gradient_scale * gradient. The buffer starts at 0.
template <class A, class Exec>
void momentum_direction(Device<Exec>& device, std::size_t n, const A* gradient, A* buffer, A* direction, double momentum,
                        bool nesterov, double gradient_scale) {
  using V = detail::lanes_for<Exec, A>;
  const A scale = A(gradient_scale), factor = A(momentum);
  detail::for_lanes<V>(
      device, {"optimizer", 4 * n * sizeof(A)}, n, KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        const V g = V(scale) * V::load(gradient + i, count);
        const V sum = V(factor) * V::load(buffer + i, count) + g;
        sum.store(buffer + i, count);
        (nesterov ? g + V(factor) * sum : sum).store(direction + i, count);
      });
}

/// p = keep * p - step * direction on n elements; `parameter` and `master` as in adamw_update.
template <class P, class Exec>
void direction_update(Device<Exec>& device, std::size_t n, P* parameter, accumulate_t<P>* master,
                      const accumulate_t<P>* direction, double keep, double step) {
  using V = detail::lanes_for<Exec, P>;
  using A = accumulate_t<P>;
  const A kept = A(keep), length = A(step);
  detail::for_lanes<V>(
      device, {"optimizer", n * (sizeof(A) + detail::weight_bytes(parameter, master))}, n,
      KOKKOS_LAMBDA(std::size_t i, std::size_t count) {
        const V old = detail::values_before<V>(parameter, master, i, count);
        const V updated = V(kept) * old - V(length) * V::load(direction + i, count);
        if (parameter != nullptr) updated.store(parameter + i, count);
        if (master != nullptr) updated.store(master + i, count);
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
