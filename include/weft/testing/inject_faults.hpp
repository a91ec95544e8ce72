// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator that wraps one of any backend and fails, delays and reorders calls by a seed, for tests of a program's reaction
// to failing communication. The faults are a pure function of (seed, rank, number of the call), so a failed run can be repeated.
// Faults change no result; they only throw errors and change times.
//
//   World world(testing::inject_faults(real.communicator(), {.seed = 7, .fail_at = 100, .delay = 0.1}), real.device());
//   Mesh<dp, tp> mesh(world, {.tp = 2});                            // and everything else as in the program

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/errors.hpp>
#include <weft/comm/group.hpp>
#include <weft/core/philox.hpp>
#include <weft/testing/forwarding_group.hpp>

namespace weft::testing {

/// The faults of one rank's calls: operations and splits, on this communicator and on all split from it.
struct Faults {
  std::uint64_t seed = 0;
  double failure = 0;         ///< probability that a call throws InjectedError: before, during or after it
  std::uint64_t fail_at = 0;  ///< the number of a call that always throws; the first is 1, 0: none
  int fail_on = -1;           ///< the rank on which calls throw; -1: every rank
  double delay = 0;  ///< probability that the rank sleeps, at each of four places: before a call, after it, before and in a wait
  double longest_delay_s = 1e-3;
  double late = 0;       ///< probability that a started send or receive begins only when the rank waits, or some calls later
  bool reorder = false;  ///< a wait advances started operations in random order; test() reports completed ones as incomplete
};

/// The injected error. Other ranks see a failed rank.
class InjectedError : public CommunicationError {
  using CommunicationError::CommunicationError;
};

/// Counts of the faults on one rank so far.
struct FaultCounts {
  std::uint64_t calls = 0, failures = 0, delays = 0, late = 0, reordered = 0;
};

namespace detail {

class LateRequest;

/// The calls of one rank and their random numbers.
class Injector {
 public:
  Injector(const Faults& faults, int rank) : faults_(faults), rank_(rank) {}

  enum class Place : std::uint64_t { nowhere, before, under_way, after };
  enum Site : std::uint64_t {
    fails,
    fails_where,
    sleeps,
    sleeps_how_long = sleeps + 4,
    begins_late = sleeps_how_long + 4,
    how_late,
    order,
    hides,
    by_request
  };

  double uniform(Site site, std::uint64_t number) const {
    return Philox::uniform(key_of(faults_.seed, std::uint64_t(rank_), std::uint64_t(site)), number);
  }
  std::uint64_t below(std::uint64_t most, Site site, std::uint64_t number) const {
    return Philox::at(key_of(faults_.seed, std::uint64_t(rank_), std::uint64_t(site)), number) % most;
  }

  /// Returns the number of the call that begins now.
  std::uint64_t next_call() {
    take_turn();
    return ++counts_.calls;
  }
  /// The place at which the call throws.
  Place place(std::uint64_t number) const {
    const bool chosen = faults_.fail_on < 0 || faults_.fail_on == rank_;
    if (!chosen || (number != faults_.fail_at && !(uniform(fails, number) < faults_.failure))) return Place::nowhere;
    return Place(1 + below(3, fails_where, number));
  }
  [[noreturn]] WEFT_COLD void fail(const comm::Call& call, std::string_view axis, std::uint64_t number, std::string_view where) {
    ++counts_.failures;
    throw InjectedError(rank_, axis, describe(call), number,
                        weft::detail::joined({"injected ", where, " the rank's call ", number, " (seed ", faults_.seed, ")"}));
  }
  /// Sleeps with probability `delay`; `which` is one of four places.
  void nap(unsigned which, std::uint64_t number) {
    if (!(uniform(Site(sleeps + which), number) < faults_.delay)) return;
    ++counts_.delays;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(faults_.longest_delay_s * uniform(Site(sleeps_how_long + which), number)));
  }

  const Faults& faults() const { return faults_; }
  FaultCounts& counts() { return counts_; }
  std::vector<LateRequest*>& requests() { return requests_; }

  /// Counts a call or a test of a request: late requests come closer to their start.
  void take_turn();
  /// Begins all late requests. Call it before a wait, since other ranks may need them.
  void begin_all() noexcept;
  void advance_others(const LateRequest& but, std::uint64_t number) noexcept;

 private:
  // Begins a request, and before it the earlier requests of the same order.
  void begin_in_order(std::size_t i) noexcept;

