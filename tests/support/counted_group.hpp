// SPDX-License-Identifier: Apache-2.0
#pragma once
// A communicator around one of any backend that counts its calls and their bytes as a rehearsal does.
//
//   Rehearsal counts;
//   World world(counted(real.communicator(), counts), real.device());

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/comm/group.hpp>
#include <weft/comm/rehearsal.hpp>

namespace weft_test {

class CountedGroup final : public weft::comm::Group {
 public:
  CountedGroup(std::shared_ptr<weft::comm::Group> group, weft::Rehearsal& counts) : group_(std::move(group)), counts_(&counts) {}
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string_view axis() const override { return group_->axis(); }
  std::string_view backend() const override { return group_->backend(); }
  bool supports(weft::comm::Operation operation, weft::DataType type, weft::comm::MemoryKind memory) const override {
    return group_->supports(operation, type, memory);
  }
  void execute(const weft::comm::Call& call) override {
    count(call);
    group_->execute(call);
  }
  std::unique_ptr<weft::comm::Pending> start(const weft::comm::Call& call) override {
    count(call);
    return group_->start(call);
  }
  void check() override { group_->check(); }
  void end() override { group_->end(); }
  std::shared_ptr<weft::comm::Group> split(int color, int key, std::string axis) override {
    return std::make_shared<CountedGroup>(group_->split(color, key, std::move(axis)), *counts_);
  }

 private:
  void count(const weft::comm::Call& call) {
    counts_->sent(axis(), name_of(call.operation), weft::comm::message_bytes(call, size()));
  }
  std::shared_ptr<weft::comm::Group> group_;
  weft::Rehearsal* counts_;
};

inline weft::Communicator counted(const weft::Communicator& real, weft::Rehearsal& counts) {
  return weft::Communicator(std::make_shared<CountedGroup>(real.group(), counts), real.order());
}

}  // namespace weft_test
