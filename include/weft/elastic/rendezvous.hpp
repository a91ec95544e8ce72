// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rendezvous of the processes of an elastic run before each generation of the world. It is a process of its own, which
// the first rank 0 starts, so that it outlives every rank. It serves the port after that of the store (comm/store/server.hpp),
// with the same handshake and the same frames. A seat is a RANK of the launcher: a lost rank's seat is free for a process that is
// started with the same environment.
//
//   rank: "ready CONFIRMED STEP [GENERATION:PART:OF ...]"    waits for the next generation
//         "returned ..."                                  the same, after its function has returned
//         "confirmed"                                     a step is finished; sent once
//         "fatal TEXT"                                    its error would recur
//   here: "begin GENERATION RANK WORLD CONTINUES"         the ranks of the next generation
//         "available N"                                   the ranks that run or wait
//         "over CODE REPORTS TEXT"                        the end of the run

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/launcher.hpp>
#include <weft/comm/store/listener.hpp>
#include <weft/comm/store/sealed.hpp>
#include <weft/comm/store/secret.hpp>
#include <weft/comm/store/server.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/elastic/copies.hpp>
#include <weft/elastic/options.hpp>
#include <weft/elastic/seats.hpp>

namespace weft::elastic::detail {

namespace store = comm::store;

inline int rendezvous_port(const runtime::Launch& launch) { return launch.port + 1; }
inline store::Identity rendezvous_identity(const runtime::Launch& launch) {
  return {std::uint32_t(launch.rank), std::uint32_t(launch.world), launch.job + ", elastic"};
}

/// Makes the system break a connection whose other host has not answered for `patience`: a node that is gone, or its cable, ends
/// no connection. A process that stands still does not matter, since its system answers.
inline void break_without_answer(int descriptor, std::chrono::duration<double> patience) {
  constexpr double longest_s = 32767;  // of the system; WEFT_HEARTBEAT_S=0 asks for longer
  if (patience.count() > longest_s) return;
  const auto set = [&](int level, int option, int value) { ::setsockopt(descriptor, level, option, &value, sizeof value); };
  const int third_s = std::max(1, int(patience.count() / 3));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, third_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, third_s);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, int(patience.count() * 1000));
}

/// A connection of a rank with the rendezvous, on either side. Messages are whole texts.
class Line {
 public:
  Line(store::Link link, store::Sealed::Side side) : socket_(std::move(link.socket)), messages_(link.key, side) {
    break_without_answer(socket_.get(), store::heartbeat_patience());
  }

  int descriptor() const { return socket_.get(); }
  bool wants_to_send() const { return !outgoing_.empty(); }
  void send(std::string_view text) {
    messages_.seal(text, outgoing_);
    flush();
  }
  /// False if the connection is broken.
  bool flush() {
    while (!outgoing_.empty()) {
      const ssize_t sent = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      outgoing_.erase(0, std::size_t(sent));
    }
    return true;
  }
  /// Appends the messages that have come. False if the connection is broken. Throws comm::store::InvalidFrame.
  bool receive(std::vector<std::string>& texts) {
    char bytes[16384];
    for (;;) {
      const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got == 0) return false;
      if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      messages_.add({bytes, std::size_t(got)});
      while (auto text = messages_.open()) texts.push_back(std::move(*text));
    }
  }

 private:
  store::Socket socket_;
  store::Sealed messages_;
  std::string outgoing_;
};

/// The words that are left, with their spaces and lines.
inline std::string rest_of(std::istringstream& words) {
  words >> std::ws;
  return {std::istreambuf_iterator<char>(words), {}};
}

class Rendezvous {
 public:
  /// Throws StoreError if the port is taken.
  Rendezvous(const Options& options, const runtime::Launch& launch, std::chrono::duration<double> patience)
      : options_(options),
        patience_(patience),
        call_patience_(std::max(patience, store::heartbeat_patience())),
        seats_(std::size_t(launch.world)),
        listener_(launch.host, rendezvous_port(launch), rendezvous_identity(launch), store::secret_of(launch.host, launch.secret),
                  store::the_store) {}

