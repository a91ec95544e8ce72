// SPDX-License-Identifier: Apache-2.0
#pragma once
// The group of one rank: what an axis of degree 1, and a default-constructed Communicator, talk to. Every collective is a
// copy from input to output, or nothing.

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/errors.hpp>
#include <weft/comm/group.hpp>
#include <weft/comm/reduce.hpp>

namespace weft::comm {

class SelfGroup final : public Group {
 public:
  explicit SelfGroup(std::string axis = "self", std::string_view backend = "self") : axis_(std::move(axis)), backend_(backend) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view axis() const override { return axis_; }
  std::string_view backend() const override { return backend_; }
  bool supports(Operation, DataType, MemoryKind memory) const override { return memory == MemoryKind::host; }

  void execute(const Call& call) override {
    ++sequence_;
    if (call.operation == Operation::send) return send(call);
    if (call.operation == Operation::recv) {
      if (!receive(call)) throw mismatch(call, "rank 0 waits for a message from itself that it has not sent");
      return;
    }
    const bool by_counts = call.operation == Operation::all_gather_v || call.operation == Operation::reduce_scatter_v ||
                           call.operation == Operation::all_to_all_v;
    const std::size_t bytes = (by_counts ? call.receive_counts[0] : call.count) * size_of(call.type);
    if (bytes == 0 || call.input == call.output || call.input == nullptr || call.output == nullptr) return;
    call.order.fence();
    std::memmove(call.output, call.input, bytes);
  }

  std::unique_ptr<Pending> start(const Call& call) override {
    if (call.operation != Operation::recv) {
      execute(call);
      return nullptr;
    }
    ++sequence_;
    if (receive(call)) return nullptr;
    auto expected = std::make_shared<Expected>(Expected{call});
    expected_.push_back(expected);
    return std::make_unique<Later>(*this, std::move(expected));
  }

  std::shared_ptr<Group> split(int, int, std::string axis) override {
    return std::make_shared<SelfGroup>(std::move(axis), backend_);
  }

 private:
  struct Message {
    int tag;
    DataType type;
    std::vector<std::byte> bytes;
  };

  // A receive that was started before its send.
  struct Expected {
    Call call;
    bool done = false;
  };
  class Later final : public Pending {
   public:
    Later(SelfGroup& group, std::shared_ptr<Expected> expected) : group_(group), expected_(std::move(expected)) {}
    bool test() override { return expected_->done; }
    void wait() override {
      if (!test()) throw group_.mismatch(expected_->call, "rank 0 waits for a message from itself that it has not sent");
    }
    void abandon() noexcept override { std::erase(group_.expected_, expected_); }

   private:
    SelfGroup& group_;
    std::shared_ptr<Expected> expected_;
  };

  void send(const Call& call) {
    call.order.fence();
    Message message{call.tag, call.type, {}};
    if (const auto* bytes = static_cast<const std::byte*>(call.input)) message.bytes.assign(bytes, bytes + call.bytes());
    for (auto it = expected_.begin(); it != expected_.end(); ++it) {
      if ((*it)->call.tag != call.tag) continue;
      const auto expected = *it;
      expected_.erase(it);
      take(message, expected->call);
      expected->done = true;
      return;
    }
    messages_.push_back(std::move(message));
  }
  bool receive(const Call& call) {
    for (auto it = messages_.begin(); it != messages_.end(); ++it) {
      if (it->tag != call.tag) continue;
      take(*it, call);
      messages_.erase(it);
      return true;
    }
    return false;
  }
  void take(const Message& message, const Call& call) const {
    if (message.type != call.type || message.bytes.size() != call.bytes())
      throw mismatch(call, "the message holds " + std::to_string(message.bytes.size() / size_of(message.type)) + " " +
                               std::string(name_of(message.type)));
    if (!message.bytes.empty()) std::memcpy(call.output, message.bytes.data(), message.bytes.size());
  }
  MismatchError mismatch(const Call& call, const std::string& text) const { return {0, axis_, describe(call), sequence_, text}; }

  std::string axis_;
  std::string_view backend_;
  std::uint64_t sequence_ = 0;
  std::deque<Message> messages_;
  std::vector<std::shared_ptr<Expected>> expected_;
};

}  // namespace weft::comm
