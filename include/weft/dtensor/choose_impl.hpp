// SPDX-License-Identifier: Apache-2.0
#pragma once
// The search for the cheapest placements. Definitions for dtensor/choose.hpp.

#include <algorithm>
#include <optional>
#include <tuple>

#include <weft/core/inline.hpp>
#include <weft/dtensor/choose.hpp>

namespace weft::dtensor {

WEFT_INLINE double moved_bytes(const Shape& shape, std::size_t element_bytes, std::span<const AxisPlace> axes,
                               const Placements& from, const Placements& to, bool weighted) {
  std::vector<AxisPlace> places(axes.begin(), axes.end());
  for (AxisPlace& place : places) place.rank = 0;  // the first rank has the largest part
  Placements now = from;
  double bytes = 0;
  for (const Step& step : steps_between(from, to)) {
    const double before = double(part_of(shape, places, now).shape.size() * element_bytes);
    now[step.axis] = step.to;
    const double after = double(part_of(shape, places, now).shape.size() * element_bytes);
    const double others = double(places[step.axis].ranks - 1), share = others / double(places[step.axis].ranks);
    double received = 0;
    if (step.from.is_shard() && step.to.is_replicate()) received = share * after;
    else if (step.from.is_shard() && step.to.is_shard()) received = share * std::max(before, after);
    else if (step.from.is_partial() && step.to.is_shard()) received = others * after;
    else if (step.from.is_partial()) received = 2 * share * before;
    bytes += weighted ? places[step.axis].cost * received : received;
  }
  return bytes;
}

namespace detail {

// One way to place all operands on one axis.
struct AxisCandidate {
  std::vector<AxisPlacement> operands;
  AxisPlacement result;
};

inline AxisLayout layout_of(const AxisPlacement& placement) {
  if (placement.is_shard()) return {weft::detail::Kind::shard, placement.dim};
  return {placement.is_partial() ? weft::detail::Kind::partial : weft::detail::Kind::replicated};
}

// Sums and averages are linear in their terms. A maximum or a minimum is reduced first, unless the operation only moves elements.
inline std::optional<AxisPlacement> result_of(const OperationRule& rule, std::span<const AxisPlacement> operands) {
  std::vector<AxisLayout> layouts;
  const AxisPlacement* terms = nullptr;
  for (const AxisPlacement& operand : operands) {
    layouts.push_back(layout_of(operand));
    if (!operand.is_partial()) continue;
    if (!rule.moves && (operand.reduction == Reduction::max || operand.reduction == Reduction::min)) return std::nullopt;
    if (terms != nullptr && !(*terms == operand)) return std::nullopt;
    terms = &operand;
  }
  const auto result = weft::detail::result_on(rule, layouts);
  if (!result) return std::nullopt;
  if (result->kind == weft::detail::Kind::shard) return shard(result->dim);
  if (result->kind == weft::detail::Kind::partial) return terms != nullptr ? *terms : partial(rule.reduced);
  return replicate();
}

// All placements on one axis that the rule takes.
inline std::vector<AxisCandidate> candidates_of(const OperationRule& rule, std::size_t operands,
                                                std::span<const AxisPlacement> now) {
  std::vector<AxisCandidate> all;
  const auto add = [&](std::vector<AxisPlacement> placements) {
    if (const auto result = result_of(rule, placements)) all.push_back({std::move(placements), *result});
  };
  if (result_of(rule, now)) add({now.begin(), now.end()});
  add(std::vector<AxisPlacement>(operands));
  std::vector<char> seen;
  for (std::size_t i = 0; i < operands; ++i)
    for (int dim = 0; dim < rule.operand(i).count; ++dim) {
      const char letter = rule.operand(i)[dim];
      if (letter == '.' || std::find(seen.begin(), seen.end(), letter) != seen.end()) continue;
      seen.push_back(letter);
      std::vector<AxisPlacement> placements;
      for (std::size_t k = 0; k < operands; ++k) {
        const int cut = rule.operand(k).find(letter);
        placements.push_back(cut < 0 ? replicate() : shard(cut));
      }
      add(std::move(placements));
    }
  for (const unsigned set : rule.linear)
    for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max, Reduction::min}) {
      std::vector<AxisPlacement> placements;
      bool has_terms = false;  // terms are never made of whole operands alone
      for (std::size_t k = 0; k < operands; ++k) {
        const bool terms = set >> k & 1u;
        placements.push_back(terms ? partial(reduction) : replicate());
        has_terms = has_terms || (terms && now[k] == partial(reduction));
      }
      if (has_terms) add(std::move(placements));
    }
  return all;
}

