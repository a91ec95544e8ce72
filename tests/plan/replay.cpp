// SPDX-License-Identifier: Apache-2.0
// The replay of traces, against times worked out by hand.

#include <doctest/doctest.h>

#include <weft/core/error.hpp>
#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/messages.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/pipeline/schedule/zbv.hpp>
#include <weft/plan/replay.hpp>

using namespace weft;
using plan::EventCosts;
using plan::replay;
using plan::Replayed;

namespace {

using Kind = RehearsedTrace::Kind;

// Amounts are seconds.
const EventCosts as_told{[](const RehearsedTrace::Event& e) { return e.amount; },
                         [](const RehearsedTrace::Event& e, const RehearsedTrace::Group&) { return e.amount; }};

struct Made : RehearsedTrace {
  Made() { begin_part(); }
  Made& kernel(double seconds) { return put({.kind = Kind::kernel, .amount = seconds}); }
  Made& product(double seconds) { return put({.kind = Kind::product, .amount = seconds}); }
  Made& call(int group, double seconds) { return put({.kind = Kind::call, .group = group, .amount = seconds}); }
  Made& send(int group, int to, double seconds) { return put({.kind = Kind::send, .group = group, .a = to, .amount = seconds}); }
  Made& receive(int group, int from) { return put({.kind = Kind::receive, .group = group, .a = from}); }
  Made& put(const Event& event) {
    add(event);
    return *this;
  }
  std::uint64_t started(int group, double seconds) { return start({.kind = Kind::start, .group = group, .amount = seconds}); }
  Made& waited(std::uint64_t number) {
    wait(number);
    return *this;
  }
  int ranks(std::string axis, std::uint64_t identity, int rank, int size) {
    return int(group_of({std::move(axis), identity, rank, size}));
  }
};

// The traces of a schedule with actions of these seconds, and messages on `link`.
template <class Schedule>
std::vector<Made> pipeline(int ranks, int micro_batches, schedule::Costs costs, double link) {
  const schedule::Table table = schedule::table<Schedule>(ranks, micro_batches);
  std::vector<Made> traces;
  for (int rank = 0; rank < ranks; ++rank) {
    Made& trace = traces.emplace_back();
    const int group = trace.ranks("pp", 7, rank, ranks);
    const auto tag = [&](int stage, int micro, bool forward) { return (std::int64_t(stage) * 4096 + micro) * 2 + forward; };
    for (const schedule::Action& action : table.orders[std::size_t(rank)]) {
      const int stage = table.stage(rank, action.chunk), last = table.stages() - 1;
      trace.put({.kind = Kind::begin, .operation = char(action.what), .a = stage, .b = action.micro, .c = action.chunk});
      const bool forward = action.what == schedule::Op::F;
      const int from = forward ? stage - 1 : stage + 1, to = forward ? stage + 1 : stage - 1;
      const bool moves = action.what != schedule::Op::W;
      const auto there = [&](int other) { return other >= 0 && other <= last && schedule::rank_of(table, other) != rank; };
      if (moves && there(from))
        trace.put(
            {.kind = Kind::receive, .group = group, .a = schedule::rank_of(table, from), .b = tag(stage, action.micro, forward)});
      trace.put({.kind = Kind::product, .amount = costs.of(action.what)});
      if (moves && there(to))
        trace.put({.kind = Kind::send,
                   .group = group,
                   .a = schedule::rank_of(table, to),
                   .b = tag(to, action.micro, forward),
                   .amount = link});
      trace.put({.kind = Kind::end, .operation = char(action.what), .a = stage, .b = action.micro, .c = action.chunk});
    }
    trace.end_part(true);
  }
  return traces;
}

Replayed replayed(const std::vector<Made>& traces) {
  std::vector<const RehearsedTrace*> all;
  for (const Made& trace : traces) all.push_back(&trace);
  return replay(all, as_told);
}

}  // namespace

TEST_CASE("compute alone: kernels one after the other, by kind") {
  Made trace;
  trace.put({.kind = Kind::begin, .operation = 'F'}).product(3).kernel(1);
  trace.put({.kind = Kind::attention, .amount = 2}).put({.kind = Kind::end, .operation = 'F'}).kernel(5);
  trace.end_part(true);
  const Replayed step = replay({&trace}, as_told);
  CHECK(step.seconds == 11);
  CHECK(step.stages[0].products == 3);
  CHECK(step.stages[0].attention == 2);
  CHECK(step.stages[0].kernels == 1);
  CHECK(step.stages[0].optimizer == 5);
  CHECK(step.stages[0].bubble == 0);
  CHECK(step.stages[0].communication() == 0);
  CHECK(step.stages[0].by_kind.empty());  // kernels without a kind

  Made named;
  const auto norm = [&] { named.put({.kind = Kind::kernel, .a = named.kind_of("norm"), .amount = 2}); };
  named.put({.kind = Kind::begin, .operation = 'F'});
  norm(), norm();
  named.put({.kind = Kind::kernel, .a = named.kind_of("rope"), .amount = 3}).put({.kind = Kind::end, .operation = 'F'});
  norm();  // of the optimizer
  named.end_part(true);
  const auto by_kind = replay({&named}, as_told).stages[0].by_kind;
  CHECK(by_kind.size() == 2);
  CHECK(by_kind.at("norm") == 4);
  CHECK(by_kind.at("rope") == 3);
}

