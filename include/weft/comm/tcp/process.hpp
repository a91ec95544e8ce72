// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that all groups of a process share over its mesh: its connections, and notice of how the other processes end. Each
// process keeps one receive open from every other process: it gets a last message or breaks with the connection, so that a lost
// rank is named within milliseconds, whatever this process waits for.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/shared_memory/group.hpp>
#include <weft/comm/store/heartbeat.hpp>
#include <weft/comm/tcp/message.hpp>
#include <weft/comm/tcp/watch.hpp>

namespace weft::comm::tcp {

/// The connections of a rank after the rendezvous.
struct Met {
  std::shared_ptr<Mesh> mesh;
  std::unique_ptr<store::Server> server = nullptr;        ///< on rank 0
  std::unique_ptr<store::Heartbeat> heartbeat = nullptr;  ///< null in a world of one
};

class Process final : public shared_memory::Sharing {
 public:
  Process(Met met, std::chrono::duration<double> wait_at_most, bool check)
      : Sharing(met.mesh->rank(), wait_at_most, check),
        mesh(std::move(met.mesh)),
        words_(std::size_t(mesh->size())),
        server_(std::move(met.server)),
        heartbeat_(std::move(met.heartbeat)) {
    recorder.belongs_to(rank, mesh->size(), "tcp");
  }

  const std::shared_ptr<Mesh> mesh;
  std::vector<std::shared_ptr<void>> given_up;  ///< failed operations whose envelopes may still be sent
  std::uint64_t next_group = 1;

  /// The end of a rank.
  struct Word {
    std::int64_t code = 0;     ///< its exit code, 0 after success
    std::int64_t primary = 0;  ///< nonzero: the error was its own
    bool heard = false, broken = false;
    bool invalid = false;  ///< its connection delivered bytes that are no valid frame
    std::string problem;   ///< of its connection
    std::chrono::steady_clock::time_point when = {};
    std::unique_ptr<Buffer> buffer = nullptr;
    std::int64_t bytes[2] = {0, 0};
  };
  const std::vector<Word>& words() const { return words_; }

  /// Posts the receives; to be called once all processes are connected.
  void listen() {
    for (int q = 0; q < mesh->size(); ++q) {
      if (q == rank) continue;
      Word& word = words_[std::size_t(q)];
      word.buffer = mesh->buffer(word.bytes, sizeof word.bytes);
      try {
        word.buffer->recv(q, slot(Kind::notice, 0, 0), 0, sizeof word.bytes);
      } catch (const Broken& error) {  // it ended right after the meeting: the first operation names it
        lose(word, error);
      }
    }
    watch = std::make_unique<Notices>(mesh);
  }

  bool disturbed() const override { return mesh->disturbed() || (heartbeat_ && heartbeat_->disturbed()); }
  /// The lowest rank that failed or was lost, or -1. A rank whose bytes were no valid frame comes first, since the others may
  /// have ended because this rank closed that connection.
  int lost() override {
    int first = -1, invalid = -1;
    for (int q = mesh->size() - 1; q >= 0; --q) {
      Word& word = words_[std::size_t(q)];
      if (word.buffer && !word.heard && !word.broken) {
        try {
          if (word.buffer->received()) {
            word.heard = true;
            word.when = std::chrono::steady_clock::now();
            word.code = word.bytes[0];
            word.primary = word.bytes[1];
          }
        } catch (const Broken& error) {
          lose(word, error);
        }
      }
      // One that failed because of another is not the one to name: the other's end will show in a moment, or once this rank
      // misses its heartbeats, too.
      const std::chrono::milliseconds moment(heartbeat_ ? 1500 : 200);
      const bool counts =
          word.heard && word.code != 0 && (word.primary != 0 || std::chrono::steady_clock::now() - word.when > moment);
      if (word.broken || counts) first = q;
      if (word.invalid) invalid = q;
    }
    if (invalid >= 0) return invalid;
    if (heartbeat_ && heartbeat_->disturbed()) return heartbeat_->lost();
    return first >= 0 ? first : silent();
  }
  /// The lowest rank whose end is known, whoever was the first to fail, or -1.
  int ended() {
    const int first = lost();
    for (int q = 0; first < 0 && q < mesh->size(); ++q)
      if (words_[std::size_t(q)].heard && words_[std::size_t(q)].code != 0) return q;
    return first;
  }
  /// A description of the end of that rank.
  std::string fate(int q) const override {
    const Word& word = words_[std::size_t(q)];
    if (heartbeat_ && !word.invalid && heartbeat_->disturbed() && heartbeat_->lost() == q) return heartbeat_->fate();
    if (word.broken)
      return weft::detail::joined(
          {"rank ", q, " is lost, ", word.invalid ? "" : "its process ended or ", "its connection broke (", word.problem, ")"});
    if (!word.heard && heartbeat_ && heartbeat_->lost() == q) return heartbeat_->fate();
    return "rank " + std::to_string(q) + " failed with exit code " + std::to_string(word.code);
  }

  /// True if a connection was given up for bytes that are no valid frame: the error is this rank's to report.
  bool found_invalid_frame() const {
    return std::any_of(words_.begin(), words_.end(), [](const Word& word) { return word.invalid; }) ||
           (heartbeat_ && heartbeat_->found_invalid_frame());
  }

  /// Sends all other processes the end of this one, and waits for at most `patience` until they have it. After a failure it also
  /// waits for their notices.
  void tell(std::int64_t code, bool primary, std::chrono::milliseconds patience) {
    if (heartbeat_) heartbeat_->leave();
    std::int64_t bytes[2] = {code, primary};
    std::vector<std::unique_ptr<Buffer>> buffers(words_.size());
    lost();
    for (int q = 0; q < mesh->size(); ++q) {
      if (q == rank || words_[std::size_t(q)].broken) continue;
      try {
        auto buffer = mesh->buffer(bytes, sizeof bytes);
        buffer->send(q, slot(Kind::notice, 0, 0), 0, sizeof bytes);
        buffers[std::size_t(q)] = std::move(buffer);
      } catch (const std::exception&) {  // gone already
      }
    }
    const auto end = std::chrono::steady_clock::now() + patience;
    for (bool waits = true; waits && std::chrono::steady_clock::now() < end;) {
      waits = false;
      lost();
      for (std::size_t q = 0; q < words_.size(); ++q) {
        if (int(q) == rank || words_[q].broken) continue;
        try {
          if (buffers[q] && !buffers[q]->sent()) waits = true;
        } catch (const std::exception&) {}
        if (code != 0 && !words_[q].heard) waits = true;
      }
      if (waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  static void lose(Word& word, const Broken& error) {
    word.broken = true;
    word.invalid = error.invalid();
    word.problem = error.what();
  }
  /// The rank whose heartbeats have stopped, or -1. The end of its connection takes precedence: it comes with an exit code.
  int silent() {
    const int q = heartbeat_ ? heartbeat_->lost() : -1;
    if (q < 0 || q == rank || words_[std::size_t(q)].heard) return -1;
    const auto now = std::chrono::steady_clock::now();
    if (silent_since_ == std::chrono::steady_clock::time_point{}) silent_since_ = now;
    return now - silent_since_ > std::chrono::milliseconds(500) ? q : -1;
  }

  std::vector<Word> words_;
  std::chrono::steady_clock::time_point silent_since_{};
  std::unique_ptr<store::Server> server_;
  std::unique_ptr<store::Heartbeat> heartbeat_;  // ends before the store does
};

}  // namespace weft::comm::tcp
