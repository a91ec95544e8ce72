// SPDX-License-Identifier: Apache-2.0
#pragma once
// The calls of a rule in the types of a model's parameters. The types are fixed when an optimizer is created; the rest of the
// optimizer is compiled once for all element types.
//
//   const Parts parts = parts_of<MuonRule, float, Exec>();
//   parts.prepare(device, slot, options, gradient_scale, step, arrays);

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/device/device.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/optim/matrix_exchange.hpp>
#include <weft/optim/slot.hpp>
#include <weft/optim/update_rule.hpp>

namespace weft::optim::detail {

/// A slot in the types of the rule while the rule runs, independent of the stored types.
struct LentSlot {
  Slot& slot;
  weft::detail::Buffer gradient, master;
  LentSlot(Slot& to, weft::detail::Buffer wide) : slot(to), gradient(to.state->gradients().exchange_buffer(std::move(wide))) {
    if (to.state->kept_type() != to.state->type()) slot.master = master = to.state->storage().exchange_value(nullptr);
  }
  LentSlot(const LentSlot&) = delete;
  ~LentSlot() {
    slot.state->gradients().set_buffer(std::move(gradient));
    if (!master) return;
    slot.master.reset();
    slot.state->storage().set_value(std::move(master));
  }
};

template <class Options>
struct Transformed {
  Matrix matrix;
  const Options* options;
};

/// A transform of a piece; `of` returns its parameter and options.
template <class Options, class Exec>
struct TransformCall {
  const void* optimizer;
  void (*transform)(Device<Exec>&, const Matrix&, const Options&, void*);
  Transformed<Options> (*of)(const void* optimizer, std::size_t piece);
};

/// The parts of a rule that needs whole rows or matrices, for the model's element type.
template <class Options, class Exec>
struct Parts {
  void (*prepare)(Device<Exec>&, Slot&, const Options&, double, std::uint64_t, void*) = nullptr;
  void (*transform)(Device<Exec>&, const Matrix&, const Options&, void*) = nullptr;
  void (*apply)(Device<Exec>&, Slot&, const Options&, double, std::uint64_t, const void*) = nullptr;
  void (*exchange)(const MatrixExchange&, Device<Exec>&, const std::vector<char>&, const std::vector<weft::detail::Buffer>&,
                   std::size_t, std::size_t, const TransformCall<Options, Exec>&) = nullptr;
};
template <class Rule, class P, class Exec>
Parts<typename Rule::Options, Exec> parts_of() {
  using Options = typename Rule::Options;
  using A = accumulate_t<P>;
  return {[](Device<Exec>& device, Slot& slot, const Options& options, double scale, std::uint64_t step, void* arrays) {
            Rule::template prepare<P, Exec>(device, slot, options, scale, step, static_cast<A*>(arrays));
          },
          [](Device<Exec>& device, const Matrix& matrix, const Options& options, void* arrays) {
            Rule::template transform<A, Exec>(device, matrix, options, static_cast<A*>(arrays));
          },
          [](Device<Exec>& device, Slot& slot, const Options& options, double rate, std::uint64_t step, const void* arrays) {
            Rule::template apply<P, Exec>(device, slot, options, rate, step, static_cast<const A*>(arrays));
          },
          [](const MatrixExchange& exchange, Device<Exec>& device, const std::vector<char>& due,
             const std::vector<weft::detail::Buffer>& arrays, std::size_t sent, std::size_t returned,
             const TransformCall<Options, Exec>& call) {
            exchange.template run<A>(device, due, arrays, sent, returned,
                                     [&](std::size_t piece, std::size_t rows, std::size_t columns, A* whole) {
                                       Transformed<Options> of = call.of(call.optimizer, piece);
                                       of.matrix.rows = rows;
                                       of.matrix.columns = columns;
                                       call.transform(device, of.matrix, *of.options, whole);
                                     });
          }};
}

}  // namespace weft::optim::detail
