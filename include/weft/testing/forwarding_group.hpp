// SPDX-License-Identifier: Apache-2.0
#pragma once
// The base of a Group around another one, for tests: questions go to the group inside, and a derived class changes the calls.
//
//   class DelayedGroup final : public ForwardingGroup { ... void execute(const comm::Call& call) override; ... };

#include <memory>
#include <string_view>
#include <utility>

#include <weft/comm/group.hpp>

namespace weft::testing::detail {

class ForwardingGroup : public comm::Group {
 public:
  explicit ForwardingGroup(std::shared_ptr<comm::Group> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view axis() const override { return inner_->axis(); }
  std::string_view backend() const override { return inner_->backend(); }
  bool rehearsed() const override { return inner_->rehearsed(); }
  bool supports(comm::Operation operation, DataType type, comm::MemoryKind memory) const override {
    return inner_->supports(operation, type, memory);
  }
  comm::Flight flight() override { return inner_->flight(); }
  void end() override { inner_->end(); }
  void check() override { inner_->check(); }
  void watch(const comm::StreamOrder& order) override { inner_->watch(order); }

 protected:
  std::shared_ptr<comm::Group> inner_;
};

}  // namespace weft::testing::detail
