// SPDX-License-Identifier: Apache-2.0
#pragma once
// Messages between this rank and one other. NCCL has no tags, runs the messages of a stream one after the other and waits for
// both sides, so two ranks that both send first would deadlock. Here the lower of the two ranks keeps the lists of posted
// messages of both, matches them by tag, and announces their order over the host backend. Both ranks then launch in that order,
// on a separate stream and communicator. Types and counts are compared before any launch.

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include <weft/comm/nccl/process.hpp>
#include <weft/core/text.hpp>

namespace weft::comm::nccl {

class Pair {
 public:
  /// `control`: the host backend's group of the same ranks, used for nothing else.
  Pair(Process& process, std::shared_ptr<Group> control, int peer)
      : process_(process), control_(std::move(control)), peer_(peer) {}
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    // After a failure the host's ranks may still hold these few bytes: they are left to them.
    if (listening_) (void)incoming_.release();
    for (Letter& sent : outgoing_) {
      if (!process_.failed()) sent.pending->abandon();
      else (void)sent.note.release();
    }
    process_.retire(comm_);
  }

  void post(const std::shared_ptr<Running>& running) {
    running->rank = leads() ? 0 : 1;
    running->size = 2;
    mine_.push_back(running);
    if (!leads())
      tell(Note{.kind = kind_of(running->call),
                .tag = running->call.tag,
                .type = std::int64_t(running->call.type),
                .count = std::int64_t(running->call.count)});
  }
  /// True if no message waits to be matched or launched.
  bool idle() const { return mine_.empty() && lane_.waiting.empty() && outgoing_.empty(); }
  std::shared_ptr<Running> issuing() const { return lane_.issuing(); }

  void advance() {
    for (auto it = outgoing_.begin(); it != outgoing_.end();) it = it->pending->test() ? outgoing_.erase(it) : std::next(it);
    if (peer_ == control_->rank()) match_own();
    else if (leads()) lead();
    else follow();
    process_.advance(lane_);
  }
  /// Drops all messages that are not launched yet.
  void give_up() {
    mine_.clear();
    lane_.waiting.clear();
  }

 private:
  enum Kind : std::int64_t { sends, receives };  // seen from the rank that does not lead
  /// A note between the two ranks: "I posted this message", or, from the leader, "this message goes next". The leader's first
  /// note also carries the communicator's id.
  struct Note {
    std::int64_t kind = 0, tag = 0, type = 0, count = 0, refused = 0;
    ncclUniqueId id = {};
  };
  struct Letter {
    std::unique_ptr<Note> note;
    std::unique_ptr<Pending> pending;
  };

  bool leads() const { return control_->rank() <= peer_; }
  static std::int64_t kind_of(const Call& call) { return call.operation == Operation::send ? sends : receives; }
  static Call letter(Operation operation, int peer, Note* note) {
    Call call{.operation = operation, .type = DataType::uint8, .root = peer, .count = sizeof(Note)};
    if (operation == Operation::send) call.input = note;
    else call.output = note;
    return call;
  }
  void tell(const Note& note) {
    Letter sent{std::make_unique<Note>(note), nullptr};
    sent.pending = control_->start(letter(Operation::send, peer_, sent.note.get()));
    if (sent.pending) outgoing_.push_back(std::move(sent));
  }
  /// Takes the next note of the other rank; false if none has arrived.
  bool hear(Note& note) {
    if (!listening_) {
      if (!incoming_) incoming_ = std::make_unique<Note>();
      listening_ = control_->start(letter(Operation::recv, peer_, incoming_.get()));
    }
    if (listening_ && !listening_->test()) return false;
    listening_.reset();
    note = *incoming_;
    return true;
  }
  std::shared_ptr<Running> take(std::int64_t kind, std::int64_t tag) {
    for (auto it = mine_.begin(); it != mine_.end(); ++it)
      if (kind_of((*it)->call) == kind && (*it)->call.tag == tag) {
        auto running = *it;
        mine_.erase(it);
        return running;
      }
    return nullptr;
  }
  void connect(const ncclUniqueId& id) {
    comm_ = process_.adopt();
    comm_->connect(2, id, leads() ? 0 : 1);
  }
  void go(std::shared_ptr<Running> running) {
    running->comm = comm_;
    lane_.waiting.push_back(std::move(running));
  }
  static bool same(const Running& running, const Note& note) {
    return std::int64_t(running.call.type) == note.type && std::int64_t(running.call.count) == note.count;
  }
  [[noreturn]] WEFT_COLD void disagree(const Running& running, const Note& note) {
    const std::string theirs = weft::detail::joined({note.count, " ", name_of(DataType(note.type))});
    const bool receiver = running.call.operation == Operation::recv;
    process_.fail<MismatchError>(
        running,
        weft::detail::joined({"rank ", peer_, " of ", running.axis, receiver ? " sent " : " expects ", theirs, ", this rank ",
                              receiver ? "expects " : "sent ", running.call.count, " ", name_of(running.call.type)}));
  }

  void lead() {
    while (!mine_.empty()) {
      for (auto theirs = theirs_.begin(); theirs != theirs_.end();) {
        const auto running = take(theirs->kind == sends ? receives : sends, theirs->tag);
        if (!running) {
          ++theirs;
          continue;
        }
        Note note = *theirs;
        theirs = theirs_.erase(theirs);
        process_.guarded(*running, [&] {
          if (!same(*running, note)) {
            tell(Note{.kind = note.kind,
                      .tag = note.tag,
                      .type = std::int64_t(running->call.type),
                      .count = std::int64_t(running->call.count),
                      .refused = 1});
            disagree(*running, note);
          }
          if (!comm_) {
            check(ncclGetUniqueId(&note.id), "ncclGetUniqueId");
            connect(note.id);
          }
          tell(note);
        });
        go(running);
      }
      Note note;
      if (mine_.empty() || !hear(note)) return;
      theirs_.push_back(note);
    }
  }

  void follow() {
    Note note;
    while (!mine_.empty() && hear(note)) {
      const auto running = take(note.kind, note.tag);
      process_.guarded(*running, [&] {
        if (note.refused != 0) disagree(*running, note);
        if (!comm_) connect(note.id);
      });
      go(running);
    }
  }

  /// Matches messages of this rank to itself.
  void match_own() {
    for (bool any = true; any;) {
      any = false;
      for (const auto& posted : mine_) {
        if (posted->call.operation != Operation::recv) continue;
        const auto sent = take(sends, posted->call.tag);
        if (!sent) continue;
        const auto received = take(receives, sent->call.tag);
        const Note note{
            .kind = sends, .tag = sent->call.tag, .type = std::int64_t(sent->call.type), .count = std::int64_t(sent->call.count)};
        if (!same(*received, note)) disagree(*received, note);
        received->own_message = sent->call.input;
        // The copy waits for both sides' streams; the send is done when the copy is.
        if (sent->before) sent->before->hold_back(lane_.stream.get());
        sent->before.reset();
        go(received);
        go(sent);
        any = true;
        break;
      }
    }
  }

  Process& process_;
  std::shared_ptr<Group> control_;
  int peer_;
  Lane lane_;
  std::shared_ptr<Comm> comm_;
  std::deque<std::shared_ptr<Running>> mine_;  // posted, not matched yet
  std::deque<Note> theirs_;                    // on the leader: the other rank's posts
  std::list<Letter> outgoing_;
  std::unique_ptr<Note> incoming_;
  std::unique_ptr<Pending> listening_;
};

}  // namespace weft::comm::nccl
