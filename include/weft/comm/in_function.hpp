// SPDX-License-Identifier: Apache-2.0
#pragma once
// The mark of a function of weft that a program has called: while it lives, the rank's calls carry the function's name, for
// errors between ranks. The mark is in the rank's flight recorder, which all communicators of the rank share.
//
//   const comm::InFunction mark(model.communicator(), comm::ProgramFunction::train_step);

#include <weft/comm/communicator.hpp>
#include <weft/comm/program_function.hpp>

namespace weft::comm {

/// Marks this rank until it ends. A mark inside of another one changes nothing: the program called the outer function. Thread:
/// the rank's own.
class InFunction {
 public:
  /// `ranks`: any communicator of the rank; one without a record (a rank that is alone) has no errors between ranks.
  InFunction(const Communicator& ranks, ProgramFunction function) {
    FlightRecorder* const recorder = ranks.group()->flight().recorder;
    if (recorder == nullptr || recorder->function() != ProgramFunction::none) return;
    group_ = ranks.group();
    recorder->in(function);
    if (function == ProgramFunction::train_step) recorder->times().begin_step();
  }
  InFunction(const InFunction&) = delete;
  InFunction& operator=(const InFunction&) = delete;
  ~InFunction() {
    if (!group_) return;
    FlightRecorder& recorder = *group_->flight().recorder;
    if (recorder.function() == ProgramFunction::train_step) recorder.times().end_step();
    recorder.in(ProgramFunction::none);
  }

 private:
  std::shared_ptr<Group> group_;  // keeps the recorder
};

}  // namespace weft::comm
