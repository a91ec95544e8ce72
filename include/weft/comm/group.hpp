// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface that a backend implements: three functions for all operations. Collectives are coarse, so the interface is
// virtual, and models are compiled once instead of once for each backend.
//
//   group.execute({.operation = Operation::barrier});

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <weft/comm/flight_recorder.hpp>
#include <weft/comm/operation.hpp>
#include <weft/comm/request.hpp>
#include <weft/device/block_source.hpp>

namespace weft::comm {

/// The place of a communicator in its rank's flight recorder; null of a group that keeps no record (that of one rank).
struct Flight {
  FlightRecorder* recorder = nullptr;
  FlightRecorder::Line* line = nullptr;

  TimesPlace times() const { return recorder == nullptr ? TimesPlace() : TimesPlace{&recorder->times(), line->times}; }
};

/// A rank's place in the group that a split makes.
struct SplitPlace {
  int rank = 0, size = 1;
};

/// The ranks of one communicator, seen from one of them. The typed layer has already checked counts and ranks.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view axis() const = 0;
  virtual std::string_view backend() const = 0;
  /// True if the other ranks do not exist (comm/rehearsal.hpp).
  virtual bool rehearsed() const { return false; }
  /// Memory for tensors that the other ranks read where they lie, if the ranks are processes of one machine
  /// (comm/shared_memory/heap.hpp); else null.
  virtual const weft::detail::BlockSource* shared_blocks() const { return nullptr; }
  /// The backend's table of traits.
  virtual bool supports(Operation, DataType, MemoryKind) const = 0;

  virtual void execute(const Call& call) = 0;
  /// Starts an operation. The call's spans are copied; its buffers must live until the operation is complete.
  virtual std::unique_ptr<Pending> start(const Call& call) = 0;
  /// The end of a program's ranks that are processes: returns when every rank has called it. Throws if another rank is not at its
  /// end, or if a message was sent and never received.
  virtual void end() { execute({.operation = Operation::barrier, .purpose = Purpose::end}); }
  /// Throws if this rank's communication has failed. Asks no other rank.
  virtual void check() {}
  /// Watches work on a stream that was recorded with operations of these ranks (a CUDA graph), as an operation in flight is: at
  /// the deadline it ends with an error. To be called after each launch of the recording.
  virtual void watch(const StreamOrder&) {}
  virtual Flight flight() { return {}; }
  /// The group of all ranks that give the same color, ordered by key, then by rank in this group. Collective.
  virtual std::shared_ptr<Group> split(int color, int key, std::string axis) = 0;
  /// The same if the caller has computed this rank's place in the new group: a rehearsal has no other ranks.
  virtual std::shared_ptr<Group> split_placed(int color, int key, std::string axis, const SplitPlace&) {
    return split(color, key, std::move(axis));
  }
};

/// A backend: a type with a name, a table of traits, a test of the environment (did its launcher start this program?), and a
/// Session, which owns the library for the life of the program.
template <class B>
concept Backend = requires {
  { B::name } -> std::convertible_to<std::string_view>;
  { B::supports(Operation::all_reduce, DataType::float32, MemoryKind::host) } -> std::same_as<bool>;
  { B::detected() } -> std::same_as<bool>;
  typename B::Session;
};

}  // namespace weft::comm