  /// Returns once the run is over, or once no rank has come for a while.
  void serve() {
    const store::Listener::Admit admit = [this](store::Greeting& greeting) -> std::string {
      if (!seats_[greeting.who.rank].line) return {};
      greeting.ours = false;  // the other one may end soon
      return weft::detail::joined({"rank ", greeting.who.rank, " is there already"});
    };
    const store::Listener::Refused ignore = [](const store::Greeting&) {};
    std::vector<pollfd> entries;
    std::vector<std::size_t> of_entry;
    for (auto last = Clock::now(); !over_ || pending() || ends();) {
      entries.clear();
      of_entry.clear();
      for (std::size_t i = 0; i < seats_.size(); ++i)
        if (seats_[i].line) {
          entries.push_back({seats_[i].line->descriptor(), short(POLLIN | (seats_[i].line->wants_to_send() ? POLLOUT : 0)), 0});
          of_entry.push_back(i);
        }
      const std::size_t known = entries.size();
      listener_.append_pollfds(entries);
      (void)::poll(entries.data(), nfds_t(entries.size()), 20);
      for (std::size_t k = 0; k < known; ++k)
        if (entries[k].revents != 0) listen(of_entry[k]);
      for (auto& arrival : listener_.step(std::span(entries).subspan(known), admit, ignore))
        seats_[arrival.greeting.who.rank].line = std::make_unique<Line>(std::move(arrival.link), store::Sealed::Side::store);
      if (known > 0) last = Clock::now();
      else if (Clock::now() - last > (generation_ == 0 ? patience_ : std::chrono::duration<double>(5))) return;
      if (!over_) proceed();
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { absent, waiting, returned, running };
  struct Seat {
    std::unique_ptr<Line> line;
    State state = State::absent;
    bool member = false;  // of the present generation
    std::uint64_t newest = 0;
    HeldParts parts;
  };

  bool pending() const {
    for (const Seat& seat : seats_)
      if (seat.line && seat.line->wants_to_send()) return true;
    return false;
  }

  // True while ranks may still read the end of the run: a connection closed before could discard it.
  bool ends() const {
    return Clock::now() - over_since_ < std::chrono::seconds(2) &&
           std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.line != nullptr; });
  }

  void listen(std::size_t number) {
    Seat& seat = seats_[number];
    std::vector<std::string> texts;
    bool alive = seat.line->flush();
    try {
      alive = seat.line->receive(texts) && alive;
    } catch (const std::exception&) {
      alive = false;
    }
    for (const std::string& text : texts) take(seat, text);
    if (!alive) lose(number, "its process ended or its connection broke");
  }

  void take(Seat& seat, const std::string& text) {
    std::istringstream words(text);
    std::string kind;
    words >> kind;
    if (kind == "confirmed") {
      confirmed_ = true;
      return;
    }
    if (kind == "fatal") {
      if (!over_) finish(1, rest_of(words), &seat);  // this rank waits for the answer, so it prints the error
      return;
    }
    seat.state = kind == "returned" ? State::returned : State::waiting;
    bool confirmed = false;
    words >> confirmed >> seat.newest;
    confirmed_ = confirmed_ || confirmed;
    seat.parts.clear();
    char colon;
    for (HeldPart part; words >> part.generation >> colon >> part.number >> colon >> part.of;) seat.parts.insert(part);
    reached_ = std::max(reached_, seat.newest);
    if (seat.member && !since_) since_ = Clock::now();
  }

  void lose(std::size_t number, std::string_view why) {
    Seat& seat = seats_[number];
    if (seat.member && !over_) {
      weft::detail::append_to(lost_, {lost_.empty() ? "" : "; ", "rank ", number, " was lost (", why, ")"});
      lost_ranks_.push_back(int(number));
      if (!since_) since_ = Clock::now();
    }
    seat = Seat{};
  }

  // Its process lives, but makes no call.
  void drop(std::size_t number) {
    seats_[number].line->send(weft::detail::joined(
        {"over 1 1 elastic: rank ", number, " stands still: it made no call for ", std::llround(call_patience_.count()),
         " s after another rank was lost or had returned, so the others go on without it"}));
    lose(number, "it stands still");
  }

  int available() const {
    int count = 0;
    for (const Seat& seat : seats_) count += seat.line && seat.state != State::absent;
    return count;
  }

