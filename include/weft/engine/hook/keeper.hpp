// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of a communication hook in checkpoints: a hook names the arrays and numbers that it keeps for a bucket
// from step to step, in one function for saving and for loading.
//
//   void keep(hook::Bucket& bucket, hook::Keeper& keeper) {
//     keeper.number("steps", steps_);
//     if (error_ || keeper.loads("error")) keeper.array("error", error_ = ..., bucket.elements, bucket.type);
//   }

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/core/text.hpp>
#include <weft/device/arena.hpp>

namespace weft::hook {

class Keeper {
 public:
  /// An array in the device's memory, or a number in the host's.
  struct Kept {
    std::string name;
    weft::detail::Buffer buffer;
    std::int64_t* number = nullptr;
    std::size_t elements = 0;
    DataType type = DataType::int64;
  };

  /// `stored`: whether a checkpoint that is being loaded has this name; empty: nothing is being loaded.
  explicit Keeper(std::function<bool(const std::string&)> stored = {}) : stored_(std::move(stored)) {}

  /// True if a checkpoint is being loaded that has this array: the hook allocates it, if it has not, and names it.
  bool loads(std::string_view name) const { return stored_ && stored_(full(name)); }
  /// An array of this rank alone.
  void array(std::string_view name, weft::detail::Buffer buffer, std::size_t elements, DataType type) {
    kept_.push_back({full(name), std::move(buffer), nullptr, elements, type});
  }
  /// A number; it outlives the call.
  void number(std::string_view name, std::int64_t& value) { kept_.push_back({full(name), nullptr, &value, 1, DataType::int64}); }

  // ---- for weft
  void within(std::string place) { place_ = std::move(place); }
  const std::vector<Kept>& kept() const { return kept_; }

 private:
  std::string full(std::string_view name) const { return weft::detail::joined({place_, name}); }

  std::function<bool(const std::string&)> stored_;
  std::string place_;
  std::vector<Kept> kept_;
};

}  // namespace weft::hook
