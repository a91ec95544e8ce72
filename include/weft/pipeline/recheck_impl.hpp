// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/recheck.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <bit>
#include <string>

#include <weft/comm/gather_lists.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/region.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/recheck.hpp>
#include <weft/pipeline/stages.hpp>

namespace weft::detail {

namespace recheck {

using BitWords = std::vector<std::uint64_t>;

WEFT_COLD inline std::vector<ParameterState*> states_of(Stages& stages) {
  std::vector<ParameterState*> states;
  stages.for_each_state([&](ParameterState& state) { states.push_back(&state); });
  return states;
}

/// The data ranks, each in the place of the one that is `distance` before it, so that layers which communicate over them add in
/// the same order as in the step. Collective.
WEFT_COLD inline Communicator roles(const Communicator& data, int distance) {
  const int place = (data.rank() - distance % data.size() + data.size()) % data.size();
  return data.split(0, place, "dp", {place, data.size()});
}

/// One micro-batch forward through all stages and back.
WEFT_COLD inline schedule::Table table_of(const schedule::AnySchedule& schedule, int ranks) {
  schedule::Table table = forward_table(schedule, ranks, 1);
  for (int rank = 0; rank < ranks; ++rank)
    for (int stage = table.stages(); stage-- > 0;)
      for (int chunk = 0; chunk < table.chunks; ++chunk)
        if (table.stage(rank, chunk) == stage) table.orders[std::size_t(rank)].push_back({schedule::Op::B, chunk, 0});
  return table;
}

WEFT_COLD inline BitWords with_loss(BitWords words, double loss) {
  words.push_back(std::bit_cast<std::uint64_t>(loss));
  return words;
}

/// The words that each rank sends, which are as many on all.
WEFT_COLD inline std::vector<BitWords> gather(const Communicator& ranks, const BitWords& mine) {
  return gather_lists(ranks, std::span<const std::uint64_t>(mine));
}

/// The result of a check for one rank. The worst is last.
enum class Finding : std::uint64_t { none, either, wrong };

/// The names of ranks: "rank 3", "ranks 4 and 5", "ranks 1, 2 and 7".
WEFT_COLD inline std::string names_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    append_to(text, {i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]});
  return text;
}

}  // namespace recheck

WEFT_COLD WEFT_INLINE Recheck::Result Recheck::compute(Stages& stages, StepBatch& batch, const TrainingInputs& inputs,
                                                       int distance, const Communicator& roles) const {
  const trace::Region region([] { return std::string("recheck"); });
  const Communicator data = stages.axes().comm(dp{});
  const int ranks = data.size();
  const std::unique_ptr<StepBatch> peer =
      batch.first_of_peer(data, roles, (data.rank() + distance) % ranks, (data.rank() - distance % ranks + ranks) % ranks);
  std::vector<std::vector<double>> sums;  // a layer adds to its buffers' sums in forward
  for (const auto& buffer : stages.buffers()) sums.push_back(buffer->sum);
  stages.for_each_state([](ParameterState& state) { state.gradients().discard(); });
  const schedule::Table table = recheck::table_of(stages.schedule(), int(stages.axes().size(pp{})));
  RecomputedGradients<Exec> gradients(batch.device(), recorded_->separates_terms());
  Executor<Exec> run = stages.executor(*peer, table, inputs, gradients);
  run.run({.rechecks = true});
  const std::vector<double> losses = run.losses();
  Stages::finish(peer->engine().hooks);
  stages.for_each_state([](ParameterState& state) { state.gradients().discard(); });
  for (std::size_t i = 0; i < sums.size(); ++i) stages.buffers()[i]->sum = sums[i];
  return {gradients.bits(), losses.front()};
}

WEFT_COLD WEFT_INLINE void Recheck::over(const Communicator& everyone, const Communicator& data) {
  everyone_ = everyone;
  roles_ = recheck::roles(data, 1);
}

WEFT_COLD WEFT_INLINE void Recheck::before_step(Stages& stages, StepBatch& batch, const TrainingInputs& inputs) {
  checked_.emplace(compute(stages, batch, inputs, 1, roles_));
  recorded_->record(true);
}

WEFT_COLD WEFT_INLINE void Recheck::after_step(Stages& stages, StepBatch& batch, const TrainingInputs& inputs,
                                               std::span<const double> losses) {
  using namespace recheck;
  recorded_->record(false);
  const Communicator data = stages.axes().comm(dp{});
  const std::vector<ParameterState*> states = states_of(stages);
  const BitWords own = with_loss(recorded_->bits().words(states), losses.front());
  BitWords theirs(own.size());
  const int ranks = data.size();
  data.send_recv(std::span<const std::uint64_t>(own), (data.rank() + 1) % ranks, std::span<std::uint64_t>(theirs),
                 (data.rank() + ranks - 1) % ranks);
  const BitWords mine = with_loss(checked_->bits.words(states, theirs), checked_->loss);
  checked_.reset();
  std::uint64_t differs = mine != theirs;
  everyone_.all_reduce(std::span<std::uint64_t>(&differs, 1), Reduction::max);
  if (differs != 0) judge(stages, batch, inputs, own, mine);
}

