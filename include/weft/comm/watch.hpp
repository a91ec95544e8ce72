// SPDX-License-Identifier: Apache-2.0
#pragma once
// The watch over waits between processes. It finds ranks that wait for each other in a circle, and ranks whose calls differ, long
// before their deadline. It costs nothing until a rank has waited for a tenth of a second. Then the rank sends a notice with the
// call that it needs to the ranks for which it waits. A receiver that waits itself, and has not made that call, passes the notice
// on to the ranks for which it waits. A notice that returns to the wait in which it was written has gone round a circle: each
// rank in the circle can make the call that another one needs only after a third has made one, so none of them can continue,
// however late the notices were (K. M. Chandy, J. Misra, L. M. Haas: Distributed deadlock detection, ACM TOCS 1983, for ranks
// that need all of those they wait for).
//
//   Watch::Wait wait(*ledger, call, number, recorder.text(2));
//   wait.on = ranks;
//   ... each time round, once it has waited long:
//   if (const std::string why = watch.look(wait); !why.empty()) throw MismatchError(...);

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <weft/comm/group.hpp>
#include <weft/comm/ledger.hpp>

namespace weft::comm {

class Watch {
 public:
  static constexpr auto patience = std::chrono::milliseconds(100), interval = std::chrono::milliseconds(2);

  /// A wait of this rank, from its first look on.
  struct Wait {
    /// `number` is the call's in the ledger. The ranks that it needs are the caller's to name.
    Wait(const Ledger& ledger, const Call& call, std::uint64_t number, std::string last_calls);

    Step step;             ///< the call that the others have to make
    std::vector<int> on;   ///< their numbers in the world
    std::string call;      ///< this rank's own call: "recv of 4 float32 with tag 0 from rank 1"
    std::string axis;      ///< of its communicator
    std::string function;  ///< " in train_step": where the rank makes it, if it is a function of weft
    std::string last;      ///< the rank's last calls
    std::uint64_t id = 0;  ///< set by the watch
    std::size_t told = 0;  ///< the number of ranks that have the notice
  };

  /// `world`: a number that other worlds of these processes do not have. Their late notices are none of this one's.
  explicit Watch(int rank, std::uint64_t world = 0) : rank_(rank), world_(world) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  /// A new account, for a communicator of this process: channels go up. It is kept as long as the caller keeps it, and a while
  /// after.
  std::shared_ptr<Ledger> open(std::uint64_t channel, const std::string& axis);

  /// A turn of a long wait. Empty, or the reason why the wait can never end.
  std::string look(Wait& wait);
  /// Sends the text of a disagreement on that communicator (any of its channels) to all other ranks. It becomes the error of
  /// their long waits there.
  void accuse(std::uint64_t channel, const std::string& why) { accuse(std::vector<std::uint64_t>{channel / 2}, why); }
  /// Empty, or the messages that were sent and never received. Collective over `all`, the group of all ranks, at their end.
  std::string unreceived(Group& all) const;
  /// Takes in the notices that have come, now and then: the other ranks' memory for them is not to grow.
  void tidy() {
    if (++turns_ % 256 == 0) take_in();
  }

 protected:
  /// Sends a notice without waiting. Rank is a number in the world.
  virtual void send(int rank, const std::string& notice) = 0;
  /// Receives a notice, if one has come.
  virtual bool receive(std::string& notice) = 0;
  virtual int size() const = 0;

 private:
  struct Notice {
    int origin = 0, sender = 0;                // its author, and the rank that passed it on
    std::uint64_t wait = 0;                    // the origin's; 0: an accusation
    Step step;                                 // the call that the sender needs from this rank
    std::string story;                         // the waits so far, or the accusation
    std::vector<std::uint64_t> communicators;  // of these waits: half of their channels' numbers
    std::uint64_t passed = 0;                  // the wait of this rank in which it was passed on
  };
  std::string packed(const Notice& notice) const;
  bool unpack(const std::string& bytes, Notice& notice) const;

  void accuse(std::vector<std::uint64_t> communicators, const std::string& why);
  /// The accusation of a communicator, or empty.
  std::string accusation(std::uint64_t channel) const;

  void take_in();
  /// Passes a notice on to the ranks that `wait` needs, from `from` to `to`; without a notice writes one.
  void pass_on(const Wait& wait, const Notice* notice, std::size_t from, std::size_t to);
  const Ledger* ledger(std::uint64_t channel) const;
  /// True if this rank has made the call, or has given the communicator up so long ago that its account is gone.
  bool made(const Notice& notice) const {
    const Ledger* known = ledger(notice.step.channel);
    return known == nullptr ? notice.step.channel <= opened_ : known->has(notice.step, notice.sender);
  }
  /// Drops the accounts of communicators that have ended, but for the newest; of their messages the sums stay.
  void forget_closed();
  /// The text for a notice whose sender's call is not the one that this rank made in its place; else empty.
  std::string difference(const Notice& notice) const;

  static constexpr std::size_t most_closed = 64, at_once = 16, longest_story = 2000, most_communicators = 64;

  int rank_;
  std::uint64_t world_;
  std::vector<std::shared_ptr<Ledger>> ledgers_;
  std::size_t crowded_ = 2 * most_closed;     // with so many accounts it looks for closed ones
  std::uint64_t opened_ = 0, forgotten_ = 0;  // the highest channel; one past the highest whose messages have no account
  std::vector<std::uint64_t> past_sent_, past_received_;  // messages of accounts that are gone, by rank
  std::vector<Notice> notices_, accusations_;
  std::uint64_t waits_ = 0, turns_ = 0;
  std::chrono::steady_clock::time_point looked_ = {};
};

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/watch_impl.hpp>
#endif
