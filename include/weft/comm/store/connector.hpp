// SPDX-License-Identifier: Apache-2.0
#pragma once
// The other side of a Listener: connects, proves the identity of this rank, and accepts only an answer that proves the same
// secret. After any other failure (nobody or a stranger holds the port, a stranger had this rank's place in the queue) it tries
// again until the deadline. Only a refusal by its own job is final.
//
//   Link link = Connector("127.0.0.1", 29501, {rank, world, job}, secret, the_store).connect(deadline);

#include <functional>
#include <string>

#include <weft/comm/store/listener.hpp>

namespace weft::comm::store {

class Connector {
 public:
  /// Throws UsageError if the address is not loopback and the secret is missing.
  Connector(const std::string& host, int port, Identity who, std::string secret, std::uint32_t to);

  /// A connection on which both sides have proved that they have the secret. `look` is called some ten times a second and may
  /// throw. Throws StoreError at the deadline, or if the job refuses this rank.
  Link connect(Deadline deadline, const std::function<void()>& look = nullptr);

 private:
  /// A failed attempt, and its reason.
  struct Later {
    std::string why;
    bool refused = false;  ///< by a listener that speaks the protocol
  };
  Socket open(Deadline end);
  Digest greet(const Socket& socket, Deadline end);
  void wait(const Socket& socket, short events, Deadline end, const char* why);
  std::string read(const Socket& socket, std::size_t count, Deadline end);

  std::string where_;
  Address address_;
  Identity who_;
  std::string secret_;
  std::uint32_t to_;
  const std::function<void()>* look_ = nullptr;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/connector_impl.hpp>
#endif