WEFT_COLD WEFT_INLINE void Recheck::judge(Stages& stages, StepBatch& batch, const TrainingInputs& inputs,
                                          const std::vector<std::uint64_t>& own, const std::vector<std::uint64_t>& checked) {
  using namespace recheck;
  const Communicator data = stages.axes().comm(dp{});
  const std::size_t ranks = std::size_t(data.size()), rank = std::size_t(data.rank());
  const std::vector<ParameterState*> states = states_of(stages);
  const std::vector<BitWords> owners = gather(data, own), checkers = gather(data, checked);
  // The words of the micro-batch of the rank `distance` before, computed now.
  const auto computed = [&](std::size_t distance) {
    const Result result = compute(stages, batch, inputs, int(distance), recheck::roles(data, int(distance)));
    return gather(data, with_loss(result.bits.words(states, owners[(rank + ranks - distance % ranks) % ranks]), result.loss));
  };
  const std::vector<BitWords> third = computed(2), again = ranks == 2 ? computed(1) : std::vector<BitWords>();
  stages.discard_gradients();

  Finding found = Finding::none;
  std::uint64_t parameter = states.size();  // the first that differs; their number: the loss
  for (std::size_t owner = 0; owner < ranks; ++owner) {
    const std::size_t checker = (owner + 1) % ranks, other = (owner + 2) % ranks;
    const BitWords &first = owners[owner], &second = checkers[checker];
    if (first == second) continue;
    // With two ranks `other` is the owner, and a rank whose repetition gives the other's bits has erred in passing.
    const bool owner_errs = third[other] == second && (ranks > 2 || again[checker] == second);
    const bool checker_errs = third[other] == first && (ranks > 2 || again[checker] == first);
    const auto note = [&](std::size_t who, Finding what) {
      if (who != rank || found >= what) return;
      found = what;
      parameter = 0;
      while (2 * parameter < first.size() - 1 && first[2 * parameter + 1] == second[2 * parameter + 1]) ++parameter;
    };
    if (owner_errs || checker_errs) note(owner_errs ? owner : checker, Finding::wrong);
    else
      for (const std::size_t who : {owner, checker, other}) note(who, Finding::either);
  }
  std::string name = found == Finding::none ? "" : parameter < states.size() ? states[parameter]->name() : "the loss";
  // The ranks that share this one's samples computed the micro-batch with it: a value that one of them gets wrong reaches the
  // others.
  std::uint64_t together = 0;
  stages.axes().for_each_data_axis(
      [&](const Communicator& axis) { together = together * std::uint64_t(axis.size()) + std::uint64_t(axis.rank()); });
  const std::uint64_t mine[] = {std::uint64_t(found), together};
  const auto findings = gather_lists(everyone_, std::span<const std::uint64_t>(mine));
  const auto names = gather_lists(everyone_, bytes_of(name));
  std::vector<int> wrong, either;
  std::string at;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    std::uint64_t worst = 0;
    for (const auto& other : findings)
      if (other[1] == findings[i][1]) worst = std::max(worst, other[0]);
    if (worst == std::uint64_t(Finding::wrong)) wrong.push_back(int(i));
    if (worst == std::uint64_t(Finding::either)) either.push_back(int(i));
    if (at.empty()) at.assign(names[i].begin(), names[i].end());
  }
  const std::uint64_t step = batch.env().step;
  if (!wrong.empty()) {
    const std::string who = names_of_ranks(wrong);
    const bool one = wrong.size() == 1;
    throw CorruptionError(
        joined({"recheck in step ", step, ": ", who, " computed wrong bits of a micro-batch (first: ", at, "), on which two ",
                ranks == 2 ? "computations" : "other data ranks", " agree; the step is not applied: replace the processor of ",
                one ? "this rank" : "the one of these ranks that errs (they computed it together: test each)",
                ", and continue from the last checkpoint"}),
        std::move(wrong), true);
  }
  const std::string who = names_of_ranks(either);
  throw CorruptionError(
      joined({"recheck in step ", step, ": ", who, " computed different bits of one micro-batch (first: ", at, "), and ",
              ranks == 2 ? "both repeat their own" : "no two of them agree",
              "; the step is not applied: at least one of them is wrong, test their processors, which must be of one model, and "
              "continue from the last checkpoint",
              ranks == 2 ? "; a third data rank would decide" : ""}),
      std::move(either), false);
}

}  // namespace weft::detail
