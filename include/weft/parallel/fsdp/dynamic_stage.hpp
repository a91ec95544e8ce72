// SPDX-License-Identifier: Apache-2.0
#pragma once
// The stage of ZeRO as a choice of the run.
//
//   FullyShardedDataParallel<models::Gpt, zero::Dynamic> model(mesh, config, {.zero = 2});

#include <memory>
#include <string>

#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>

namespace weft::detail {

template <>
struct ShardedDataPolicy<zero::Dynamic> : PlainPolicy {
  using axis = dp;
  using hidden_placement = Invariant<dp>;
  ShardedDataPolicy(const Communicator& comm, DefaultDevice& device, const ModelOptions& options) {
    using Exec = DefaultDevice::execution_space;
    const auto shards = [&](ShardRules rules) { chosen = std::make_unique<FullyShardedHooks<Exec>>(comm, device, options, rules); };
    switch (options.zero) {
      case 0: chosen = std::make_unique<Buckets<Exec>>(comm, device, options); break;
      case 1: shards(zero::Stage1::rules); break;
      case 2: shards(zero::Stage2::rules); break;
      case 3: shards(zero::Stage3::rules); break;
      default: throw_error<UsageError>({"ModelOptions::zero is ", options.zero, ": the stages are 0, 1, 2 and 3"});
    }
  }
  Hooks* hooks() { return chosen.get(); }
  std::unique_ptr<Hooks> chosen;
};

}  // namespace weft::detail
