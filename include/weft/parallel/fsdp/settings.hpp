// SPDX-License-Identifier: Apache-2.0
#pragma once
// The settings of FullyShardedDataParallel's groups: the state that a stage keeps whole, the element types, and the ranks.

#include <cstdint>
#include <memory>
#include <optional>

#include <weft/comm/communicator.hpp>
#include <weft/device/offload_store.hpp>
#include <weft/engine/hooks.hpp>

namespace weft::detail {

// The state that a stage of ZeRO, 1 to 3, keeps whole on every rank.
struct ShardRules {
  bool keeps_values = false, keeps_gradients = false;
  static constexpr ShardRules of_stage(int stage) { return {.keeps_values = stage < 3, .keeps_gradients = stage < 2}; }
};

// The data ranks of some parameters: all of them, those among which one copy is sharded, those that keep the same piece, and the
// neighbours among which gathered values are kept. If gradients are quantised: the ranks of a node, and those of its place in
// every node.
struct ShardRanks {
  Communicator all, sharing, copies, neighbours, node, between;
};

struct ShardSettings {
  ShardRules rules = {};
  std::uint64_t seed = 1;
  bool narrow = false;  // gradients are reduced in bfloat16
  bool quantised = false, secondary = false;
  int quantised_bits = 0;                  // of gradients inside a node, if they are reduced as integers; else 0
  std::shared_ptr<Store> store = nullptr;  // holds the values
  bool rounds = true;                      // sums of 16-bit parameters' gradients may be kept in 16 bits
  std::optional<DataType> gradient = {};   // the type in which sums of gradients are kept

  DataType kept_gradient_type(const ParameterState& state) const;
};

template <class F>
void dispatch_narrow(DataType type, F&& f) {
  if (type == DataType::bfloat16) f(bfloat16{});
  else f(float16{});
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/parallel/fsdp/settings_impl.hpp>
#endif