  Faults faults_;
  int rank_;
  FaultCounts counts_;
  std::vector<LateRequest*> requests_;  // this rank's, in the order of their starts
};

/// A started operation: already with the inner group, or late.
class LateRequest final : public comm::Pending {
 public:
  LateRequest(std::shared_ptr<Injector> injector, std::shared_ptr<comm::Group> inner, const comm::Call& call,
              std::uint64_t number)
      : injector_(std::move(injector)), inner_(std::move(inner)), call_(call), number_(number) {
    injector_->requests().push_back(this);
    if (injector_->faults().reorder) hidden_ = injector_->below(4, Injector::hides, number);
  }
  LateRequest(const LateRequest&) = delete;
  LateRequest& operator=(const LateRequest&) = delete;
  ~LateRequest() override { std::erase(injector_->requests(), this); }

  bool late() const { return turns_ > 0; }
  /// True if both messages must keep their order: same group, same peer, same direction, same tag.
  bool same_order(const comm::Group* inner, const comm::Call& call) const {
    return inner_.get() == inner && call_.operation == call.operation && call_.root == call.root && call_.tag == call.tag;
  }
  bool same_order(const LateRequest& other) const { return same_order(other.inner_.get(), other.call_); }
  void start_now() {
    turns_ = 0;
    pending_ = inner_->start(call_);
    done_ = pending_ == nullptr;
  }
  /// `turns`: number of the rank's turns until it begins.
  void start_late(std::uint64_t turns) {
    call_.order.fence();
    call_.order = {.device = call_.order.device};  // the buffers may outlive the execution-space instance
    turns_ = turns;
    ++injector_->counts().late;
  }
  /// Counts one turn. True when the request must begin.
  bool take_turn() { return turns_ > 0 && --turns_ == 0; }
  /// As start_now, but its error is thrown by test or wait.
  void begin() noexcept {
    try {
      start_now();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  void advance() noexcept {
    try {
      if (!late() && !done_ && !error_) done_ = pending_->test();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  /// wait() throws, and test() throws when it would return true.
  void fail_later(std::string axis) {
    fails_ = true;
    axis_ = std::move(axis);
  }

  bool test() override {
    injector_->take_turn();
    advance();
    if (error_) std::rethrow_exception(error_);
    if (!done_) return false;
    if (hidden_ > 0) {
      --hidden_;
      ++injector_->counts().reordered;
      return false;
    }
    if (fails_) injector_->fail(call_, axis_, number_, "into a request of");
    return true;
  }
  void wait() override {
    injector_->nap(2, number_);
    injector_->begin_all();
    if (fails_) injector_->fail(call_, axis_, number_, "into a wait of");
    injector_->advance_others(*this, number_);
    advance();
    injector_->nap(3, number_);
    if (error_) std::rethrow_exception(error_);
    if (!done_) pending_->wait();
    done_ = true;
  }
  void abandon() noexcept override {
    injector_->begin_all();
    if (pending_ && !done_) pending_->abandon();
  }

 private:
  std::shared_ptr<Injector> injector_;
  std::shared_ptr<comm::Group> inner_;
  comm::Call call_;
  std::uint64_t number_, turns_ = 0, hidden_ = 0;
  std::unique_ptr<comm::Pending> pending_;
  std::exception_ptr error_;
  std::string axis_;
  bool done_ = false, fails_ = false;
};

inline void Injector::take_turn() {
  for (std::size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i]->take_turn()) begin_in_order(i);
}
inline void Injector::begin_in_order(std::size_t i) noexcept {
  for (std::size_t before = 0; before < i; ++before)
    if (requests_[before]->late() && requests_[before]->same_order(*requests_[i])) requests_[before]->begin();
  requests_[i]->begin();
}
inline void Injector::begin_all() noexcept {
  // Not in the order of their starts, except for messages that must keep it.
  for (std::size_t i = requests_.size(); i-- > 0;)
    if (requests_[i]->late()) begin_in_order(i);
}
inline void Injector::advance_others(const LateRequest& but, std::uint64_t number) noexcept {
  if (!faults_.reorder) return;
  const std::size_t n = requests_.size(), first = n == 0 ? 0 : below(n, order, number);
  const bool backwards = below(2, order, ~number) != 0;
  for (std::size_t k = 0; k < n; ++k) {
    LateRequest* request = requests_[(backwards ? first + n - k : first + k) % n];
    if (request != &but) request->advance();
  }
}

class FaultyGroup final : public ForwardingGroup {
 public:
  FaultyGroup(std::shared_ptr<comm::Group> inner, std::shared_ptr<Injector> injector)
      : ForwardingGroup(std::move(inner)), injector_(std::move(injector)) {}

  void execute(const comm::Call& call) override {
    const Attempt attempt = begin(call);
    injector_->begin_all();
    if (attempt.place == Place::under_way) {
      const Request dropped(inner_->start(call));
      injector_->fail(call, axis(), attempt.number, "into");
    }
    if (injector_->faults().reorder && injector_->below(2, Injector::by_request, attempt.number) != 0) {
      Request request(inner_->start(call));
      injector_->nap(2, attempt.number);
      request.wait();
    } else {
      inner_->execute(call);
    }
    end(attempt, call);
  }

  std::unique_ptr<comm::Pending> start(const comm::Call& call) override {
    const Attempt attempt = begin(call);
    if (!is_point_to_point(call.operation)) injector_->begin_all();  // starting a collective may wait for an earlier one
    auto request = std::make_unique<LateRequest>(injector_, inner_, call, attempt.number);
    if (begins_late(call, attempt.number)) request->start_late(1 + injector_->below(8, Injector::how_late, attempt.number));
    else request->start_now();
    if (attempt.place == Place::under_way) {
      const Request dropped(std::move(request));
      injector_->fail(call, axis(), attempt.number, "into");
    }
    if (attempt.place == Place::after) request->fail_later(std::string(axis()));
    injector_->nap(1, attempt.number);
    return request;
  }

  std::shared_ptr<comm::Group> split(int color, int key, std::string axis) override {
    return with_faults([&] { return inner_->split(color, key, std::move(axis)); });
  }
  std::shared_ptr<comm::Group> split_placed(int color, int key, std::string axis, const comm::SplitPlace& place) override {
    return with_faults([&] { return inner_->split_placed(color, key, std::move(axis), place); });
  }

  const FaultCounts& counts() const { return injector_->counts(); }

 private:
  using Place = Injector::Place;
  struct Attempt {
    std::uint64_t number;
    Place place;
  };

  template <class F>
  std::shared_ptr<comm::Group> with_faults(const F& split) {
    const comm::Call call{.operation = comm::Operation::split};
    Attempt attempt = begin(call);
    injector_->begin_all();
    auto part = std::make_shared<FaultyGroup>(split(), injector_);
    if (attempt.place == Place::under_way) attempt.place = Place::after;
    end(attempt, call);
    return part;
  }
  Attempt begin(const comm::Call& call) {
    const std::uint64_t number = injector_->next_call();
    const Place place = injector_->place(number);
    injector_->nap(0, number);
    if (place == Place::before) injector_->fail(call, axis(), number, "before");
    return {number, place};
  }
  void end(const Attempt& attempt, const comm::Call& call) {
    injector_->nap(1, attempt.number);
    if (attempt.place == Place::after) injector_->fail(call, axis(), attempt.number, "after");
  }
  /// Messages of one order keep it. A device's queue has its own order.
  bool begins_late(const comm::Call& call, std::uint64_t number) const {
    if (!is_point_to_point(call.operation) || call.memory != comm::MemoryKind::host) return false;
    for (const LateRequest* other : injector_->requests())
      if (other->late() && other->same_order(inner_.get(), call)) return true;
    return injector_->uniform(Injector::begins_late, number) < injector_->faults().late;
  }

  std::shared_ptr<Injector> injector_;
};

}  // namespace detail

/// The same ranks, with these faults in the calls of this rank. The given communicator stays unchanged; `run` ends with that one.
/// Not collective: each rank may have different faults.
inline Communicator inject_faults(const Communicator& communicator, const Faults& faults) {
  auto injector = std::make_shared<detail::Injector>(faults, communicator.rank());
  return Communicator(std::make_shared<detail::FaultyGroup>(communicator.group(), std::move(injector)), communicator.order());
}

/// The faults on this rank so far, of a communicator made by inject_faults or split from one; zeros for any other.
inline FaultCounts injected(const Communicator& communicator) {
  const auto* group = dynamic_cast<const detail::FaultyGroup*>(communicator.group().get());
  return group == nullptr ? FaultCounts{} : group->counts();
}

}  // namespace weft::testing
