// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters and dropout sites of a model while it is built. Every rank builds the whole model without room for its values, so all
// ranks see alike which name is made twice, which parameter is shared by which units, and which is never visited; only then does each
// rank make those that its stages use.

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/hash.hpp>
#include <weft/core/list.hpp>
#include <weft/layer/hooks.hpp>

namespace weft::detail {

/// A parameter and the units that use it, in the order of the model (0: front, then the blocks, then the back), each once.
struct Registered {
  std::shared_ptr<ParameterState> state;
  std::string unit;  // in which it was made
  List<std::size_t> uses;
  long handles = 1;  // before the unit that is being built; the first is the registry's
};

class Registry {
 public:
  /// `defers`: parameters get their room later. Else, for one layer alone, only sites and shared layers are noted.
  explicit Registry(bool defers = true) : defers_(defers) {}

  /// A parameter was made. True: its maker leaves it without room.
  WEFT_COLD bool add(const std::shared_ptr<ParameterState>& state) {
    if (defers_) made_.push_back({state, unit_, {}, 1});
    return defers_;
  }
  /// A place that draws random numbers by its path.
  WEFT_COLD void add_site(const std::string& path, const char* what, double number) {
    print_ = hash_of(hash_of(print_, hash_bytes(path.data(), path.size())), std::bit_cast<std::uint64_t>(number));
    const auto [at, added] = sites_.try_emplace(path, unit_);
    if (!added)
      throw_error<UsageError>({"two ", what, " under one path, ", path.empty() ? "the model's own" : path, " (", both(at->second, unit_), "): they would draw the same mask; give each a path of its own, context / \"name\""});
  }

  /// What was first made under a path (shared_layer); null: nothing yet. `kind` tells types apart.
  WEFT_COLD std::shared_ptr<void>& shared(const std::string& path, const void* kind) {
    Shared& shared = shared_[path];
    if (shared.kind != nullptr && shared.kind != kind) throw_error<UsageError>({"shared_layer ", path, " is asked for as two types of layer"});
    shared.kind = kind;
    return shared.layer;
  }

  WEFT_COLD void begin(std::string unit) {
    unit_ = std::move(unit);
    for (Registered& entry : made_) entry.handles = entry.state.use_count();
  }
  /// The unit with this index is built; `visited`: what its for_each_parameter shows, each once. Throws UsageError for two parameters of
  /// one name, and for one that the unit holds and does not show.
  WEFT_COLD void end(std::size_t unit, const List<ParameterState*>& visited) {
    for (; checked_ < made_.size(); ++checked_) {
      Registered& entry = made_[checked_];
      if (entry.state.use_count() == 1) continue;  // made and thrown away
      const auto [at, added] = by_name_.try_emplace(entry.state->name(), checked_);
      note(*entry.state);
      if (!added)
        throw_error<UsageError>({"two parameters named ", entry.state->name(), ", made by ", both(made_[at->second].unit, entry.unit),
                                 ": a name is one parameter. Give each a path of its own (context / \"blocks\" / std::to_string(index)), or share the first one by handing on a copy of "
                                 "its Parameter"});
    }
    for (ParameterState* state : visited) {
      const auto at = by_name_.find(state->name());
      if (at == by_name_.end() || made_[at->second].state.get() != state)
        throw_error<UsageError>({"parameter ", state->name(), " of ", unit_, " was not made with the model's context: make it in make_front, make_block or make_back"});
      made_[at->second].uses.push_back(unit);
    }
    for (const Registered& entry : made_)
      if (entry.state.use_count() > entry.handles && (entry.uses.empty() || entry.uses.back() != unit))
        throw_error<UsageError>({unit_, " holds parameter ", entry.state->name(), ", but its for_each_parameter does not visit it, so nothing would bring it there, sum its gradient or train it: visit it in every unit that uses it"});
  }
  /// A hash of what was made so far, the same on all ranks if they make the same model: experts, which ranks of ep have each their own, are
  /// left out.
  std::uint64_t print() const { return print_; }
  /// All units are built.
  WEFT_COLD List<Registered> finish() {
    List<Registered> all;
    for (Registered& entry : made_)
      if (!entry.uses.empty()) all.push_back(std::move(entry));
    made_.clear();
    shared_.clear();
    return all;
  }

 private:
  void note(const ParameterState& state) {
    if (state.info().expert_data) return;
    print_ = hash_of(print_, hash_bytes(state.name().data(), state.name().size()));
    for (std::size_t dim = 0; dim < state.global().rank(); ++dim) print_ = hash_of(print_, state.global()[dim]);
    print_ = hash_of(hash_of(print_, std::uint64_t(state.info().initial.kind)), std::bit_cast<std::uint64_t>(state.info().initial.value));
  }
  static std::string both(const std::string& first, const std::string& second) { return first == second ? first + ", twice" : first + " and " + second; }

  struct Shared {
    const void* kind = nullptr;
    std::shared_ptr<void> layer;
  };
  bool defers_;
  std::uint64_t print_ = 0;
  std::string unit_ = "the layer";
  std::map<std::string, Shared> shared_;
  List<Registered> made_;
  std::size_t checked_ = 0;
  std::map<std::string, std::size_t> by_name_;
  std::map<std::string, std::string> sites_;
};

}  // namespace weft::detail
