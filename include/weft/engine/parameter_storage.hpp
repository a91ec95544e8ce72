// SPDX-License-Identifier: Apache-2.0
#pragma once
// The storage of a parameter's value: the part that this rank keeps between steps, and the whole local value that layers use.
// Both are one buffer unless data ranks shard the parameter (FullyShardedDataParallel); the kept part may be in a store instead
// (ModelOptions::shard.offload).
//
//   storage.set_value(device.allocate_persistent(info.bytes()));
//   storage.layer_value();   // null while a sharded parameter is released

#include <cstddef>
#include <memory>
#include <utility>

#include <weft/core/scalar.hpp>
#include <weft/device/arena.hpp>
#include <weft/device/offload_store.hpp>
#include <weft/engine/parameter_cut.hpp>
#include <weft/engine/parameter_info.hpp>

namespace weft::detail {

class Hooks;

/// The part of a parameter that a rank keeps between steps if data ranks shard it. Its types are wider than the parameter's if
/// the part is the master copy, and narrower than those in which gradients are added if the sums are rounded.
struct KeptPart {
  std::size_t size = 0;
  DataType type = DataType::float32, gradient_type = DataType::float32;
  Runs runs = {};         ///< its elements in the whole parameter
  FlatCut cut = {};       ///< that made it
  std::size_t place = 0;  ///< of this rank among the ranks that share a copy
};

class ParameterStorage {
 public:
  /// The part that this rank keeps; null while it is in a store, and before the model is complete.
  const Buffer& value() const { return value_; }
  void set_value(Buffer value) { value_ = std::move(value); }
  Buffer exchange_value(Buffer value) { return std::exchange(value_, std::move(value)); }

  /// The value that layers use; null while a sharded parameter is released.
  const Buffer& layer_value() const { return sharder_ ? gathered_ : value_; }

  /// `sharder` keeps a part of the parameter on each data rank, gathers it for layers and allocates its gradient. `others`: axis
  /// bits over which it shards the parameter besides that of data ranks.
  void shard(Hooks& sharder, unsigned others) {
    sharder_ = &sharder;
    others_ = others;
  }
  Hooks* sharder() const { return sharder_; }  ///< null: not sharded over data ranks
  unsigned others() const { return others_; }
  void keep(KeptPart part) { part_ = std::move(part); }
  const KeptPart& kept() const { return part_; }  ///< valid if there is a sharder
  void set_gathered(Buffer value) { gathered_ = std::move(value); }
  void release() { gathered_.reset(); }

  /// From now on the kept part is in `store`, and on the device only while it is used.
  void offload(std::shared_ptr<Store> store, std::size_t record) {
    store_ = std::move(store);
    record_ = record;
  }
  const std::shared_ptr<Store>& store() const { return store_; }  ///< null: on the device
  std::size_t record() const { return record_; }

  /// Whether this rank counts the parameter in norms and writes it in checkpoints: one of the ranks that hold the same elements
  /// does.
  bool counted() const { return counted_; }
  void count_elsewhere() { counted_ = false; }

 private:
  Buffer value_, gathered_;
  Hooks* sharder_ = nullptr;
  unsigned others_ = 0;
  KeptPart part_;
  std::shared_ptr<Store> store_;
  std::size_t record_ = 0;
  bool counted_ = true;
};

}  // namespace weft::detail
