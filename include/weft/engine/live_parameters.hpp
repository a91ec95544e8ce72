// SPDX-License-Identifier: Apache-2.0
#pragma once
// The list of the parameters that exist in this process, for messages that name them (engine/parameter_names.hpp). A parameter
// enters it when it is made, and leaves it at its end.

#include <mutex>
#include <thread>
#include <unordered_map>

#include <weft/core/standard.hpp>

namespace weft {

class ParameterState;

namespace detail {

struct LiveParameters {
  std::mutex mutex;
  std::unordered_map<const void*, std::thread::id> threads;  ///< of each ParameterState, the one that made it
};
LiveParameters& live_parameters();

/// Lists a ParameterState from its construction to its end.
class LiveParameter {
 public:
  explicit LiveParameter(const ParameterState& state);
  LiveParameter(const LiveParameter&) = delete;
  LiveParameter& operator=(const LiveParameter&) = delete;
  ~LiveParameter();

 private:
  const ParameterState* state_;
};

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/engine/live_parameters_impl.hpp>
#endif
