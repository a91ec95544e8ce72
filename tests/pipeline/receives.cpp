// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/schedule/receives.hpp weft/pipeline/schedule/simulate.hpp
// The moments at which ranks post receives, for every schedule: no receive is posted before its message can be sent, none later
// than its buffer allows, and messages are hidden as if all receives were posted at once.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <weft/pipeline/schedule/check.hpp>
#include <weft/pipeline/schedule/messages.hpp>
#include <weft/pipeline/schedule/named.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/pipeline/schedule/receives.hpp>
#include <weft/pipeline/schedule/simulate.hpp>

using namespace weft::schedule;

namespace {

constexpr Receive receive_for(const Table& table, int rank, std::size_t use) {
  for (const Receive& receive : receives(table, rank))
    if (receive.use == use) return receive;
  return {};
}

// The example of the header: rank 1 of 1F1B on 4 ranks.
static_assert([] {
  const Table table = weft::schedule::table<OneForwardOneBackward>(4, 8);
  const Order& order = table.orders[1];
  return order[10] == Action{Op::F, 0, 6} && order[7] == Action{Op::B, 0, 2} && receive_for(table, 1, 10) == Receive{8, 10, true};
}());

/// Calls f(name, table) for every schedule that has an order for these numbers; the members of pairs run in turn.
void each_table(const std::function<void(const std::string&, const Table&)>& f) {
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zbv", "dualpipev"})
    for (const int ranks : {1, 2, 3, 4, 8})
      for (const int micro_batches : {2 * ranks, 2 * ranks + 1, 4 * ranks}) {
        Table table = named_table(name, ranks, micro_batches, 0);
        for (Order& order : table.orders)
          for (Action& action : order) action.with_next = false;
        f(name + " of " + std::to_string(ranks) + " ranks, " + std::to_string(micro_batches) + " micro-batches", table);
      }
}

/// True if a message is sent although its receiver does no more than its first `actions` actions.
bool is_sent(Table table, int receiver, std::size_t actions, const Message& message) {
  table.orders[std::size_t(receiver)].resize(actions);
  const Timeline timeline = simulate(table);
  const Order& order = table.orders[std::size_t(message.from)];
  for (std::size_t i = 0; i < timeline.end[std::size_t(message.from)].size(); ++i)
    if (sent_by(table, message.from, order[i]) == message) return true;
  return false;
}

/// The makespan if a message takes `message` from the moment at which it is sent and its receive is posted. `posts[rank][i]`: the
/// action before which the receive for the i-th action is posted.
double makespan(const Table& table, const std::vector<std::vector<std::size_t>>& posts, Costs costs, double message) {
  const auto arrival = [&](const Timeline& timeline, std::size_t rank, std::size_t i, double made) {
    const std::size_t post = posts[rank][i];
    return std::max(made, post == 0 ? 0.0 : timeline.end[rank][post - 1]) + message;
  };
  return simulate(
             table, [costs](int, Op what) { return costs.of(what); }, arrival)
      .makespan;
}

std::vector<std::vector<std::size_t>> posts_of(const Table& table) {
  std::vector<std::vector<std::size_t>> posts;
  for (int rank = 0; rank < table.ranks; ++rank) {
    auto& mine = posts.emplace_back(table.orders[std::size_t(rank)].size(), 0);
    for (const Receive& receive : receives(table, rank)) mine[receive.use] = receive.post;
  }
  return posts;
}

/// Receives that are posted `most` messages ahead in each direction, whatever the schedule is.
std::vector<std::vector<std::size_t>> fixed_posts(const Table& table, std::size_t most) {
  std::vector<std::vector<std::size_t>> posts;
  for (int rank = 0; rank < table.ranks; ++rank) {
    const Order& order = table.orders[std::size_t(rank)];
    auto& mine = posts.emplace_back(order.size(), 0);
    for (const bool forward : {true, false}) {
      std::vector<std::size_t> uses;
      for (std::size_t i = 0; i < order.size(); ++i)
        if (const Message m = wanted_by(table, rank, order[i]); m.from >= 0 && m.forward == forward) uses.push_back(i);
      for (std::size_t k = most; k < uses.size(); ++k) mine[uses[k]] = uses[k - most] + 1;
    }
  }
  return posts;
}

}  // namespace

