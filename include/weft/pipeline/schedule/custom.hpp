// SPDX-License-Identifier: Apache-2.0
#pragma once
// A user-defined schedule: a table that the compiler proves, or one that is known only at run time. Both go through the same
// checker and the same executor as the built-in schedules.
//
//   constexpr schedule::Table my_table() { ... }                       // 2 ranks, 4 micro-batches
//   PipelineParallel<models::Gpt> model(mesh, config, {.pipeline = {.schedule = schedule::custom<my_table>()}});
//   PipelineParallel<models::Gpt, schedule::Custom<my_table>> model(mesh, config);              // the same, in the type

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/check.hpp>

namespace weft::schedule {

namespace detail {
template <auto make>
constexpr bool makes_table() {
  static_cast<void>(Table(make()));
  return true;
}
// True if the compiler can evaluate this table. Tested here so that a function that is not constexpr gives one error of weft's
// and not five of the compiler's.
template <auto make>
concept ConstantTable = requires {
  Table(make());
}
&&requires { typename std::bool_constant<makes_table<make>()>; };
}  // namespace detail

/// The schedule whose table `make()` returns; `make` is a constexpr function without arguments. The compiler proves the table, so
/// a table that deadlocks does not compile. It fits only the number of ranks and micro-batches that it was written for.
/// (Compilers limit the steps of a proof: at the default limits a table of 4 ranks and 8 micro-batches is about the largest.
/// Larger tables are proven at run time, by `custom`.)
template <auto make>
struct Custom {
  struct Verdict {
    bool complete, ordered, runs;
  };
  static constexpr bool constant = detail::ConstantTable<make>;
  static constexpr Verdict verdict = [] {
    if constexpr (constant) {
      const Proof proof = prove(make());
      return Verdict{proof.complete, proof.ordered, proof.ok()};
    } else {
      return Verdict{true, true, true};
    }
  }();

  /// Checks the proof at the point where a pipeline takes the schedule. (If the checks were in the class, clang would also report
  /// that the wrapper's argument is not a schedule.)
  static AnySchedule any_schedule() {
    static_assert(constant,
                  "weft: the compiler proves the table of schedule::Custom<f>: f must be a constexpr function without arguments "
                  "that returns a schedule::Table; a table that is only known when the program runs is given as "
                  "ModelOptions{.pipeline = {.schedule = schedule::custom(f())}}");
    static_assert(verdict.complete,
                  "weft: this schedule is not complete: each stage does each micro-batch once, F and either B or I and W");
    static_assert(!verdict.complete || verdict.ordered,
                  "weft: this schedule is out of order: on a rank F goes before B or I, and I before W");
    static_assert(!verdict.ordered || verdict.runs,
                  "weft: this schedule deadlocks, or a rank wants messages in another order than they are sent in");
    if constexpr (constant) return AnySchedule(std::make_shared<const detail::TableSource>(make(), "of the user"));
    else return AnySchedule(nullptr);
  }
};

/// The table that `make()` returns, proven by the compiler (see Custom), for ModelOptions::pipeline.schedule.
template <auto make>
std::shared_ptr<const AnySchedule> custom() {
  return Value<Custom<make>>();
}

/// A table that is known only at run time. Throws LayoutError with the reason if it does not pass the checker.
inline std::shared_ptr<const AnySchedule> custom(Table table, std::string name = "of the user") {
  require_proven(table, "schedule " + name);
  return std::make_shared<const AnySchedule>(std::make_shared<const detail::TableSource>(std::move(table), std::move(name)));
}

}  // namespace weft::schedule
