// SPDX-License-Identifier: Apache-2.0
#pragma once
// A listening port that accepts only ranks of the job. Every port that weft opens is one: the store's, and each rank's for its
// connections to the others. A stranger is refused and reported on one line. It cannot end a job, delay a rank for long, or hold
// more than a few hundred bytes: of the connections without a proof the oldest are closed first.
//
//   Listener listener("127.0.0.1", 0, {rank, world, job}, secret, the_store);
//   listener.append_pollfds(entries);  poll(...);
//   for (auto& arrival : listener.step(entries, admit)) use(arrival.socket, arrival.greeting.who.rank);

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <weft/comm/store/socket.hpp>

namespace weft::comm::store {

/// The time in which a caller must prove its identity.
inline constexpr std::chrono::seconds handshake_time{5};
inline constexpr std::size_t least_secret_bytes = 16;  ///< 128 bits

class Listener {
 public:
  struct Arrival {
    Link link;
    Greeting greeting;
  };
  /// The reason why a rank of this job is refused; empty if it is admitted. It clears `ours` if the rank may try again.
  using Admit = std::function<std::string(Greeting&)>;
  /// Called with the refusal of a rank of this job, after the rank has got it.
  using Refused = std::function<void(const Greeting&)>;

  /// Listens on `host`:`port` (0: any free port) for callers that want `to`. Throws StoreError if the port is taken, UsageError
  /// if the address is not loopback and the secret is missing.
  Listener(const std::string& host, int port, Identity mine, std::string secret, std::uint32_t to);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  const std::string& secret() const { return secret_; }
  std::size_t refused() const { return refused_; }  ///< strangers so far

  /// Appends the entries to poll.
  void append_pollfds(std::vector<pollfd>& entries) const;
  /// Handles poll's results for the entries that append_pollfds added; returns the admitted ranks.
  std::vector<Arrival> step(std::span<const pollfd> entries, const Admit& admit, const Refused& refused);
  /// Reports a stranger: the first at once, later ones on a line a minute.
  void complain(const std::string& text);

 private:
  struct Pending {
    Socket socket;
    std::string peer, bytes;
    Nonce nonce = random_nonce();
    Deadline end = Clock::now() + handshake_time;
  };

  void accept();
  void make_room(const std::string& peer);
  bool read(Pending& pending);
  void answer(Pending& pending, const Admit& admit, const Refused& refused, std::vector<Arrival>& arrivals);

  Identity identity_;
  std::string secret_;
  std::uint32_t to_;
  Socket socket_;
  int port_ = 0;
  std::size_t most_, most_of_one_;
  std::vector<Pending> pending_;  // the oldest first
  std::size_t refused_ = 0, unsaid_ = 0;
  Deadline said_{};
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/listener_impl.hpp>
#endif