TEST_CASE("a collective is hidden by concurrent computation, and exposed beyond it") {
  for (const double beside : {0.0, 3.0, 4.0, 9.0}) {
    Made trace;
    const int dp = trace.ranks("dp", 1, 0, 8);
    trace.kernel(1);
    const auto reduce = trace.started(dp, 4);
    trace.kernel(beside).waited(reduce).kernel(1).end_part(true);
    const Replayed step = replay({&trace}, as_told);
    const double exposed = std::max(0.0, 4 - beside);
    CHECK(step.seconds == 2 + beside + exposed);
    CHECK(step.stages[0].communication() == exposed);
    if (exposed > 0) CHECK(step.stages[0].exposed.at("dp") == exposed);
  }
}

TEST_CASE("collectives of one communicator take turns, those of two go on at once; a call is waited for") {
  for (const bool same : {true, false}) {
    Made trace;
    const int dp = trace.ranks("dp", 1, 0, 8), tp = trace.ranks("tp", 2, 0, 2);
    const auto first = trace.started(dp, 4), second = trace.started(same ? dp : tp, 4);
    trace.kernel(1).waited(first).waited(second).call(tp, 2).end_part(true);
    const Replayed step = replay({&trace}, as_told);
    CHECK(step.seconds == (same ? 10 : 6));
    CHECK(step.stages[0].exposed.at("tp") == 2);
    CHECK(step.stages[0].exposed.at("dp") == (same ? 7 : 3));
  }
}

TEST_CASE("1F1B with equal actions and free links: the bubble is (p - 1) / m of the work, exactly") {
  for (const auto& [p, m] : {std::pair(1, 4), {2, 4}, {4, 8}, {4, 32}, {8, 8}}) {
    const Replayed step = replayed(pipeline<schedule::OneForwardOneBackward>(p, m, {1, 1, 1}, 0));
    CHECK(step.seconds == 3 * (m + p - 1));
    for (const plan::StageTimes& stage : step.stages) {
      CHECK(stage.products == 3 * m);
      CHECK(stage.bubble == 3 * (p - 1));
      CHECK(stage.communication() == 0);
    }
    CHECK(step.timeline.makespan == step.seconds);
    CHECK(step.table.orders == schedule::table<schedule::OneForwardOneBackward>(p, m).orders);
  }
}

TEST_CASE("other schedules: as the schedule's own simulation, action by action") {
  const auto check = [](const auto& traces, const schedule::Table& table, schedule::Costs costs) {
    const Replayed step = replayed(traces);
    const schedule::Timeline simulated = schedule::simulate(table, costs);
    CHECK(step.seconds == simulated.makespan);
    CHECK(step.timeline.end == simulated.end);
    CHECK(step.timeline.busy == simulated.busy);
    CHECK(step.table.stage_of == table.stage_of);
  };
  const schedule::Costs costs{2, 3, 1};
  check(pipeline<schedule::Interleaved<2>>(4, 8, costs, 0), schedule::table<schedule::Interleaved<2>>(4, 8), costs);
  check(pipeline<schedule::Zbv>(4, 8, costs, 0), schedule::table<schedule::Zbv>(4, 8), costs);
}

TEST_CASE("a send that arrives late: waiting before it was sent is bubble, waiting after is communication") {
  Made first, second;
  const int a = first.ranks("pp", 7, 0, 2), b = second.ranks("pp", 7, 1, 2);
  first.kernel(5).send(a, 1, 2).end_part(true);
  second.kernel(3).receive(b, 0).kernel(1).end_part(true);
  const Replayed step = replay({&first, &second}, as_told);
  CHECK(step.seconds == 8);  // 5, 2 on its way, 1
  CHECK(step.stages[1].bubble == 2);
  CHECK(step.stages[1].exposed.at("pp") == 2);
  CHECK(step.stages[0].bubble == 3);
  // Two messages of one rank use its lane one after the other.
  Made twice, taker;
  const int c = twice.ranks("pp", 7, 0, 2), d = taker.ranks("pp", 7, 1, 2);
  twice.send(c, 1, 2).send(c, 1, 2).end_part(true);
  taker.receive(d, 0).receive(d, 0).end_part(true);
  CHECK(replay({&twice, &taker}, as_told).seconds == 4);
}

