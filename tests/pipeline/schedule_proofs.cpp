// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/schedule/check.hpp weft/pipeline/schedule/dualpipev.hpp weft/pipeline/schedule/zbv.hpp
// covers: weft/pipeline/schedule/named.hpp weft/pipeline/schedule/simulate.hpp
// Every schedule for up to 8 ranks and 32 micro-batches: proven, with the bubble and peaks that it states; golden orders; and
// tables with one mistake each, which the checker must refuse for that reason.

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <weft/pipeline/schedule/check.hpp>
#include <weft/pipeline/schedule/dualpipev.hpp>
#include <weft/pipeline/schedule/gpipe.hpp>
#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/named.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/zbv.hpp>
#include <weft/pipeline/schedule/zero_bubble.hpp>

using namespace weft::schedule;

namespace {

std::string line(const Table& table, int rank) {
  std::string text;
  for (const auto& action : to_strings(table, rank)) text += (text.empty() ? "" : " ") + action;
  return text;
}

/// The statement of S for all counts; for unequal costs only if `exact(P, M, costs)`.
template <class S, class Exact>
void check_all(Exact exact) {
  std::size_t tables = 0;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int micro = 1; micro <= 32; ++micro) {
      if (!S::applies(ranks, micro)) continue;
      ++tables;
      for (const Costs costs : {Costs{}, Costs{2, 3, 2}, Costs{3, 2, 1}, Costs{5, 4, 4}}) {
        const bool unit = costs.forward == 1;
        const Proof proof = prove<S>(ranks, micro, costs);
        INFO(std::string(S::name), " ranks ", ranks, " micro-batches ", micro, " forward ", costs.forward);
        CHECK((proof.ok() && proof.weights_in_order));
        if (unit || exact(ranks, micro)) CHECK(proof.bubble == S::bubble(ranks, micro, costs));
        for (int rank = 0; rank < ranks; ++rank) CHECK(proof.peak[std::size_t(rank)] == S::peak(rank, ranks, micro));
      }
      for (int rank = 0; rank < ranks; ++rank)
        for (int chunk = 0; chunk < S::chunks; ++chunk) {
          const int stage = S::stage(rank, chunk, ranks);
          CHECK((S::rank_of(stage, ranks) == rank && S::chunk_of(stage, ranks) == chunk));
        }
    }
  CHECK(tables > 100);
}

const auto always = [](int, int) { return true; };
const auto never = [](int, int) { return false; };

Table two_ranks() { return table<OneForwardOneBackward>(2, 3); }

}  // namespace

TEST_CASE("gpipe") { check_all<GPipe>(always); }
TEST_CASE("1f1b") { check_all<OneForwardOneBackward>(always); }
TEST_CASE("interleaved") {
  check_all<Interleaved<1>>(always);
  check_all<Interleaved<2>>(always);
  check_all<Interleaved<3>>(always);
}
TEST_CASE("zb-h1") { check_all<ZeroBubbleH1>(always); }
TEST_CASE("interleaved-zb") {
  check_all<InterleavedZeroBubble<2>>([](int ranks, int micro) { return micro >= ranks; });
  check_all<InterleavedZeroBubble<3>>([](int ranks, int micro) { return micro >= ranks; });
}
TEST_CASE("zbv") { check_all<Zbv>(never); }
TEST_CASE("dualpipev") { check_all<DualPipeV>(never); }

TEST_CASE("zbv and dualpipev of unequal times") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int micro = 2 * ranks; micro <= 4 * ranks + 1; ++micro)
      for (const Costs costs : {Costs{}, Costs{2, 3, 2}, Costs{1, 2, 1}, Costs{5, 6, 4}, Costs{1, 3, 1}}) {
        INFO("ranks ", ranks, " micro-batches ", micro, " input ", costs.input);
        if (costs.input <= costs.forward + costs.weight)
          CHECK(prove<Zbv>(ranks, micro, costs).bubble == Zbv::bubble(ranks, micro, costs));
        Table in_turns = table<DualPipeV>(ranks, micro);
        for (Order& order : in_turns.orders)
          for (Action& action : order) action.with_next = false;
        if (costs.weight == costs.forward && (costs.input == costs.forward || costs.input >= 2 * costs.weight))
          CHECK(prove(in_turns, costs).bubble == DualPipeV::bubble_in_turns(ranks, costs));
      }
}

TEST_CASE("figures of the literature") {
  CHECK(prove<OneForwardOneBackward>(4, 8).makespan == 33);  // 8 · 3 + 3 · 3
  CHECK(prove<ZeroBubbleH1>(4, 8, {2, 2, 3}).bubble == 6);   // longer weight steps: the formula gives 3
  CHECK(prove<DualPipeV>(4, 8).bubble == 6);                 // 2 (P − 1)
  CHECK(prove<DualPipeV>(4, 8, {2, 3, 2}).bubble == 16);     // stated as 18
  const Timeline zbv = simulate(table<Zbv>(4, 8)), unequal = simulate(table<Zbv>(4, 8), Costs{2, 3, 2});
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(zbv.end[rank].back() - zbv.start[rank].front() == zbv.busy[rank]);  // no idle time inside a rank
    CHECK(unequal.end[rank].back() - unequal.start[rank].front() - unequal.busy[rank] == 6 - double(rank));
  }
  CHECK(prove<Interleaved<2>>(4, 8).peak == std::vector<int>{11, 9, 7, 5});
  CHECK(prove<ZeroBubbleH1>(4, 8).peak == std::vector<int>{4, 4, 4, 4});
}