  // Begins the next generation if no rank of the present one runs any more.
  void proceed() {
    bool running = false, unfinished = false;
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      if (seats_[i].member && seats_[i].state == State::running && since_ && Clock::now() - *since_ > call_patience_) drop(i);
      running = running || (seats_[i].member && seats_[i].state == State::running);
      unfinished = unfinished || (seats_[i].member && seats_[i].state == State::waiting);
    }
    const int count = available();
    if (running) return announce(count);
    const bool first = generation_ == 0;
    if (first && count < int(seats_.size()) && Clock::now() - began_ < patience_) return;
    if (!first && lost_.empty() && !unfinished) return finish(0, {});
    const int size = served(options_, count);
    const auto now = Clock::now();
    if (size == 0) {
      const std::chrono::duration<double> wait(std::max(0.0, options_.replace_after_s));
      if (!first && now - since_.value_or(now) < wait) return;
      return finish(1, too_few(options_, count, seats_.size()) + (lost_.empty() ? "" : "; ") + lost_);
    }
    stalled_ = reached_ > newest_ ? 0 : stalled_ + 1;
    newest_ = reached_;
    if (stalled_ > seats_.size() + 8) return finish(1, std::string(too_fast) + lost_);
    begin(size);
  }

  void begin(int size) {
    std::map<int, HeldParts> candidates;
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      seats_[i].member = false;
      if (seats_[i].line && seats_[i].state != State::absent) candidates[int(i)] = seats_[i].parts;
    }
    const std::vector<int> taken = chosen(candidates, size);
    if (generation_ > 0)
      elastic::detail::announce({.generation = generation_,
                                 .step = reached_,
                                 .lost = std::exchange(lost_ranks_, {}),
                                 .text = weft::detail::joined({lost_.empty() ? "ranks join" : lost_, " after step ", reached_})},
                                size);
    for (std::size_t rank = 0; rank < taken.size(); ++rank) {
      Seat& seat = seats_[std::size_t(taken[rank])];
      seat.member = true;
      seat.state = State::running;
      seat.line->send(weft::detail::joined({"begin ", generation_, " ", rank, " ", size, " ", confirmed_ ? 1 : 0}));
    }
    ++generation_;
    lost_.clear();
    since_.reset();
    announced_ = -1;
  }

  void announce(int count) {
    if (count == announced_) return;
    announced_ = count;
    for (Seat& seat : seats_)
      if (seat.line && seat.state == State::running) seat.line->send(weft::detail::joined({"available ", count}));
  }

  // One rank prints the error: `reporter`, or else the first that waits for the next order.
  void finish(int code, const std::string& text, const Seat* reporter = nullptr) {
    over_ = true;
    over_since_ = Clock::now();
    for (const Seat& seat : seats_)
      if (reporter == nullptr && seat.line && (seat.state == State::waiting || seat.state == State::returned)) reporter = &seat;
    for (Seat& seat : seats_)
      if (seat.line) seat.line->send(weft::detail::joined({"over ", code, " ", &seat == reporter ? 1 : 0, " ", text}));
  }

  Options options_;
  std::chrono::duration<double> patience_, call_patience_;
  std::vector<Seat> seats_;
  store::Listener listener_;
  std::uint64_t generation_ = 0, reached_ = 0, newest_ = 0, stalled_ = 0;
  int announced_ = -1;
  bool over_ = false;
  bool confirmed_ = false;       // a rank has finished a step
  std::string lost_;             // since the present generation began
  std::vector<int> lost_ranks_;  // the same, as numbers
  Clock::time_point over_since_ = {};
  std::optional<Clock::time_point> since_;  // the first rank of the present generation is back, or lost
  Clock::time_point began_ = Clock::now();
};

/// Starts the rendezvous in a process of its own, which writes only to standard error. Call it before the process has threads.
/// Signals to a terminal's programs do not end it: it ends with the run. Returns the reason if its port cannot be served: the
/// rendezvous of this run is there if rank 0 has been replaced, else another program. Throws Error if no process can be started.
inline std::string start_rendezvous(const Options& options, const runtime::Launch& launch,
                                    std::chrono::duration<double> patience) {
  std::optional<Rendezvous> rendezvous;
  try {
    rendezvous.emplace(options, launch, patience);
  } catch (const comm::StoreError& error) {
    return std::string(error.text());
  }
  std::fflush(nullptr);
  const pid_t process = ::fork();
  if (process < 0)
    throw_error<Error>({"elastic: rank 0 cannot start the process of the rendezvous: ", std::strerror(errno),
                        " (limits of processes and memory: ulimit -u, ulimit -v)"});
  if (process > 0) return {};  // only the new process keeps the port
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  if (const int nowhere = ::open("/dev/null", O_RDWR); nowhere >= 0)
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) ::dup2(nowhere, stream);
  try {
    rendezvous->serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft: elastic: the process of the rendezvous has failed: %s\n", error.what());
  }
  ::_exit(0);
}

}  // namespace weft::elastic::detail
