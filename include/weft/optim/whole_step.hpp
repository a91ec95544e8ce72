// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of an optimizer for rules that need whole rows or matrices: the parameters that they transform, the plan by which
// ranks gather them, and their step. Definitions of members declared in optim/optimizer.hpp, which includes this header.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/engine/proof_parameters.hpp>
#include <weft/optim/matrix_exchange.hpp>
#include <weft/optim/optimizer.hpp>
#include <weft/optim/rule_parts.hpp>

namespace weft::optim {

template <class Rule>
void Optimizer<Rule>::require_whole(const ParameterState& state) {
  if (state.local().size() == state.global().size()) return;
  std::string axes;
  const std::pair<unsigned, std::string_view> cutting[] = {{axis_bit<tp>, tp::name},
                                                           {axis_bit<etp>, etp::name},
                                                           {axis_bit<cp>, cp::name},
                                                           {axis_bit<ep>, ep::name},
                                                           {axis_bit<pp>, pp::name}};
  for (const auto& [bit, name] : cutting)
    if (state.sharded() & bit) weft::detail::append_to(axes, {axes.empty() ? "" : " and ", name});
  throw_error<UsageError>({"this optimizer's rule is not elementwise and ", state.name(), " ", state.global().text(),
                           " is cut over ", axes.empty() ? std::string("ranks") : axes, ": this rank holds ",
                           state.local().text(), "; use degree 1 there, or an elementwise rule"});
}

template <class Rule>
bool Optimizer<Rule>::takes_whole([[maybe_unused]] const Slot& slot, [[maybe_unused]] bool inner) const {
  const std::string named = slot.group == 0 ? std::string() : grouped_.groups[slot.group - 1].rule;
  if constexpr (requires { Rule::rules; }) {
    if (named == Rule::rules[0]) {
      if (slot.state->global().rank() < 2)
        throw_error<UsageError>({"group \"", grouped_.groups[slot.group - 1].match, "\" asks for the rule \"", named, "\" for ",
                                 slot.state->name(), " ", slot.state->global().text(), ", which is no matrix: \"", Rule::rules[1],
                                 "\" updates vectors"});
      return true;
    }
    if (named == Rule::rules[1]) return false;
    if (!named.empty())
      throw_error<UsageError>({"group \"", grouped_.groups[slot.group - 1].match, "\" asks for the rule \"", named,
                               "\": this optimizer's are \"", Rule::rules[0], "\" and \"", Rule::rules[1], "\""});
    return Rule::takes_whole(*slot.state, inner);
  } else {
    if (!named.empty())
      throw_error<UsageError>({"group \"", grouped_.groups[slot.group - 1].match, "\" asks for the rule \"", named,
                               "\", and this optimizer has one rule: leave it out, or use an optimizer of two, such as Muon"});
    return detail::is_served<Rule>;
  }
}

template <class Rule>
void Optimizer<Rule>::serve(const mesh_layout::RankGrids& grids) {
  std::vector<detail::MatrixPiece> pieces;
  std::vector<weft::detail::ParameterPieces> held;
  for (std::size_t k = 0; k < slots_.size(); ++k) {
    const Slot& slot = slots_[k];
    if (!slot.whole) continue;
    const ParameterState& state = *slot.state;
    if (store_)
      throw_error<UsageError>({"this optimizer's rule needs ",
                               detail::needs_of<Rule> == Needs::rows ? "whole rows" : "whole matrices", " and the state of ",
                               state.name(),
                               " is offloaded (ModelOptions::shard.offload), which is updated piece by piece: leave offload out, "
                               "or use an elementwise rule, such as AdamW's"});
    const std::size_t rows = state.global().rank() > 1 ? state.global()[0] : 1;
    pieces.push_back({&state, rows, state.global().size() / rows, detail::needs_of<Rule> == Needs::rows});
    if constexpr (requires { Rule::workspace(state); }) pieces.back().workspace = Rule::workspace(state);
    if constexpr (detail::has_home<Rule>)
      for (const std::size_t elements : Rule::home_elements(state)) pieces.back().home += elements;
    held.push_back(weft::detail::pieces_of(state, grids, std::size_t(communicator_.rank())));
    served_.push_back(k);
  }
  Work work = Work::home;
  static_assert(!detail::has_home<Rule> || detail::needs_of<Rule> == Needs::matrix,
                "weft: this update rule keeps arrays at the homes of matrices (home_names), and rows have no home: declare "
                "Needs::matrix; see Rule in this class' template arguments");
  if constexpr (requires { options_.work; } && !detail::has_home<Rule>) work = options_.work;
  const std::size_t ranks = std::size_t(communicator_.size());
  if (Rehearsal* const notes = device_->rehearsal(); notes != nullptr && work == Work::home && ranks == std::size_t(notes->ranks))
    notes->fullest = int(detail::fullest_rank(pieces, held, ranks));
  exchange_.emplace(communicator_, std::move(pieces), held, work);
}

template <class Rule>
void Optimizer<Rule>::make_state(Slot& slot) {
  slot.state->claim(token_);
  Slot made = make_(*this, *slot.state);
  made.group = slot.group;
  made.whole = slot.whole;
  slot = std::move(made);
  make_home(slot);
}

template <class Rule>
Slot Optimizer<Rule>::without_state(const Slot& slot) {
  Slot bare = Slot::without_state(*slot.state);
  bare.group = slot.group;
  bare.whole = slot.whole;
  return bare;
}

template <class Rule>
void Optimizer<Rule>::make_home([[maybe_unused]] Slot& slot) {
  if constexpr (detail::has_home<Rule>) {
    const auto served = std::find(served_.begin(), served_.end(), std::size_t(&slot - slots_.data()));
    if (served == served_.end() || !exchange_->works(std::size_t(served - served_.begin()))) return;
    for (const std::size_t elements : Rule::home_elements(*slot.state)) {
      const std::size_t bytes = elements * size_of(slot.state->gradient_type());
      weft::detail::Buffer& array = slot.home.emplace_back();
      if (elements == 0) continue;
      array = device_->allocate_persistent(bytes, MemoryCategory::optimizer_state);
      kernels::fill(*device_, bytes / sizeof(float), static_cast<float*>(array.get()), 0.0f);  // double's zero has the same bits
    }
  }
}

template <class Rule>
void Optimizer<Rule>::prove_home([[maybe_unused]] weft::detail::Proof& proof) {
  if constexpr (detail::has_home<Rule>) {
    std::size_t bytes = 0;  // arrays of bytes, which are the first
    if constexpr (requires { Rule::home_bytes; }) bytes = Rule::home_bytes;
    for (const Slot& slot : slots_)
      for (std::size_t k = 0; k < slot.home.size(); ++k)
        if (slot.home[k])
          weft::detail::prove_kept(*device_, proof, this, *slot.state, Rule::home_names[k], slot.home[k],
                                   Rule::home_elements(*slot.state)[k], k < bytes);
  }
}

template <class Rule>
void Optimizer<Rule>::step_whole(double learning_rate, double scale) {
  constexpr std::size_t sent = detail::sent_by<Rule>, returned = detail::returned_to<Rule>;
  std::vector<char> due(served_.size());
  std::vector<weft::detail::Buffer> arrays(served_.size());
  for (std::size_t k = 0; k < served_.size(); ++k) {
    Slot& slot = slots_[served_[k]];
    if (!(due[k] = slot.due())) continue;
    arrays[k] = device_->allocate(slot.state->kept() * sent * size_of(slot.state->gradient_type()));
    const detail::LentSlot lent(slot, wide_gradient(*slot.state));
    parts_.prepare(*device_, slot, grouped_.options[slot.group], scale, steps_ + 1 - slot.begun, arrays[k].get());
  }
  const detail::TransformCall<Options, Exec> transform{
      this, parts_.transform, [](const void* self, std::size_t piece) -> detail::Transformed<Options> {
        const auto& optimizer = *static_cast<const Optimizer*>(self);
        const Slot& slot = optimizer.slots_[optimizer.served_[piece]];
        return {Matrix{slot.state, 0, 0, optimizer.steps_ + 1 - slot.begun, slot.home}, &optimizer.grouped_.options[slot.group]};
      }};
  parts_.exchange(*exchange_, *device_, due, arrays, sent, returned, transform);
  for (std::size_t k = 0; k < served_.size(); ++k) {
    if (!due[k]) continue;
    Slot& slot = slots_[served_[k]];
    const detail::LentSlot lent(slot, wide_gradient(*slot.state));
    parts_.apply(*device_, slot, grouped_.options[slot.group], learning_rate * grouped_.ratios[slot.group],
                 steps_ + 1 - slot.begun, arrays[k].get());
    arrays[k].reset();
  }
}

}  // namespace weft::optim
