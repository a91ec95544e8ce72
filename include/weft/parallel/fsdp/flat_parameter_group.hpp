// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters that FullyShardedDataParallel gathers and reduces together, in one flat array of which each rank of a group
// keeps an equal piece, so that one collective moves all of them.

#include <utility>

#include <weft/parallel/fsdp/flat_array.hpp>
#include <weft/parallel/fsdp/flat_gradients.hpp>
#include <weft/parallel/fsdp/flat_values.hpp>
#include <weft/parallel/fsdp/settings.hpp>

namespace weft::detail {

template <class Exec>
class FlatParameterGroup {
 public:
  FlatParameterGroup(ShardRanks ranks, Device<Exec>& device, const ShardSettings& settings)
      : ranks_(std::move(ranks)),
        settings_(&settings),
        values(array_, ranks_, device, settings),
        gradients(array_, ranks_, device, settings) {}
  FlatParameterGroup(const FlatParameterGroup&) = delete;
  FlatParameterGroup& operator=(const FlatParameterGroup&) = delete;

  const ShardRanks& ranks() const { return ranks_; }
  void add(ParameterState* state) { array_.add(state); }

  // Allocates and initialises the pieces. The whole parameters never exist.
  void place() {
    const ParameterState& any = *array_.members.front().state;
    for (const FlatMember& member : array_.members)
      if (member.state->type() != any.type())
        throw_error<UsageError>(
            {"parameters ", any.name(), " and ", member.state->name(), " of one unit differ in their element type"});
    array_.cut(ranks_.sharing);
    gradients.lay_out();
    for (const FlatMember& member : array_.members) keep(member);
    if (!any.info().gradient_only) values.place();
  }
  void begin(bool training) {
    values.begin(training);
    gradients.begin();
    used = false;
  }
  void finish() {
    gradients.finish();
    values.finish();
  }

 private:
  // Tells a parameter which of its elements this rank keeps.
  void keep(const FlatMember& member) const {
    ParameterState &state = *member.state, &any = *array_.members.front().state;
    const FlatCut cut{member.first, array_.piece, array_.ranks};
    const auto [begin, end] = cut.kept_by(array_.rank, state.size());
    state.storage().keep({end - begin, values.kept_type(any), settings_->kept_gradient_type(any),
                          begin != end ? state.info().runs.cut(begin, end) : Runs(), cut, array_.rank});
  }

  FlatArray array_;
  ShardRanks ranks_;
  const ShardSettings* settings_;

 public:
  FlatValues<Exec> values;
  FlatGradients<Exec> gradients;
  bool used = false;  ///< between a unit's two events: several units are, if they are parts of a Module
};

}  // namespace weft::detail

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template class FlatParameterGroup<Kokkos::DefaultHostExecutionSpace>;
}  // namespace weft::detail
#endif
