// SPDX-License-Identifier: Apache-2.0
// Classes that are hooks: those with an event that is called. The texts of the errors are in compile_fail/hooks.cpp.
#include <weft/engine/hooks_check.hpp>

#include <doctest/doctest.h>

#include <weft/engine/hooks.hpp>

using namespace weft;
using namespace weft::detail;

// The test needs a name that hides an event.
#pragma GCC diagnostic ignored "-Woverloaded-virtual"

namespace {

struct Right : Hooks {
  void gradients_ready(Unit&) override {}
};
struct Private : Hooks {
 private:
  void gradients_ready(Unit&) override {}
};
struct Inherited : Right {};
struct Several : Hooks {
  void begin(bool) override {}
  void finish() override {}
};
struct WithoutEvent : Hooks {};
struct Misspelled : Hooks {
  void gradient_ready(Unit&) {}
};
struct OfOtherArguments : Hooks {
  void gradients_ready(Unit) {}
};
struct Const : Hooks {
  void gradients_ready(Unit&) const {}
};
struct OneRightOneWrong : Hooks {
  void begin(bool) override {}
  void finish(int) {}
};
struct NotDerived {
  void gradients_ready(Unit&) {}
};
static_assert(StepHooks<Right> && StepHooks<Private> && StepHooks<Inherited> && StepHooks<Several>);
static_assert(!StepHooks<WithoutEvent> && !StepHooks<Misspelled> && !StepHooks<NotDerived> && !StepHooks<int>);
static_assert(!StepHooks<OfOtherArguments> && !StepHooks<Const> && !StepHooks<OneRightOneWrong>);

}  // namespace

TEST_CASE("an event of a right class is called through the base") {
  struct Counts : Hooks {
    void gradients_ready(Unit& unit) override { ready += unit.complete; }
    int ready = 0;
  } counts;
  static_assert(CheckedHooks<Counts>::said);
  Unit unit;
  Hooks& base = counts;
  base.gradients_ready(unit);
  base.after_backward(unit);
  CHECK(counts.ready == 1);
  CHECK_FALSE(base.sums_data());
}
