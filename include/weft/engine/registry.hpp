// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters and dropout sites of a model under construction. Every rank builds the whole model without memory for its
// values, so all ranks detect a name that is used twice and the units that share a parameter; only then does each rank
// allocate the parameters of its stages. A unit uses the parameters that are made or copied while it is built: both register
// themselves, so no layer lists its own.
//
//   Registry registry;
//   registry.begin_unit("block 0");
//   ... Parameter weight(context, "weight", ...); Parameter shared = front->table; ...
//   std::vector<ParameterState*> used = registry.end_unit(unit);   // both

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <weft/core/hash.hpp>
#include <weft/engine/hooks.hpp>

namespace weft::detail {

/// A parameter and the units that use it, in the order of the model (0: front, then the blocks, then the back), each once. One
/// that only other ranks make has none.
struct Registered {
  std::shared_ptr<ParameterState> state;
  std::string unit;  // the unit that made it
  std::vector<std::size_t> uses;
  bool elsewhere = false;  // made by other ranks of ep
};

class Registry {
 public:
  /// `defers`: parameters are allocated later. Else, for a layer alone, only sites and shared layers are recorded.
  explicit Registry(bool defers = true) : defers_(defers) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  /// A parameter was made, and the unit under construction uses it unless it is discarded. True: its maker leaves it unallocated.
  bool add(const std::shared_ptr<ParameterState>& state);
  /// A parameter was copied: the unit under construction uses it.
  void add_use(ParameterState& state) { copied_.push_back(&state); }
  /// Other ranks make a parameter of this name in the unit (an expert): every rank has the names of the whole model.
  void add_elsewhere(std::string name, const Shape& global);
  /// A site that draws random numbers by its path.
  void add_site(const std::string& path, const char* what, double number);
  /// The paths of the sites, each with the unit that has it.
  const std::map<std::string, std::string>& sites() const { return sites_; }

  /// The layer first made under a path (shared_layer); null: none yet. `kind` identifies its type.
  std::shared_ptr<void>& shared(const std::string& path, const void* kind);

  void begin_unit(std::string unit);
  /// The unit with this index is built: returns the parameters that it uses, units before it first, those of one unit by
  /// name. Throws UsageError for two parameters of one name.
  std::vector<ParameterState*> end_unit(std::size_t unit);
  /// A hash of the model so far, equal on all ranks if they make the same model. Experts, which differ between ranks of ep, are
  /// left out.
  std::uint64_t print() const { return print_; }
  /// All units are built: returns the parameters that are used, here or elsewhere.
  std::vector<Registered> used_parameters();

 private:
  void note(const ParameterState& state);
  // Takes the parameters made since the last call, by name and without the discarded ones.
  void take_made();
  WEFT_COLD static std::string both(const std::string& first, const std::string& second) {
    return first == second ? joined({first, ", twice"}) : joined({first, " and ", second});
  }

  struct Shared {
    const void* kind = nullptr;
    std::shared_ptr<void> layer;
  };
  bool defers_;
  std::uint64_t print_ = 0;
  std::string unit_ = "the layer";
  std::map<std::string, Shared> shared_;
  std::vector<std::weak_ptr<ParameterState>> made_;  // since take_made
  std::vector<std::shared_ptr<ParameterState>> elsewhere_;
  std::vector<ParameterState*> copied_;  // since begin_unit
  std::vector<Registered> parameters_;
  std::map<std::string, std::size_t> by_name_;
  std::map<std::string, std::string> sites_;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/registry_impl.hpp>
#endif

#ifdef WEFT_COMPILED
extern template class std::vector<weft::detail::Registered>;
#endif