TEST_CASE("golden orders") {
  CHECK(line(table<OneForwardOneBackward>(4, 8), 0) == "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7");
  CHECK(line(table<OneForwardOneBackward>(4, 8), 3) == "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7");
  CHECK(line(table<Interleaved<2>>(2, 4), 0) == "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
  CHECK(line(table<Interleaved<2>>(2, 4), 1) == "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
  CHECK(line(table<ZeroBubbleH1>(4, 8), 0) ==
        "0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0F6 0I3 0W3 0F7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7");
  CHECK(line(table<ZeroBubbleH1>(4, 8), 3) ==
        "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3F6 3I6 3W3 3F7 3I7 3W4 3W5 3W6 3W7");
  CHECK(line(table<Zbv>(2, 3), 1) == "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2");
  CHECK(line(table<DualPipeV>(2, 4), 1) == "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0) (1F3;2B1) (2F3;1B1) 2B2 1B2 2I3 1I3 2W3 1W3");
}

TEST_CASE("a number of micro-batches that a schedule has no order for is refused with the nearest that works") {
  CHECK_THROWS_WITH_AS(require<DualPipeV>(4, 5),
                       "weft: schedule dualpipev with pp(4) and micro-batches(5): needs micro-batches >= 2 * pp; the nearest "
                       "number of micro-batches that works is 8",
                       weft::LayoutError);
  CHECK_THROWS_WITH_AS(require<OneForwardOneBackward>(4, 0),
                       "weft: schedule 1f1b with pp(4) and micro-batches(0): needs at least one rank and one micro-batch; the "
                       "nearest number of micro-batches that works is 1",
                       weft::LayoutError);
  CHECK_NOTHROW(require<Interleaved<2>>(4, 1));
}

TEST_CASE("each single mistake in a table is found and named") {
  CHECK(prove(two_ranks()).ok());
  Table table = two_ranks();
  table.orders[1].pop_back();  // an action is missing
  CHECK_FALSE(prove(table).complete);
  table = two_ranks();
  table.orders[0].push_back({Op::B, 0, 0});  // one is there twice
  CHECK_FALSE(prove(table).complete);
  table = two_ranks();
  table.orders[0][0].micro = 7;  // out of range
  CHECK_FALSE(prove(table).complete);
  table = two_ranks();
  table.stage_of[1][0] = 0;  // a stage on two ranks
  CHECK_FALSE(prove(table).complete);
  table = two_ranks();
  table.orders[1][1] = {Op::I, 0, 0};  // input gradient without weight gradient
  CHECK_FALSE(prove(table).complete);

  table = two_ranks();
  std::swap(table.orders[1][0], table.orders[1][1]);  // backward before forward on one rank
  CHECK(prove(table).complete);
  CHECK_FALSE(prove(table).ordered);
  table = two_ranks();
  table.orders[0].back().with_next = true;  // half a pair
  CHECK_FALSE(prove(table).ordered);

  table = two_ranks();  // rank 0 needs the gradient of micro-batch 1 before it sends the activation for it
  table.orders[0] = {{Op::F, 0, 0}, {Op::F, 0, 1}, {Op::B, 0, 1}, {Op::F, 0, 2}, {Op::B, 0, 0}, {Op::B, 0, 2}};
  table.orders[1] = {{Op::F, 0, 0}, {Op::F, 0, 2}, {Op::B, 0, 0}, {Op::F, 0, 1}, {Op::B, 0, 1}, {Op::B, 0, 2}};
  CHECK(prove(table).ordered);
  CHECK_FALSE(prove(table).no_deadlock);

  table = weft::schedule::table<GPipe>(2, 3);  // sent 0 1 2, received 0 2 1: only tags could distinguish these
  table.orders[1] = {{Op::F, 0, 0}, {Op::F, 0, 2}, {Op::F, 0, 1}, {Op::B, 0, 0}, {Op::B, 0, 1}, {Op::B, 0, 2}};
  CHECK(prove(table).no_deadlock);
  CHECK_FALSE(prove(table).pairwise);

  table = weft::schedule::table<GPipe>(2, 3);  // backwards in reverse, as looped breadth-first pipelines do
  for (auto& order : table.orders) std::swap(order[3], order[5]);
  CHECK(prove(table).ok());
  CHECK_FALSE(prove(table).weights_in_order);
}

TEST_CASE("messages in place: blocked sends meet their receives, and crossed ones are found") {
  const Table table = weft::schedule::table<OneForwardOneBackward>(4, 6);
  auto steps = with_messages(table);
  CHECK(runs_with_rendezvous(steps));
  CHECK(received_before_use(table, steps));
  std::size_t sends = 0, receives = 0;
  for (const auto& rank : steps)
    for (const Step& step : rank) sends += step.kind == Step::Kind::send, receives += step.kind == Step::Kind::receive;
  CHECK(sends == 2 * 3 * 6);
  CHECK(receives == sends);

  auto& last = steps[3];  // two receives exchanged: each would receive the other's message
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < last.size(); ++i)
    if (last[i].kind == Step::Kind::receive) at.push_back(i);
  std::swap(last[at[0]], last[at[1]]);
  CHECK_FALSE(runs_with_rendezvous(steps));
}

TEST_CASE("stages of unequal cost") {
  const Table table = weft::schedule::table<OneForwardOneBackward>(2, 4);
  const Timeline timeline =
      simulate(table, [](int stage, Op what) { return (stage == 0 ? 1.0 : 3.0) * (what == Op::F ? 1 : 2); });
  CHECK(timeline.busy == std::vector<double>{12, 36});
  CHECK(timeline.makespan == 1 + 36 + 2);  // the slow stage never waits between its first and last action
}
