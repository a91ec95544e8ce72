// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group whose other ranks do not exist: every operation is recorded and completes at once. Host memory gets the result that
// ranks with equal values would get; the memory of a rehearsed device is not touched.
//
//   Rehearsal notes;
//   Communicator world(std::make_shared<comm::RehearsedGroup>(17, 2048, "world", notes), comm::rehearsed_order());

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <weft/comm/group.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/rehearsal.hpp>

namespace weft::comm {

/// The number of other ranks with which `rank` exchanges elements in an all_to_all_v.
std::size_t exchange_peers(const Call& call, int rank);

/// The stream order of communicators whose device is rehearsed: it distinguishes the device's memory from the host's.
StreamOrder rehearsed_order();

class RehearsedGroup final : public Group {
 public:
  /// `identity`: the same number for all ranks of the group, and for no others.
  RehearsedGroup(int rank, int size, std::string axis, Rehearsal& notes, std::uint64_t identity = 0)
      : rank_(rank), size_(size), axis_(std::move(axis)), notes_(&notes), identity_(identity) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view axis() const override { return axis_; }
  std::string_view backend() const override { return "rehearsal"; }
  bool rehearsed() const override { return true; }
  bool supports(Operation, DataType, MemoryKind) const override { return true; }

  // Inline already here: a class with a virtual function that is not gets its table in every object file.
  WEFT_INLINE void execute(const Call& call) override;
  WEFT_INLINE std::unique_ptr<Pending> start(const Call& call) override;
  /// Throws UsageError: the colors of the other ranks are not known.
  WEFT_INLINE std::shared_ptr<Group> split(int color, int key, std::string axis) override;
  WEFT_INLINE std::shared_ptr<Group> split_placed(int color, int key, std::string axis, const SplitPlace& place) override;

 private:
  void answer(const Call& call) const;
  void note(const Call& call) const;
  RehearsedTrace::Event traced(const Call& call, RehearsedTrace::Kind kind) const;

  int rank_, size_;
  std::string axis_;
  Rehearsal* notes_;
  std::uint64_t identity_;
};

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/rehearsal_impl.hpp>
#endif
