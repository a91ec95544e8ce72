// SPDX-License-Identifier: Apache-2.0
#pragma once
// Messages between two thread ranks, matched by sender and tag, first in first out. Short messages are copied when sent; of
// longer ones the receiver copies straight from the sender's memory, and the sender waits for that.

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include <weft/comm/operation.hpp>
#include <weft/comm/threads/world.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::threads {

inline constexpr std::size_t eager_bytes = 8192;

struct Message {
  int from, tag;
  ProgramFunction function;  // the sender's
  DataType type;
  std::size_t count;
  const void* data;  // the sender's, or in `copy`
  std::unique_ptr<std::byte[]> copy;
  std::atomic<bool> taken{false};
  std::shared_ptr<Message> next;  // the next one in its mailbox
};

class Receive;

/// The messages in flight to one rank of a group.
class Mailbox {
 public:
  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() {
    while (oldest_) oldest_ = std::exchange(oldest_->next, nullptr);  // one by one: a chain would end itself by recursion
  }

  void send(const std::shared_ptr<Message>& message);
  void expect(Receive& receive);
  void forget(Receive& receive);
  /// The oldest message that was never received, or null: to be asked once no rank uses the mailbox any more.
  const Message* unreceived() const { return oldest_.get(); }

 private:
  std::mutex mutex_;
  std::shared_ptr<Message> oldest_;  // of the messages for which no receive was posted yet
  Message* newest_ = nullptr;
  Receive* expected_ = nullptr;  // the oldest posted receive without a message
};

/// A send whose buffer the receiver still has to read.
class Send final : public Advancing {
 public:
  Send(Rank& self, std::shared_ptr<Message> message, bool eager, int to) : self_(self), message_(std::move(message)), to_(to) {
    complete_ = eager;
  }
  int waits_for() const override { return to_; }
  bool advance() override {
    if (complete_ || !message_->taken.load(std::memory_order_seq_cst)) return false;  // seq_cst: see World::wake
    complete_ = true;
    self_.advances.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

 private:
  Rank& self_;
  std::shared_ptr<Message> message_;
  int to_;
};

class Receive final : public Advancing {
 public:
  Receive(World& world, Mailbox& mailbox, std::span<const int> members, int rank, const Call& call)
      : world_(world), mailbox_(mailbox), members_(members), rank_(members[std::size_t(rank)]), call_(call) {
    mailbox_.expect(*this);
  }
  Receive(const Receive&) = delete;
  Receive& operator=(const Receive&) = delete;
  WEFT_INLINE ~Receive() override;

  WEFT_INLINE bool advance() override;
  int waits_for() const override { return sender(); }

 private:
  friend class Mailbox;
  bool wants(const Message& message) const { return message.from == call_.root && message.tag == call_.tag; }
  int sender() const { return members_[std::size_t(call_.root)]; }
  void match(std::shared_ptr<Message> message) {
    message_ = std::move(message);
    matched_.store(true, std::memory_order_seq_cst);  // see World::wake
  }

  World& world_;
  Mailbox& mailbox_;
  std::span<const int> members_;
  int rank_;  // its number in the world
  Call call_;
  std::shared_ptr<Message> message_;
  std::atomic<bool> matched_{false};
  Receive* next_ = nullptr;  // the next one in the mailbox
};

}  // namespace weft::comm::threads

#ifndef WEFT_COMPILED
#include <weft/comm/threads/mailbox_impl.hpp>
#endif
