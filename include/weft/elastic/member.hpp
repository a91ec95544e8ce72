// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's membership in an elastic run: the second argument of the program's function. Its two calls are all that a training
// loop needs. The function runs once for each set of ranks, so model and optimizer are made anew when ranks are lost or join.
//
//   std::uint64_t step = member.restore(model, optimizer);
//   while (step < steps) {
//     model.train_step(batches.training(step));
//     optimizer.step();
//     member.keep(model, optimizer, ++step);
//   }

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/checkpoint/load.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/error.hpp>
#include <weft/device/rehearsal.hpp>
#include <weft/elastic/copies.hpp>
#include <weft/elastic/fetch.hpp>
#include <weft/elastic/options.hpp>

namespace weft::elastic {

/// The ranks that were lost held all copies of a part of the state. No rank can continue: restart from a checkpoint.
class StateLostError : public Error {
  using Error::Error;
};

namespace detail {

/// Ends the program's function on all ranks between two steps, since other ranks are taken in. No std::exception, so that a
/// program which reports its errors does not take it for one.
struct WorldChange {};

/// The step whose parts are all on some of the ranks.
struct Choice {
  std::uint64_t step = 0, generation = 0;
  std::vector<int> holders;  ///< of each part
};

/// The newest step with all its parts; nothing if there is none. Collective; the result is the same on all ranks.
inline std::optional<Choice> choose_step(const Communicator& ranks, const Copies& copies) {
  stored::Packed mine;
  for (const Snapshot& snapshot : copies.snapshots())
    for (const PartCopy& part : snapshot.parts) {
      if (!part.whole) continue;
      mine.put(snapshot.step);
      mine.put(snapshot.generation);
      mine.put(std::uint64_t(snapshot.index->files.size()));
      mine.put(std::uint64_t(part.number));
    }
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::vector<int>>> found;
  std::vector<stored::Packed> all = stored::from_all(ranks, std::move(mine));
  for (int rank = 0; rank < ranks.size(); ++rank)
    for (stored::Packed& said = all[std::size_t(rank)]; !said.done();) {
      const std::uint64_t step = said.word(), generation = said.word();
      auto& parts = found[{step, generation}];
      parts.resize(std::size_t(said.word()));
      parts[std::size_t(said.word())].push_back(rank);
    }
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    Choice choice{at->first.first, at->first.second, {}};
    for (std::size_t part = 0; part < at->second.size(); ++part)
      if (const auto& holders = at->second[part]; !holders.empty()) choice.holders.push_back(holders[part % holders.size()]);
    if (choice.holders.size() == at->second.size()) return choice;
  }
  return std::nullopt;
}

}  // namespace detail

class Member {
 public:
  Member() = default;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  /// True if earlier ranks of this run have finished a step: `restore` then takes model and optimizer from their copies.
  bool continues() const { return continues_; }

  /// Call it once model and optimizer exist. Takes the state of the newest step that is whole from the ranks' copies, in any
  /// layout, and returns the number of that step. At the start of the run the result is `first`: a number, or a function such as
  /// one that calls checkpoint::resume. Collective over the model's ranks. Throws StateLostError on every rank if the copies of a
  /// part were all lost. The state of communication hooks is restored only in the same layout. In a rehearsal it returns `first`.
  template <checkpoint::StoredModel Model, checkpoint::StoredOptimizer Optimizer, class First = std::uint64_t>
  std::uint64_t restore(Model& model, Optimizer& optimizer, First&& first = 0) {
    const comm::InFunction mark(model.communicator(), comm::ProgramFunction::elastic_restore);
    std::uint64_t step = 0;
    if (continues_) step = from_copies(model, optimizer);
    else if constexpr (std::invocable<First&>) step = first();
    else step = std::uint64_t(first);
    if (available_ && !checkpoint::detail::leaves_files_alone(model))
      copies_.keep(model.communicator(), checkpoint::detail::whole_state(model, optimizer), step, generation_, false);
    return step;
  }

