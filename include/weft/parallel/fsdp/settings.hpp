// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the groups of FullyShardedDataParallel are told: what a stage keeps, in which types, over which ranks.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include <weft/comm/communicator.hpp>
#include <weft/core/list.hpp>
#include <weft/layer/hooks.hpp>
#include <weft/device/offload_store.hpp>

namespace weft::detail {

// What a stage of ZeRO keeps whole on every rank.
struct ShardRules {
  bool keeps_values = false, keeps_gradients = false;
};

// The runs of the elements [begin, end), counted from `begin`.
inline List<Run> cut_runs(const List<Run>& runs, std::size_t begin, std::size_t end) {
  List<Run> cut;
  for (const Run& run : runs) {
    const std::size_t first = std::max(begin, run.local), last = std::min(end, run.local + run.length);
    if (first < last) cut.push_back({first - begin, run.global + (first - run.local), last - first, run.owned, run.shared});
  }
  return cut;
}

// The data ranks of some parameters: all of them, those that share one copy out, those that keep the same piece, and the
// neighbours that keep gathered values among them.
struct ShardRanks {
  Communicator all, sharing, copies, neighbours;
};

struct ShardSettings {
  ShardRules rules = {};
  std::uint64_t seed = 1;
  bool narrow = false;  // gradients are reduced in bfloat16
  bool quantised = false, secondary = false;
  std::shared_ptr<Store> store = nullptr;  // of the values
  bool rounds = true;  // sums may be kept in the type of a parameter of 16 bits
  std::optional<DataType> gradient = {};  // in which sums of gradients are kept

  DataType kept_gradient_type(const ParameterState& state) const {
    if (!gradient) return rules.keeps_values && rounds ? state.type() : state.gradient_type();
    if (*gradient != state.type() && *gradient != state.gradient_type())
      throw_error<UsageError>({"ModelOptions::gradient is ", name_of(*gradient), ": gradients of parameters in ", name_of(state.type()), " are kept in ", name_of(state.gradient_type()),
                               state.type() == state.gradient_type() ? "" : " or ", state.type() == state.gradient_type() ? "" : name_of(state.type())});
    return *gradient;
  }
};

template <class F>
void dispatch_narrow(DataType type, F&& f) {
  if (type == DataType::bfloat16) f(bfloat16{});
  else f(float16{});
}

}  // namespace weft::detail
