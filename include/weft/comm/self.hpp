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
#include <weft/core/inline.hpp>

namespace weft::comm {

class SelfGroup final : public Group {
 public:
  explicit SelfGroup(std::string axis = "self", std::string_view backend = "self") : axis_(std::move(axis)), backend_(backend) {}

  WEFT_INLINE int rank() const override;
  WEFT_INLINE int size() const override;
  WEFT_INLINE std::string_view axis() const override;
  WEFT_INLINE std::string_view backend() const override;
  WEFT_INLINE bool supports(Operation operation, DataType, MemoryKind memory) const override;

  WEFT_INLINE void execute(const Call& call) override;

  WEFT_INLINE std::unique_ptr<Pending> start(const Call& call) override;

  WEFT_INLINE std::shared_ptr<Group> split(int, int, std::string axis) override;

 private:
  struct Message {
    int tag;
    DataType type;
    std::size_t bytes;
    std::unique_ptr<std::byte[]> copy;
    std::unique_ptr<Message> next;
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

  void send(const Call& call);
  bool receive(const Call& call);
  void take(DataType type, std::size_t bytes, const void* from, const Call& call) const;
  void copy_on_device(const Call& call, std::size_t bytes) const;
  [[noreturn]] void refuse(const Call& call, const std::string& text) const;

  std::string axis_;
  std::string_view backend_;
  std::uint64_t sequence_ = 0;
  std::unique_ptr<Message> messages_;  // not received yet, the oldest first
  IntrusiveList<Later, &Later::next> expected_;
};

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/self_impl.hpp>
#endif
