// SPDX-License-Identifier: Apache-2.0
// The plain accumulator: the order of notifications, gradients without additions, sums of losses, the norm of counted parts.
// covers: weft/engine/gradient_accumulator.hpp
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <weft/engine/gradient_accumulator.hpp>
#include <weft/engine/plain_accumulator.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Accumulator = detail::PlainAccumulator<Exec>;

struct Noted : detail::Hooks {
  std::string name;
  std::vector<std::string>* log;
  bool data, each;
  Noted(std::string called, std::vector<std::string>& into, bool sums, bool every)
      : name(std::move(called)), log(&into), data(sums), each(every) {}
  bool sums_data() const override { return data; }
  bool reduces_each_micro_batch() const override { return each; }
  void begin_sums(detail::GradientAccumulator&) override { log->push_back(name + " begins"); }
  void gradients_ready(detail::Unit& unit) override { log->push_back(name + (unit.complete ? " all" : " some")); }
  void finish() override { log->push_back(name + " ends"); }
};

ParameterState parameter(std::size_t size) {
  ParameterInfo info;
  info.name = "weight";
  info.global = info.local = Shape{size};
  info.type = info.gradient_type = DataType::float32;
  info.runs = {{0, 0, size}};
  return ParameterState(std::move(info));
}

}  // namespace

TEST_CASE("wrappers are notified innermost first, after the last micro-batch or after each") {
  for (const bool each : {false, true}) {
    DefaultDevice device;
    Accumulator accumulator(device);
    std::vector<std::string> log;
    Noted outer("outer", log, true, each), inner("inner", log, false, false);
    std::vector<detail::Hooks*> hooks{&outer, &inner};
    ParameterState state = parameter(3);
    detail::Unit unit{"unit", {&state}};
    accumulator.begin({}, hooks, 0, 1);
    accumulator.ready(unit, hooks, false);
    accumulator.ready(unit, hooks, true);
    accumulator.finish({}, {}, hooks);
    std::vector<std::string> expected{"outer begins", "inner begins"};
    if (each) expected.insert(expected.end(), {"inner some", "outer some"});
    expected.insert(expected.end(), {"inner all", "outer all", "outer ends", "inner ends"});
    CHECK(log == expected);
  }
}

TEST_CASE("a gradient to which no layer added is zero when it is ready, and others are left alone") {
  DefaultDevice device;
  Accumulator accumulator(device);
  ParameterState untouched = parameter(3);
  detail::Unit unit{"unit", {&untouched}};
  untouched.gradients().begin_step();
  accumulator.ready(unit, {}, true);
  REQUIRE(untouched.gradient());
  for (int i = 0; i < 3; ++i) CHECK(static_cast<const float*>(untouched.gradient().get())[i] == 0);
  static_cast<float*>(untouched.gradient().get())[1] = 7;
  accumulator.ready(unit, {}, true);
  CHECK(static_cast<const float*>(untouched.gradient().get())[1] == 7);
}

TEST_CASE("losses are one term, a norm counts the parts that this rank counts and those that are not finite") {
  DefaultDevice device;
  Accumulator accumulator(device);
  CHECK(accumulator.loss_terms({1, 2, 4}, 1, 3) == std::vector<double>{7});
  ParameterState state = parameter(1);
  double squares[] = {9, 16, 100};
  struct Next {
    const double* at;
  } next{squares};
  const detail::SquaredNorm square{
      &next, [](void* optimizer, const detail::GradientPart&, double* out) { *out = *static_cast<Next*>(optimizer)->at++; }};
  const std::vector<detail::GradientPart> parts{{&state, {}, true}, {&state, {}, true}, {&state, {}, false}};
  CHECK(accumulator.norm(Communicator(), parts, square) == 5);
  next.at = squares;
  squares[2] = std::numeric_limits<double>::infinity();
  CHECK(!std::isfinite(accumulator.norm(Communicator(), parts, square)));
}