TEST_CASE("every message has one receive, in the order of use, no later than its use") {
  std::size_t messages = 0;
  each_table([&](const std::string& name, const Table& table) {
    INFO(name);
    for (int rank = 0; rank < table.ranks; ++rank) {
      const Order& order = table.orders[std::size_t(rank)];
      std::vector<int> found(order.size(), 0);
      std::size_t last = 0, last_use[2] = {0, 0};
      for (const Receive& receive : receives(table, rank)) {
        CHECK(receive.post <= receive.use);
        CHECK(receive.post >= last);
        CHECK((last_use[receive.forward] == 0 || receive.use > last_use[receive.forward]));
        last = receive.post, last_use[receive.forward] = receive.use;
        ++found[receive.use], ++messages;
      }
      for (std::size_t i = 0; i < order.size(); ++i) {
        const Message wanted = wanted_by(table, rank, order[i]);
        CHECK(found[i] == (wanted.from >= 0));
      }
    }
  });
  CHECK(messages > 5000);
}

TEST_CASE("a receive is posted when its message can be sent, and not before") {
  each_table([&](const std::string& name, const Table& table) {
    if (table.ranks > 4 || table.micro_batches > 9) return;
    INFO(name);
    for (int rank = 0; rank < table.ranks; ++rank) {
      std::size_t earliest[2] = {0, 0};  // a receive is not posted before one of its direction that is used sooner
      for (const Receive& receive : receives(table, rank, std::size_t(-1))) {  // buffers for all messages
        const Message wanted = wanted_by(table, rank, table.orders[std::size_t(rank)][receive.use]);
        CHECK(wanted.forward == receive.forward);
        std::size_t& least = earliest[receive.forward];
        std::size_t alone = 0;
        while (!is_sent(table, rank, alone, wanted)) ++alone;
        least = std::max(least, alone);
        CHECK(receive.post == least);
      }
    }
  });
}

TEST_CASE("posted receives take the place of activations, or are three a direction") {
  std::size_t most = 0;
  each_table([&](const std::string& name, const Table& table) {
    INFO(name);
    const Proof proof = prove(table);
    for (int rank = 0; rank < table.ranks; ++rank) {
      const Order& order = table.orders[std::size_t(rank)];
      const std::size_t peak = std::size_t(proof.peak[std::size_t(rank)]);
      std::size_t held = 0;
      for (std::size_t i = 0; i < order.size(); ++i) {
        std::size_t posted = 0;
        for (const Receive& receive : receives(table, rank)) posted += receive.post <= i && receive.use >= i;
        CHECK(held + posted <= peak + 2 * always_posted);
        most = std::max(most, posted);
        if (order[i].what == Op::F) ++held;
        if (order[i].what == Op::B || order[i].what == Op::W) --held;
      }
    }
  });
  CHECK(most >= 32);  // GPipe of 32 micro-batches, which holds as many activations later
}

TEST_CASE("messages are hidden as if all receives were posted at once") {
  double slowest_fixed = 1;
  each_table([&](const std::string& name, const Table& table) {
    const auto derived = posts_of(table), fixed = fixed_posts(table, always_posted);
    for (const Costs costs : {Costs{1, 1, 1}, Costs{1, 2, 1}, Costs{2, 3, 2}})
      for (const double message : {0.0, 0.3, 0.7, 1.2, 2.0, 3.0, 4.0, 6.0, 10.0}) {
        INFO(name, ", a message of ", message, ", an input gradient of ", costs.input);
        const double at_once = simulate(table, costs, message).makespan, found = makespan(table, derived, costs, message),
                     three = makespan(table, fixed, costs, message);
        CHECK(found >= at_once);
        CHECK(found <= three);
        if (message <= 4 * costs.forward || !name.starts_with("gpipe")) CHECK(found == doctest::Approx(at_once).epsilon(1e-12));
        slowest_fixed = std::max(slowest_fixed, three / at_once);
      }
  });
  CHECK(slowest_fixed > 1.5);  // GPipe with messages of ten forwards
}

TEST_CASE("a forward without a backward has three receives posted") {
  Table table = named_table("gpipe", 3, 16, 0);
  for (Order& order : table.orders) std::erase_if(order, [](const Action& action) { return action.what != Op::F; });
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<Receive> all = receives(table, rank);
    CHECK(all.size() == (rank == 0 ? 0 : 16));
    for (const Receive& receive : all) CHECK(receive.post == (receive.use < 3 ? 0 : receive.use - 2));
  }
}
