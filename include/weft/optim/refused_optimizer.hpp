// SPDX-License-Identifier: Apache-2.0
#pragma once
// The optimizer of a rule that is none: it has one error, which names the fault. optim/optimizer.hpp includes this header.

#include <cstdint>
#include <vector>

#include <weft/comm/stragglers.hpp>
#include <weft/optim/optimizer.hpp>
#include <weft/optim/update_rule.hpp>

namespace weft::optim {

/// Replaces an optimizer with an invalid Rule, and accepts all arguments: only its own error appears.
template <class Rule>
requires(!UpdateRule<Rule>) class Optimizer<Rule> {
 public:
  using Options = typename detail::RuleOptions<Rule>::type;
  template <class Model>
  explicit Optimizer(Model&, const Options& = {}) {
    detail::refuse_rule<Rule>();
  }
  StepReport step() { return {}; }
  StepReport step(double) { return {}; }
  std::vector<comm::Straggler> slow_ranks() const { return {}; }
  double gradient_norm() { return 0; }
  void refresh() {}
  std::uint64_t steps() const { return 0; }
};

}  // namespace weft::optim
