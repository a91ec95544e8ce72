// SPDX-License-Identifier: Apache-2.0
#pragma once
// The group of one rank, used by axes of degree 1 and default-constructed Communicators. Every collective is a copy from input to
// output, or nothing.

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <weft/comm/errors.hpp>
#include <weft/comm/group.hpp>
#include <weft/comm/intrusive_list.hpp>
#include <weft/core/owner.hpp>

namespace weft::comm {

class SelfGroup final : public Group {
 public:
  explicit SelfGroup(std::string axis = "self", std::string_view backend = "self") : axis_(std::move(axis)), backend_(backend) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view axis() const override { return axis_; }
  std::string_view backend() const override { return backend_; }
  bool supports(Operation operation, DataType, MemoryKind memory) const override { return memory == MemoryKind::host || !is_point_to_point(operation); }

  void execute(const Call& call) override {
    ++sequence_;
    if (call.operation == Operation::send) return send(call);
    if (call.operation == Operation::recv) {
      if (!receive(call)) refuse(call, "rank 0 waits for a message from itself that it has not sent");
      return;
    }
    const bool by_counts = call.operation == Operation::all_gather_v || call.operation == Operation::reduce_scatter_v ||
                           call.operation == Operation::all_to_all_v;
    const std::size_t bytes = (by_counts ? call.receive_counts[0] : call.count) * size_of(call.type);
    if (bytes == 0 || call.input == call.output || call.input == nullptr || call.output == nullptr) return;
    if (call.memory == MemoryKind::device) return copy_on_device(call, bytes);
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
    return std::unique_ptr<Pending>(new Later(*this, call));
  }

  std::shared_ptr<Group> split(int, int, std::string axis) override {
    return weft::detail::new_shared<SelfGroup>(std::move(axis), backend_);
  }

 private:
  struct Message {
    int tag;
    DataType type;
    std::size_t bytes;
    std::unique_ptr<std::byte[]> copy;
    weft::detail::Owner<Message> next;
  };

  // A receive that was started before its send.
  class Later final : public Pending {
   public:
    Later(SelfGroup& group, const Call& call) : call(call), group_(group) { group_.expected_.append(*this); }
    Later(const Later&) = delete;
    Later& operator=(const Later&) = delete;
    ~Later() override {
      if (!done) group_.expected_.remove(*this);
    }
    bool test() override { return done; }
    void wait() override {
      if (!done) group_.refuse(call, "rank 0 waits for a message from itself that it has not sent");
    }
    void abandon() noexcept override {}

    const Call call;
    bool done = false;
    Later* next = nullptr;

   private:
    SelfGroup& group_;
  };

  void send(const Call& call) {
    call.order.fence();
    for (Later* expected = expected_.first(); expected != nullptr; expected = expected->next) {
      if (expected->call.tag != call.tag) continue;
      expected_.remove(*expected);
      take(call.type, call.bytes(), call.input, expected->call);
      expected->done = true;
      return;
    }
    weft::detail::Owner<Message>* last = &messages_;
    while (*last) last = &(*last)->next;
    last->reset(new Message{call.tag, call.type, call.bytes(), std::unique_ptr<std::byte[]>(new std::byte[call.bytes()]), {}});
    if (call.bytes() != 0) std::memcpy((*last)->copy.get(), call.input, call.bytes());
  }
  bool receive(const Call& call) {
    for (weft::detail::Owner<Message>* at = &messages_; *at; at = &(*at)->next) {
      if ((*at)->tag != call.tag) continue;
      const weft::detail::Owner<Message> message = std::move(*at);
      *at = std::move(message->next);
      take(message->type, message->bytes, message->copy.get(), call);
      return true;
    }
    return false;
  }
  void take(DataType type, std::size_t bytes, const void* from, const Call& call) const {
    if (type != call.type || bytes != call.bytes())
      refuse(call, weft::detail::joined({"the message holds ", bytes / size_of(type), " ", name_of(type)}));
    if (bytes != 0) std::memcpy(call.output, from, bytes);
  }
  WEFT_COLD void copy_on_device(const Call& call, std::size_t bytes) const {
    if (call.order.device == nullptr) refuse(call, "this communicator knows no device: take the one of World or Mesh");
    call.order.device->copy(call.order.stream(call.order.instance), call.output, call.input, bytes);
  }
  [[noreturn]] WEFT_COLD void refuse(const Call& call, const std::string& text) const {
    throw MismatchError(0, axis_, describe(call), sequence_, text);
  }

  std::string axis_;
  std::string_view backend_;
  std::uint64_t sequence_ = 0;
  weft::detail::Owner<Message> messages_;  // not received yet, the oldest first
  IntrusiveList<Later, &Later::next> expected_;
};

}  // namespace weft::comm
