// SPDX-License-Identifier: Apache-2.0
#pragma once
// The other side of a Door: connects, proves who this rank is, and takes only an answer that proves the same. Whatever goes wrong
// on the way (a port that nobody or somebody else holds yet, a stranger who had this rank's place in the queue) it tries again
// until the deadline; only a refusal by its own job is final.
//
//   Link link = Caller("127.0.0.1", 29501, {rank, world, job}, secret, the_store).call(deadline);

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <weft/comm/store/door.hpp>

namespace weft::comm::store {

class Caller {
 public:
  /// Throws UsageError if the address is not loopback and the secret is missing.
  Caller(const std::string& host, int port, Identity who, std::string secret, std::uint32_t to);

  /// A connection on which both sides know the secret. `look` is called some ten times a second and may throw. Throws StoreError
  /// at the deadline, or if the job refuses this rank.
  Link call(Deadline deadline, const std::function<void()>& look = nullptr);

 private:
  /// Nothing to be done at this moment, and why.
  struct Later {
    std::string why;
    bool refused = false;  ///< by somebody who speaks the protocol
  };
  Socket connect(Deadline end);
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
#include <weft/comm/store/caller_impl.hpp>
#endif
