// SPDX-License-Identifier: Apache-2.0
#pragma once
// The description of a parameter: its name, its shapes, and the elements of it that are on this rank. Fixed when the parameter is
// made, so that wrappers, optimizers and checkpoints may rely on it.
//
//   state.info().global   // [out, in]
//   state.info().local    // [out / tp, in]

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/scalar.hpp>
#include <weft/engine/initial_values.hpp>
#include <weft/engine/parameter_cut.hpp>
#include <weft/engine/runs.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/tensor/shape.hpp>

namespace weft {

/// A parameter's description, immutable once its ParameterState exists.
struct ParameterInfo {
  std::string name = {};  ///< global: random-number site, checkpoint name; no two parameters of a model have one name
  Shape global = {};      ///< of the whole parameter
  Shape local = {};       ///< of the elements that layers use on this rank
  DataType type = DataType::float32;
  DataType gradient_type = DataType::float32;  ///< accumulate_t of `type`: float for bfloat16
  InitialValues initial = {};
  detail::Runs runs = {};    ///< the local elements' positions in the whole parameter; padding belongs to no run
  detail::AxisCut cut = {};  ///< by which the rules of the parameter cut its elements

  /// Names of the parameter's user-defined axes, for messages.
  std::vector<std::pair<unsigned, std::string_view>> user_axes = {};
  unsigned axes = 0;     ///< axis bits on which the parameter's gradient must have a placement
  unsigned sharded = 0;  ///< axis bits over which the rules of the parameter cut its elements
  unsigned later = 0;    ///< axis bits on which this rank is not the first, which counts the elements that both hold
  /// The extents along `segment_dim` of matrices fused in one (query, key and value); empty: it is one.
  std::vector<std::size_t> segments = {};
  std::size_t segment_dim = 0;
  int replicas = 1;  ///< ranks of tp that hold the same elements of a sharded parameter (key-value heads < tp)
  /// For a parameter on the expert mesh: the ranks of edp. Its gradient is summed over them and not over dp.
  std::optional<Communicator> expert_data = {};
  bool gradient_only = false;  ///< a second use of a parameter: it has no value

  std::size_t size() const { return local.size(); }  ///< elements that layers use
  std::size_t bytes() const { return size() * size_of(type); }
  std::size_t gradient_bytes() const { return size() * size_of(gradient_type); }
  /// The bit of the axis that a data wrapper sums and shards over.
  unsigned data_bit() const { return expert_data ? axis_bit<edp> : axis_bit<dp>; }
};

namespace detail {

/// Names of axis bits for messages, such as "tp, replica".
std::string names_of_axes(const ParameterInfo& info, unsigned axes);

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/engine/parameter_info_impl.hpp>
#endif
