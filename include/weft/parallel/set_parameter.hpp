// SPDX-License-Identifier: Apache-2.0
#pragma once
// One whole parameter set by name, wherever the ranks of a model keep its pieces: for weights that a program computes, an
// average of weights, or weights of another framework.
//
//   model.set_parameter("blocks.0.norm.weight", gain);   // all ranks, the same values

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <weft/comm/agree.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/philox.hpp>
#include <weft/device/host_copies.hpp>
#include <weft/engine/parameter_values.hpp>
#include <weft/parallel/whole_parameter.hpp>

namespace weft::detail {

/// The reasons for which a rank cannot take values. A rank that does not hold the parameter has none.
template <class T>
WEFT_COLD std::uint64_t first_out_of_range(const ParameterState& state, std::span<const T> values) {
  if (state.type() != DataType::float16) return 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i]) && !std::isfinite(float(float16(float(values[i]))))) return i + 1;
  return 0;
}

/// The elements that this rank keeps, of the whole parameter's values.
template <class Exec, class T>
WEFT_COLD void write_pieces(Device<Exec>& device, ParameterState& state, std::span<const T> whole) {
  dispatch_real(state.kept_type(), [&](auto zero) {
    using S = decltype(zero);
    std::vector<S> mine(state.kept(), S(0.0f));
    for (const Run& run : state.runs())
      for (std::size_t i = 0; i < run.length; ++i) mine[run.local + i] = S(accumulate_t<S>(whole[run.global + i]));
    send_to_device(device, state.value().get(), mine.data(), mine.size() * sizeof(S));
  });
}

/// Sets the parameter on all ranks of `everyone`, which pass the same whole values. Collective.
template <class Exec, class Stages, class T>
WEFT_COLD void set_whole_parameter(Device<Exec>& device, const Communicator& everyone, Stages& stages, std::string_view name,
                                   std::span<const T> values) {
  std::vector<ParameterState*> mine;
  stages.for_each_state([&](ParameterState& state) {
    if (state.name() == name && !state.info().gradient_only) mine.push_back(&state);
  });
  const std::uint64_t site = site_of(name);
  std::uint64_t facts[] = {stages.parameter_size(name), 0, 0, site, ~site};
  for (const ParameterState* state : mine) {
    facts[1] |= state->storage().store() != nullptr;
    facts[2] = first_out_of_range(*state, values);
  }
  everyone.all_reduce(std::span(facts), Reduction::max);
  if (facts[3] != ~facts[4])
    throw_error<UsageError>({"set_parameter is called by all ranks together, but one sets ", name, " and another another one"});
  if (facts[0] == 0) whole_parameter(device, everyone, stages, name, false, 1);  // refuses the name
  const std::uint64_t words[] = {values.size(), hash_bytes(values.data(), values.size_bytes())};
  if (const auto found = difference(everyone, words))
    throw_error<UsageError>({"set_parameter of ", name, ": rank ", found->rank,
                             " gives other values than rank 0: every rank passes the same whole parameter"});
  if (values.size() != facts[0])
    throw_error<UsageError>({"set_parameter of ", name, ": ", values.size(), " values for a parameter of ", facts[0],
                             ": every rank passes the whole parameter, row-major"});
  if (facts[1])
    throw_error<UsageError>({"set_parameter of ", name,
                             ", whose values ModelOptions::shard.offload keeps in a store: load them from a file, "
                             "hugging_face::load_parameters(file, model, optimizer), which can undo a write that fails"});
  if (facts[2])
    throw_error<UsageError>({"set_parameter of ", name, ": the value at place ", facts[2] - 1,
                             " is finite and not in the model's float16, which ends at 65504"});
  for (ParameterState* state : mine)
    if (state->kept() != 0) write_pieces(device, *state, values);
}

}  // namespace weft::detail