// Whether the ranks that cut an `even` letter divide its extents.
inline bool divides_evenly(const OperationRule& rule, std::span<const OperandInfo> operands, const Shape& result,
                           const std::vector<AxisPlace>& axes, const std::vector<const AxisCandidate*>& chosen) {
  for (int i = 0; i < rule.even.count; ++i) {
    std::size_t ranks = 1;
    const int dim = rule.operand(0).find(rule.even[i]);
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      if (dim >= 0 && chosen[axis]->operands[0] == shard(dim)) ranks *= axes[axis].ranks;
    const int to = rule.result.find(rule.even[i]);
    if (ranks > 1 && (operands[0].shape[std::size_t(dim)] % ranks != 0 || (to >= 0 && result[std::size_t(to)] % ranks != 0)))
      return false;
  }
  return true;
}

// Whether the reductions of the result's axes may be made in any order.
inline bool reductions_commute(const std::vector<const AxisCandidate*>& chosen) {
  const auto linear = [](Reduction reduction) { return reduction == Reduction::sum || reduction == Reduction::average; };
  const AxisPlacement* first = nullptr;
  for (const AxisCandidate* one : chosen) {
    if (!one->result.is_partial()) continue;
    if (first != nullptr && !(*first == one->result) && !(linear(first->reduction) && linear(one->result.reduction)))
      return false;
    first = &one->result;
  }
  return true;
}

// The cost of the operation's own all-reduces. An axis that cuts no operand now does not make them smaller: operands that fit
// are not cut for their sake.
inline double inside_cost(const OperationRule& rule, std::span<const OperandInfo> operands, const Shape& result,
                          const std::vector<AxisPlace>& axes, const std::vector<const AxisCandidate*>& chosen, Placements to) {
  if (rule.inside_bytes == 0) return 0;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    if (std::none_of(operands.begin(), operands.end(), [&](const OperandInfo& x) { return x.placements[axis].is_shard(); }))
      to[axis] = replicate();
  std::vector<AxisPlace> places = axes;
  for (AxisPlace& place : places) place.rank = 0;
  Shape rows = result;
  for (int dim = 0; dim < int(result.rank()); ++dim)
    if (rule.inside.find(rule.result[dim]) >= 0) rows[std::size_t(dim)] = 1;
  const double bytes = double(part_of(rows, places, to).shape.size() * rule.inside_bytes);
  double cost = 0;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    for (std::size_t i = 0; i < chosen[axis]->operands.size(); ++i) {
      const AxisPlacement& placement = chosen[axis]->operands[i];
      if (placement.is_shard() && rule.inside.find(rule.operand(i)[placement.dim]) >= 0)
        cost += 2 * axes[axis].cost * bytes * double(axes[axis].ranks - 1) / double(axes[axis].ranks);
    }
  return cost;
}

WEFT_INLINE Choice choose(const OperationRule& rule, std::span<const OperandInfo> operands, const Shape& result,
                          const std::vector<AxisPlace>& axes) {
  std::vector<std::vector<AxisCandidate>> candidates;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    std::vector<AxisPlacement> now;
    for (const OperandInfo& operand : operands) now.push_back(operand.placements[axis]);
    candidates.push_back(candidates_of(rule, operands.size(), now));
  }
  std::vector<std::size_t> at(axes.size(), 0);
  std::vector<const AxisCandidate*> chosen(axes.size());
  std::optional<std::tuple<double, std::size_t, std::size_t>> best;
  Choice found;
  for (bool more = true; more;) {
    for (std::size_t axis = 0; axis < axes.size(); ++axis) chosen[axis] = &candidates[axis][at[axis]];
    if (divides_evenly(rule, operands, result, axes, chosen) && reductions_commute(chosen)) {
      Choice choice;
      double cost = 0;
      std::size_t partial_axes = 0, changed = 0;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        Placements to;
        for (const AxisCandidate* one : chosen) to.push_back(one->operands[i]);
        const OperandInfo& x = operands[i];
        choice.bytes += moved_bytes(x.shape, x.element_bytes, axes, x.placements, to);
        cost += moved_bytes(x.shape, x.element_bytes, axes, x.placements, to, true);
        for (std::size_t axis = 0; axis < axes.size(); ++axis) changed += !(to[axis] == x.placements[axis]);
        choice.operands.push_back(std::move(to));
      }
      for (const AxisCandidate* one : chosen) {
        choice.result.push_back(one->result);
        partial_axes += one->result.is_partial();
      }
      cost += inside_cost(rule, operands, result, axes, chosen, choice.result);
      if (changed == 0 && cost == 0) return choice;  // the operands lie as they must: the first of each axis' candidates
      const std::tuple<double, std::size_t, std::size_t> order{cost, partial_axes, changed};
      if (!best || order < *best) {
        best = order;
        found = std::move(choice);
      }
    }
    more = false;
    for (std::size_t axis = axes.size(); axis-- > 0 && !more;) {
      more = ++at[axis] < candidates[axis].size();
      if (!more) at[axis] = 0;
    }
  }
  return found;
}

}  // namespace detail

}  // namespace weft::dtensor
