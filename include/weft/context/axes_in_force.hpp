// SPDX-License-Identifier: Apache-2.0
#pragma once
// The axes of a context without their types: name, ranks, and whether ranks have different sequences. The engine
// reads degrees and runs collectives through it, so the engine is compiled once for all contexts.
//
//   const AxesInForce axes(context);
//   axes.size(pp{}), axes.comm(tp{}), axes.for_each_data_axis([](const Communicator& ranks) { ... });

#include <cstddef>
#include <string_view>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/context/context.hpp>
#include <weft/core/text.hpp>
#include <weft/mesh/axis.hpp>

namespace weft::detail {

class AxesInForce {
 public:
  struct One {
    std::string_view name;
    int id;
    bool data;    ///< its ranks have different sequences
    bool placed;  ///< it places tensors of the dense mesh; false for axes of the expert mesh
    Communicator ranks;
  };

  AxesInForce() = default;
  template <class Context>
  WEFT_COLD explicit AxesInForce(const Context& context) {
    Context::for_each_axis([&](auto axis) { add(context, axis, true); });
    const auto add_expert_axis = [&]<class A>([[maybe_unused]] A axis) {
      if constexpr (Context::has(A{}) && !Context::places(A{})) add(context, axis, false);
    };
    add_expert_axis(ep{});
    add_expert_axis(etp{});
    add_expert_axis(edp{});
  }

  template <Axis A>
  bool has(A) const {
    return find(A::id) != nullptr;
  }
  /// The degree of the axis; 1 if the axis is not in force.
  template <Axis A>
  std::size_t size(A) const {
    const One* const axis = find(A::id);
    return axis ? std::size_t(axis->ranks.size()) : 1;
  }
  /// This rank's coordinate on the axis; 0 if the axis is not in force.
  template <Axis A>
  std::size_t rank(A) const {
    const One* const axis = find(A::id);
    return axis ? std::size_t(axis->ranks.rank()) : 0;
  }
  /// The ranks along the axis; this rank alone if the axis is not in force.
  template <Axis A>
  Communicator comm(A) const {
    const One* const axis = find(A::id);
    return axis ? axis->ranks : Communicator();
  }

  /// The axis; null if it is not in force.
  template <Axis A>
  const One* one(A) const {
    return find(A::id);
  }
  /// Calls f(axis) for each axis that places tensors, outermost wrapper first.
  template <class F>
  void for_each(F&& f) const {
    for (const One& axis : axes_)
      if (axis.placed) f(axis);
  }
  /// Calls f(ranks) for each axis whose ranks have different sequences.
  template <class F>
  void for_each_data_axis(F&& f) const {
    for_each([&](const One& axis) {
      if (axis.data) f(axis.ranks);
    });
  }

 private:
  template <class Context, class A>
  void add(const Context& context, A axis, bool placed) {
    axes_.push_back({A::name, A::id, is_data_axis<A>, placed, context.comm(axis)});
  }
  const One* find(int id) const {
    for (const One& axis : axes_)
      if (axis.id == id) return &axis;
    return nullptr;
  }

  std::vector<One> axes_;
};

}  // namespace weft::detail

#ifdef WEFT_COMPILED
extern template class std::vector<weft::detail::AxesInForce::One>;
#endif
