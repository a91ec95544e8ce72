// SPDX-License-Identifier: Apache-2.0
// The calls of a Module's children: the events of wrappers and their order, for children that share parameters, call others and
// are still active; and the time at which gradients become ready.

#include <doctest/doctest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <weft/engine/child_calls.hpp>
#include <weft/engine/plain_accumulator.hpp>

using namespace weft;

namespace {

using detail::ChildCalls;
using Exec = DefaultDevice::execution_space;

struct Noted : detail::Hooks {
  std::string log;
  bool each = true;
  bool reduces_each_micro_batch() const override { return each; }
  void before_forward(detail::Unit& unit) override { log += "+" + unit.name + " "; }
  void after_forward(detail::Unit& unit) override { log += "-" + unit.name + " "; }
  void before_backward(detail::Unit& unit) override { log += "<" + unit.name + " "; }
  void after_backward(detail::Unit& unit) override { log += ">" + unit.name + " "; }
  void gradients_ready(detail::Unit& unit) override {
    log += "!" + unit.name + " ";
    for (ParameterState* state : unit.parameters) state->gradients().renew();
  }
};

/// A Module of parts a, b and c, each of one parameter.
struct Parts {
  DefaultDevice device;
  detail::PlainAccumulator<Exec> accumulator{device};
  Noted noted;
  std::vector<detail::Hooks*> hooks{&noted};
  std::deque<ParameterState> states;
  std::vector<detail::Unit> whole, trained;
  int root = 0;
  ChildCalls calls{&root};

  Parts() {
    for (const char* name : {"a", "b", "c"}) {
      ParameterInfo info;
      info.name = name;
      info.global = info.local = Shape{2};
      info.type = info.gradient_type = DataType::float32;
      info.runs = {{0, 0, 2}};
      whole.push_back({name, {&states.emplace_back(std::move(info))}});
    }
    trained = whole;
    calls.split(whole, trained);
    calls.begin_step();
  }
  void ask(std::size_t part) { states[part].ask(); }
  /// A child that uses these parts, one after the other.
  std::size_t child(const std::vector<std::size_t>& parts, bool records = true) {
    calls.begin();
    for (const std::size_t part : parts) ask(part);
    return calls.end(records);
  }
  void child_backward(std::size_t call, const std::vector<std::size_t>& parts) {
    calls.begin_backward();
    for (const std::size_t part : parts) ask(part);
    calls.end_backward(call);
  }
  std::string seen() { return std::exchange(noted.log, {}); }
};

}  // namespace

TEST_CASE("a child's parts are there while it runs, the Module's own until it returns") {
  Parts module;
  CHECK(module.calls.splits());
  CHECK(module.calls.is_root(&module.root));
  CHECK(!module.calls.is_root(nullptr));
  module.calls.begin_unit(module.hooks, false);
  module.ask(0);
  CHECK(!module.calls.inside());
  module.child({1, 0, 1, 2}, false);
  module.ask(0);
  module.child({1}, false);
  module.calls.end_unit();
  CHECK(module.seen() == "+a +b +c -c -b +b -b -a ");
  module.ask(1);  // no child runs
  CHECK(module.seen().empty());
  CHECK(module.calls.asked_trainable() == 8);
  module.states[1].set_trainable(false);
  module.ask(1);
  CHECK(module.calls.asked_trainable() == 8);
}

TEST_CASE("gradients are ready when the last backward of a part's calls has ended") {
  Parts module;
  module.calls.begin_unit(module.hooks, false);
  const std::size_t first = module.child({1}), second = module.child({1, 2});
  module.ask(0);
  module.calls.end_unit();
  module.seen();
  module.calls.begin_unit(module.hooks, true);
  module.calls.reduce_early(module.accumulator, false);
  module.ask(0);
  module.child_backward(second, {2, 1});
  CHECK(module.seen() == "<a <c <b >b >c !c ");
  module.child_backward(first, {1});
  CHECK(module.seen() == "<b >b !b ");
  module.calls.end_unit();
  module.calls.ready(module.accumulator, module.hooks, false);
  CHECK(module.seen() == ">a !a ");
}

TEST_CASE("several calls may wait, a part that is added to again is ready again, and numbers of calls are used again") {
  Parts module;
  std::vector<std::size_t> open;
  for (int call = 0; call < 2; ++call) {
    module.calls.begin_unit(module.hooks, false);
    open.push_back(module.child({1}));
    module.calls.end_unit();
  }
  CHECK(open[0] != open[1]);
  module.seen();
  for (const std::size_t call : {open[0], open[1]}) {
    module.calls.begin_unit(module.hooks, true);
    module.calls.reduce_early(module.accumulator, false);
    module.child_backward(call, {});
    if (call == open[1]) module.states[1].gradients().fill();
    module.calls.end_unit();
    module.calls.ready(module.accumulator, module.hooks, false);
    // b waits for the other call; a and c are in no call.
    CHECK(module.seen() == (call == open[0] ? "!c !a " : "!b !c !b !a "));
  }
  module.calls.begin_unit(module.hooks, false);
  const std::size_t again = module.child({1});
  CHECK((again == open[0] || again == open[1]));
  module.calls.end_unit();
  module.calls.ready(module.accumulator, module.hooks, true);  // the last one: all waiting gradients
  CHECK(module.seen() == "+b -b !c !b !a ");
}

TEST_CASE("a Module that is one unit is only counted") {
  ChildCalls calls(nullptr);
  ParameterInfo info;
  info.name = "weight";
  info.global = info.local = Shape{2};
  ParameterState state(std::move(info));
  state.watch(calls, 0);
  CHECK(!calls.splits());
  calls.begin_unit({}, false);
  state.ask();
  calls.end_unit();
  CHECK(calls.asked_trainable() == 1);
  CHECK(calls.kept_counts() == 0);
  calls.keeps_counts();
  CHECK(calls.kept_counts() == 1);
}
