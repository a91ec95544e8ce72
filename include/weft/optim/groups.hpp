// SPDX-License-Identifier: Apache-2.0
#pragma once
// Groups of parameters with a separate learning rate, decay or rule, chosen by patterns of names.
//
//   optim::AdamW optimizer(model, {.learning_rate = 3e-4, .groups = {{.match = "*.bias", .weight_decay = 0},
//                                                                    {.match = "*.wte.*", .learning_rate = 1e-4}}});

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/name_pattern.hpp>

namespace weft::optim {

/// The parameters whose names match a pattern, with options that replace the optimizer's. A parameter belongs to the first
/// matching group, or uses the optimizer's options if none matches.
struct ParameterGroup {
  std::string match = {};  ///< `*` matches any characters including dots, `?` one character
  /// Replaces the optimizer's rate. step(rate) scales it by the same factor, so a schedule applies to all groups.
  std::optional<double> learning_rate = {};
  std::optional<double> weight_decay = {};
  /// For an optimizer with two rules, such as Muon: "muon" or "adamw". Empty: the optimizer's choice.
  std::string rule = {};
};

namespace detail {

/// The options of all groups: first the optimizer's, then one set per group, with the ratios of the learning rates.
template <class Options>
struct GroupedOptions {
  std::vector<Options> options;
  std::vector<double> ratios;
  std::vector<ParameterGroup> groups;

  WEFT_COLD explicit GroupedOptions(const Options& own) : options{own}, ratios{1} {
    if constexpr (requires { own.groups; }) groups = own.groups;
    for (const ParameterGroup& group : groups) {
      Options changed = own;
      double ratio = 1;
      if (group.learning_rate) {
        if (own.learning_rate == 0)
          throw_error<UsageError>({"group \"", group.match,
                                   "\" has a learning rate and the optimizer's own is 0, so a rate that "
                                   "step() is given has no ratio to it: give the optimizer one"});
        ratio = *group.learning_rate / own.learning_rate;
        changed.learning_rate = *group.learning_rate;
      }
      if (group.weight_decay) {
        if constexpr (requires { changed.weight_decay = 0.0; }) changed.weight_decay = *group.weight_decay;
        else throw_error<UsageError>({"group \"", group.match, "\" has a weight decay, and this optimizer's rule has none"});
      }
      options.push_back(std::move(changed));
      ratios.push_back(ratio);
    }
  }
  /// The index of a parameter's options.
  std::size_t of(std::string_view name) const {
    for (std::size_t k = 0; k < groups.size(); ++k)
      if (weft::detail::matches(groups[k].match, name)) return k + 1;
    return 0;
  }
  /// Throws UsageError for a pattern that matches no parameter.
  void require_matches(const Communicator& everyone, const std::vector<std::string>& names) const {
    std::vector<std::string_view> patterns;
    for (const ParameterGroup& group : groups) patterns.push_back(group.match);
    if (!patterns.empty()) weft::detail::require_matches(everyone, names, patterns, "optimizer groups");
  }
};

}  // namespace detail

}  // namespace weft::optim