TEST_CASE("a collective of the stages begins when the last one is there") {
  Made first, second;
  const int a = first.ranks("pp", 7, 0, 2), b = second.ranks("pp", 7, 1, 2);
  const int alone = first.ranks("dp", 1, 0, 4), other = second.ranks("dp", 2, 0, 4);
  first.kernel(5).call(a, 1).call(alone, 1).end_part(true);
  second.kernel(2).call(b, 1).call(other, 3).end_part(true);
  const Replayed step = replay({&first, &second}, as_told);
  CHECK(step.seconds == 9);
  CHECK(step.stages[1].bubble == 3);
  CHECK(step.stages[1].exposed.at("pp") == 1);
  CHECK(step.stages[1].exposed.at("dp") == 3);
  CHECK(step.stages[0].bubble == 2);
}

TEST_CASE("a ring along an axis of one trace: its neighbours send when it does") {
  Made trace;
  const int cp = trace.ranks("cp", 3, 0, 4);
  trace.send(cp, 1, 4).kernel(3).receive(cp, 3).kernel(1).end_part(true);
  const Replayed step = replay({&trace}, as_told);
  CHECK(step.seconds == 5);
  CHECK(step.stages[0].exposed.at("cp") == 1);
}

TEST_CASE("where cores move messages, nothing is hidden: the rank that waits or receives moves them, once all ranks are there") {
  EventCosts cores = as_told;
  cores.hides_messages = false;
  Made trace;
  const int dp = trace.ranks("dp", 1, 0, 8);
  const auto reduce = trace.started(dp, 4);
  trace.kernel(3).waited(reduce).waited(reduce).kernel(1).end_part(true);
  Replayed step = replay({&trace}, cores);
  CHECK(step.seconds == 8);  // hidden it would be 5; the second wait has nothing left to move
  CHECK(step.stages[0].exposed.at("dp") == 4);
  Made first, second;
  const int a = first.ranks("pp", 7, 0, 2), b = second.ranks("pp", 7, 1, 2);
  first.kernel(5).send(a, 1, 2).kernel(1).end_part(true);
  second.kernel(6).put({.kind = Kind::receive, .group = b, .a = 0, .amount = 2}).kernel(1).end_part(true);
  step = replay({&first, &second}, cores);
  CHECK(step.seconds == 9);  // 6, moved in 2, 1
  CHECK(step.stages[0].bubble == 3);
  CHECK(step.stages[1].bubble == 0);
  CHECK(step.stages[1].exposed.at("pp") == 2);
  Made early, late;
  const int c = early.ranks("pp", 7, 0, 2), d = late.ranks("pp", 7, 1, 2);
  early.call(c, 1).end_part(true);
  late.kernel(4).call(d, 1).end_part(true);
  step = replay({&early, &late}, cores);
  CHECK(step.seconds == 5);
  CHECK(step.stages[0].bubble == 4);
  CHECK(step.stages[0].exposed.at("pp") == 1);
}

TEST_CASE("ranks that share cores compute in turns: the step takes at least their whole work divided by the cores") {
  Made first, second;
  const int a = first.ranks("pp", 7, 0, 2), b = second.ranks("pp", 7, 1, 2);
  first.kernel(6).send(a, 1, 0).end_part(true);
  second.receive(b, 0).kernel(3).end_part(true);
  EventCosts shared = as_told;
  for (const double ranks : {0.5, 1.0, 2.0}) {  // 9 s of work, one rank after the other: two on a core lose nothing
    shared.ranks_per_core = ranks;
    CHECK(replay({&first, &second}, shared).seconds == 9);
  }
  shared.ranks_per_core = 4;  // for example, 4 ranks of 18 s on one core
  const Replayed step = replay({&first, &second}, shared);
  CHECK(step.seconds == doctest::Approx(18));
  for (const plan::StageTimes& stage : step.stages)
    CHECK(stage.products + stage.attention + stage.kernels + stage.optimizer + stage.communication() + stage.bubble ==
          doctest::Approx(step.seconds));
  Made alone;
  alone.put({.kind = Kind::begin, .operation = 'F'}).kernel(3).put({.kind = Kind::end, .operation = 'F'}).end_part(true);
  shared.ranks_per_core = 2;
  const Replayed slower = replay({&alone}, shared);
  CHECK(slower.seconds == doctest::Approx(6));
  CHECK(slower.timeline.makespan == doctest::Approx(6));
}

TEST_CASE("traces without a step, and those that do not fit, are refused in one line") {
  RehearsedTrace none;
  CHECK_THROWS_AS(replay({&none}, as_told), UsageError);
  CHECK_THROWS_AS(replay({}, as_told), UsageError);
  Made first, second;
  const int a = first.ranks("pp", 7, 0, 2), b = second.ranks("pp", 7, 1, 2);
  first.receive(a, 1).end_part(true);
  second.receive(b, 0).end_part(true);
  CHECK_THROWS_AS(replay({&first, &second}, as_told), UsageError);
}
