// SPDX-License-Identifier: Apache-2.0
#pragma once
// The thread ranks of an elastic run. A seat is the place of a rank in the process: it keeps the rank's copies while the ranks
// change. The program runs on some of the seats for one generation of the world; when a rank is lost or can join, the next
// generation begins with the seats that are there.
//
//   Seats seats(options, ranks);
//   const comm::RunResult ending = seats.run(deadline, body);   // body(group) on each rank, once in each generation

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/errors.hpp>
#include <weft/comm/run_result.hpp>
#include <weft/comm/threads.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/elastic/copies.hpp>
#include <weft/elastic/member.hpp>
#include <weft/elastic/options.hpp>
#include <weft/elastic/world_record.hpp>

namespace weft::elastic::detail {

/// The end of a rank's function.
enum class Ending {
  returned,
  changed,  ///< between two steps, since ranks join
  aborted,  ///< another rank failed
  lost,     ///< by an error of its own, which the others survive
  fatal     ///< by an error that would recur: a wrong option, calls that do not match, a stop request
};

/// The ending that an exception means. Call it in a handler.
inline Ending ending_of_current() {
  try {
    throw;
  } catch (const WorldChange&) {
    return Ending::changed;
  } catch (const AbortedError&) {
    return Ending::aborted;
  } catch (const MismatchError&) {
    return Ending::fatal;
  } catch (const TimeoutError&) {
    return Ending::fatal;
  } catch (const StateLostError&) {
    return Ending::fatal;
  } catch (const Error& error) {
    const int code = error.exit_code();
    return code == 2 || code == 3 || code == 4 || code == InterruptedError::code ? Ending::fatal : Ending::lost;
  } catch (...) {
    return Ending::lost;
  }
}

/// `count` of the candidates, such that together they hold as many parts of the state as possible: first of the newest generation
/// whose parts are all there, then of older ones. A generation without all its parts restores nothing, so it does not count. Each
/// candidate has the parts that it holds; the result is sorted.
inline std::vector<int> chosen(const std::map<int, HeldParts>& candidates, int count) {
  std::map<std::uint64_t, HeldParts, std::greater<>> missing;  // by generation, the newest first
  for (const auto& [seat, parts] : candidates)
    for (const HeldPart& part : parts) missing[part.generation].insert(part);
  std::erase_if(missing, [](const auto& generation) { return generation.second.size() < generation.second.begin()->of; });
  std::vector<int> taken;
  while (int(taken.size()) < count) {
    int best = -1;
    std::vector<std::ptrdiff_t> most;
    for (const auto& [seat, parts] : candidates) {
      if (std::find(taken.begin(), taken.end(), seat) != taken.end()) continue;
      std::vector<std::ptrdiff_t> added;  // parts of each generation; compared lexicographically
      for (const auto& generation : missing)
        added.push_back(
            std::count_if(parts.begin(), parts.end(), [&](const HeldPart& part) { return generation.second.contains(part); }));
      if (best >= 0 && added <= most) continue;
      best = seat;
      most = std::move(added);
    }
    taken.push_back(best);
    for (auto& generation : missing)
      for (const HeldPart& part : candidates.at(best)) generation.second.erase(part);
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

/// Prints a line about the ranks.
inline void say(weft::detail::Words words) {
  std::fprintf(stderr, "weft: elastic: %s\n", weft::detail::joined(words).c_str());
  std::fflush(stderr);
}

/// Prints and records a change of the ranks, `change.text` so far, after which `ranks` go on.
inline void announce(Change change, int ranks) {
  change.ranks = ranks;
  weft::detail::append_to(change.text, {": ", ranks, ranks == 1 ? " rank goes on" : " ranks go on"});
  say({change.text});
  record_change(change);
}

/// The reason why a run ends with `left` of its `ranks`.
inline std::string too_few(const Options& options, int left, std::size_t ranks) {
  return weft::detail::joined({"elastic ", options.least, ":", options.most > 0 ? options.most : int(ranks), ": ", left, " of ",
                               ranks, " ranks are left, too few to go on",
                               options.checkpoint.empty() ? "" : ": " + restart_advice(options)});
}

/// The beginning of the reason why a run ends that makes no progress.
inline constexpr std::string_view too_fast = "elastic: ranks are lost faster than a step ends; ";

class Seats {
 public:
  using Body = std::function<void(std::shared_ptr<comm::Group>)>;

  Seats(const Options& options, int ranks) : options_(options), seats_(std::size_t(ranks)) {
    require_served(options_, ranks);
    for (Seat& seat : seats_) seat.member = std::make_unique<Member>();
  }

  comm::RunResult run(std::chrono::duration<double> deadline, const Body& body) {
    Change news;  // of the ranks since the generation before
    for (std::uint64_t generation = 0, stalled = 0, newest = 0;; ++generation) {
      const std::vector<int> taken = take_seats();
      if (taken.empty()) return ended_by_loss(too_few(options_, available(), seats_.size()) + "; the last one was lost by: ");
      const bool continues = begin(taken, generation);
      if (!news.text.empty()) {
        news.generation = generation;
        announce(news, int(taken.size()));
      }
      const comm::RunResult ending = comm::threads::run(
          int(taken.size()), deadline,
          [&](const std::shared_ptr<comm::Group>& group) { run_one(taken[std::size_t(group->rank())], generation, group, body); },
          deadline);
      const auto all = [&](Ending wanted) {
        return std::all_of(taken.begin(), taken.end(), [&](int seat) { return seats_[std::size_t(seat)].ending == wanted; });
      };
      if (!ending.complete || (all(Ending::returned) && !ending.error)) return ending;
      std::uint64_t reached = 0;
      for (const int seat : taken) {
        reached = std::max(reached, seats_[std::size_t(seat)].member->newest());
        confirmed_ = confirmed_ || seats_[std::size_t(seat)].member->confirmed();
      }
      if (all(Ending::changed) && !ending.error) {
        news = {.step = reached, .text = weft::detail::joined({"ranks join after step ", reached})};
        continue;
      }
      if (auto fatal = fatal_error(taken)) return {*fatal, ending.rank, true};
      news = lose(taken, reached);
      if (news.text.empty()) return ending;  // an error that no rank has thrown, such as a message that was never received
      stalled = continues && reached > newest ? 0 : stalled + 1;
      newest = std::max(newest, reached);
      if (stalled > seats_.size() + 8) return ended_by_loss(std::string(too_fast) + "the last one was lost by: ");
    }
  }

  /// The member that runs with this group; a member that does nothing if there is none, as in a rehearsal.
  Member& member_of(const comm::Group* group) {
    const std::lock_guard lock(mutex_);
    const auto at = running_.find(group);
    return at == running_.end() ? nobody_ : *at->second;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Seat {
    std::unique_ptr<Member> member;
    bool free = true;                       // its rank runs or waits
    std::optional<Clock::time_point> back;  // when a new rank takes the seat of a lost one
    Ending ending = Ending::returned;
    std::exception_ptr error;
  };

  int available() {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    return int(std::count_if(seats_.begin(), seats_.end(),
                             [&](const Seat& seat) { return seat.free || (seat.back && *seat.back <= now); }));
  }

  // The seats of the next generation. Waits for replacements if too few ranks are left.
  std::vector<int> take_seats() {
    for (;;) {
      int count = served(options_, available());
      std::optional<Clock::time_point> next;
      {
        const std::lock_guard lock(mutex_);
        const auto now = Clock::now();
        std::map<int, HeldParts> candidates;
        for (std::size_t i = 0; i < seats_.size(); ++i) {
          Seat& seat = seats_[i];
          if (seat.back && *seat.back <= now) {
            seat.free = true;
            seat.back.reset();
          }
          if (seat.free) candidates[int(i)] = seat.member->parts();
          else if (seat.back) next = next ? std::min(*next, *seat.back) : *seat.back;
        }
        if (count > 0) return chosen(candidates, count);
      }
      if (!next) return {};
      std::this_thread::sleep_until(*next);
    }
  }

  // Returns whether the generation continues from copies. If all ranks that have finished a step were lost, it does, too: spares
  // do not begin the run again, but find that the state is lost.
  bool begin(const std::vector<int>& taken, std::uint64_t generation) {
    const bool continues = confirmed_;
    for (const int seat : taken) {
      seats_[std::size_t(seat)].ending = Ending::aborted;
      seats_[std::size_t(seat)].error = nullptr;
      seats_[std::size_t(seat)].member->begin(options_, generation, continues, [this] { return available(); });
    }
    return continues;
  }

  void run_one(int number, std::uint64_t generation, std::shared_ptr<comm::Group> group, const Body& body) {
    Seat& seat = seats_[std::size_t(number)];
    // The name shows the change in errors and in the files of the flight recorder.
    if (generation > 0) group = group->split(0, group->rank(), weft::detail::joined({"world ", generation + 1}));
    const comm::Group* const key = group.get();
    {
      const std::lock_guard lock(mutex_);
      running_[key] = seat.member.get();
    }
    const auto forget = [&] {
      const std::lock_guard lock(mutex_);
      running_.erase(key);
    };
    try {
      body(std::move(group));
      seat.ending = Ending::returned;
      forget();
    } catch (...) {
      seat.ending = ending_of_current();
      seat.error = std::current_exception();
      forget();
      if (seat.ending != Ending::changed) throw;
    }
  }

  std::optional<std::exception_ptr> fatal_error(const std::vector<int>& taken) const {
    for (const int seat : taken)
      if (seats_[std::size_t(seat)].ending == Ending::fatal) return seats_[std::size_t(seat)].error;
    return std::nullopt;
  }

  // Takes the seats of lost ranks out; the change that names them, without a text if none was lost.
  Change lose(const std::vector<int>& taken, std::uint64_t reached) {
    Change change{.step = reached};
    std::string& text = change.text;
    const std::lock_guard lock(mutex_);
    for (std::size_t rank = 0; rank < taken.size(); ++rank) {
      Seat& seat = seats_[std::size_t(taken[rank])];
      if (seat.ending != Ending::lost) continue;
      last_lost_ = seat.error;
      change.lost.push_back(int(rank));
      std::string reason = "an exception that is no std::exception";
      try {
        std::rethrow_exception(seat.error);
      } catch (const std::exception& error) {
        reason = error.what();
      } catch (...) {}
      weft::detail::append_to(text, {text.empty() ? "" : "; ", "rank ", rank, " of ", taken.size(), " was lost after step ",
                                     reached, " (", reason, ")"});
      seat.member = std::make_unique<Member>();
      seat.free = false;
      if (options_.replace_after_s >= 0)
        seat.back =
            Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.replace_after_s));
    }
    return change;
  }

  // An error with the reason, which ends in the text of the last error that has lost a rank.
  comm::RunResult ended_by_loss(const std::string& reason) {
    try {
      std::rethrow_exception(last_lost_);
    } catch (const std::exception& error) {
      return {std::make_exception_ptr(Error(reason + error.what())), -1, true};
    } catch (...) {
      return {last_lost_, -1, true};
    }
  }

  Options options_;
  std::mutex mutex_;
  std::vector<Seat> seats_;
  std::map<const comm::Group*, Member*> running_;
  Member nobody_;
  std::exception_ptr last_lost_;
  bool confirmed_ = false;  // a rank has finished a step
};

}  // namespace weft::elastic::detail