  /// Call it after each optimizer step with the number of finished steps. Copies this rank's part of the state, and a partner's,
  /// which takes 4 * state / ranks bytes of host memory (state: parameters, master copies and the optimizer's buffers). If ranks
  /// wait to join, the call ends the program's function on all ranks, which then runs anew with them. Collective over the model's
  /// ranks. Throws UsageError between train_step and the optimizer's step. Does nothing in a run that is not elastic. A
  /// rehearsal notes the bytes of the copies.
  template <checkpoint::StoredModel Model, checkpoint::StoredOptimizer Optimizer>
  void keep(Model& model, Optimizer& optimizer, std::uint64_t step) {
    if (Rehearsal* const notes = model.device().rehearsal(); notes != nullptr && notes->elastic_bytes == 0) {
      const Rehearsal::Axis* const pipeline = notes->axis("pp");
      notes->elastic_bytes = detail::mean_copy_bytes(checkpoint::detail::whole_state(model, optimizer),
                                                     std::size_t(notes->ranks) / (pipeline != nullptr ? pipeline->size : 1));
    }
    if (!available_ || checkpoint::detail::leaves_files_alone(model)) return;
    const comm::InFunction mark(model.communicator(), comm::ProgramFunction::elastic_keep);
    checkpoint::detail::require_applied(model);
    const Communicator& ranks = model.communicator();
    const bool wanted = served(options_, available_()) > ranks.size();
    const bool changes = copies_.keep(ranks, checkpoint::detail::whole_state(model, optimizer), step, generation_, wanted);
    confirmed_ = true;
    newest_ = step;
    if (kept_) kept_();
    if (changes) throw detail::WorldChange{};
  }

  /// Bytes of the copies on this rank, in host memory.
  std::size_t copy_bytes() const { return copies_.bytes(); }
  /// The number of times that the ranks of the run have changed.
  std::uint64_t generation() const { return generation_; }

  // For the runner of an elastic run.

  /// Prepares the next call of the program's function. `available()` returns the number of ranks that run or wait. `kept()` is
  /// called after each `keep`.
  void begin(const Options& options, std::uint64_t generation, bool continues, std::function<int()> available,
             std::function<void()> kept = nullptr) {
    options_ = options;
    generation_ = generation;
    continues_ = continues;
    available_ = std::move(available);
    kept_ = std::move(kept);
  }
  bool confirmed() const { return confirmed_; }  ///< a step was finished while this rank took part
  std::uint64_t newest() const { return newest_; }
  /// The parts that this rank holds, of one or two generations: ranks that take over are chosen by them.
  detail::HeldParts parts() const {
    detail::HeldParts held;
    for (const detail::Snapshot& snapshot : copies_.snapshots())
      for (const detail::PartCopy& part : snapshot.parts)
        if (part.whole) held.insert({snapshot.generation, part.number, snapshot.index->files.size()});
    return held;
  }

 private:
  template <class Model, class Optimizer>
  std::uint64_t from_copies(Model& model, Optimizer& optimizer) {
    namespace stored = checkpoint::detail;
    const Communicator& ranks = model.communicator();
    const auto choice = detail::choose_step(ranks, copies_);
    if (!choice)
      throw_error<StateLostError>(
          {"elastic: the ranks that were lost held all copies of a part of the state: ", restart_advice(options_)});
    const detail::Snapshot* mine = nullptr;
    for (const detail::Snapshot& snapshot : copies_.snapshots())
      if (snapshot.step == choice->step && snapshot.generation == choice->generation &&
          (snapshot.parts[0].whole || snapshot.parts[1].whole))
        mine = &snapshot;
    stored::Packed message;
    const int root = choice->holders.front();
    if (ranks.rank() == root) message.put(checkpoint::index_text(mine->whole_index()));
    const std::string place = "the ranks' copies";
    const checkpoint::Index index = checkpoint::parse_index(place, stored::from(ranks, root, std::move(message)).text());
    stored::restore_both(
        model, optimizer, [](const std::string&, const checkpoint::Index&) {},
        [&](const stored::State& state, const auto& hooks, const auto& check, const auto& finish) {
          stored::restore(place, index, ranks, state, true, {}, hooks, check, finish,
                          [&](const auto& tensors, const auto& items, const auto& out) {
                            detail::fetch(ranks, index, mine, choice->holders, tensors, items, out);
                          });
        });
    if (mine != nullptr) copies_.protect(*mine);
    return choice->step;
  }

  Options options_;
  std::function<int()> available_;  // empty: the run is not elastic
  std::function<void()> kept_;
  std::uint64_t generation_ = 0, newest_ = 0;
  bool continues_ = false, confirmed_ = false;
  detail::Copies copies_;
};

}  // namespace weft::elastic
