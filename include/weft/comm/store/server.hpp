// SPDX-License-Identifier: Apache-2.0
#pragma once
// The store of a job, which rank 0 serves: keys and values for the rendezvous, and the register of lost ranks. It runs in a
// thread that ends with this object. It listens on loopback unless a secret is given; nothing is encrypted.
//
//   store::Server server("127.0.0.1", 29501, {rank, world, job}, secret);

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/store/listener.hpp>
#include <weft/comm/store/sealed.hpp>

namespace weft::comm::store {

/// The number of a reply to a heartbeat that reports a lost rank, if bytes that are no valid frame broke a connection; else 0.
inline constexpr std::uint32_t invalid_frame = 1;
/// The period of heartbeats.
inline constexpr std::chrono::milliseconds heartbeat_period{500};
/// The longest time without a heartbeat of a rank that is not lost: WEFT_HEARTBEAT_S, 30 s by default; 0: no limit.
std::chrono::duration<double> heartbeat_patience();

class Server {
 public:
  /// Listens on `host`:`port` (0: any free port). Throws StoreError if the port is taken, UsageError if the address is not
  /// loopback and the secret is missing.
  Server(const std::string& host, int port, Identity identity, std::string secret);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    stop_.store(true);
    thread_.join();
  }
  int port() const { return listener_->port(); }
  std::size_t refused() const { return refused_.load(); }  ///< strangers turned away so far

  /// Ends the rendezvous because rank 0 cannot continue. Waiting ranks get the reason at once, later ones when they connect.
  /// Returns once all ranks have it, or after 1.5 s.
  void end_rendezvous(const std::string& why);

 private:
  struct Connection {
    explicit Connection(Link link) : socket(std::move(link.socket)), messages(link.key, Sealed::Side::store) {}
    void reply(Status status, std::uint32_t to_request, std::string_view value) {
      messages.seal(store::reply(status, to_request, value), outgoing);
    }
    Socket socket;
    Sealed messages;
    RequestReader reader;
    std::string outgoing;
    std::string waits_for;  // a key, or empty
    std::string refusal;    // of all requests, or empty
    std::uint32_t number = 0, rank = 0;
    bool heartbeat = false;  // it only beats
    bool came = false;       // it has received its admission
    bool meets = false, left = false, kept = true;
    bool dropped = false;  // its bytes are ignored; it stays open, since closing would take the last reply from the rank
    Deadline heard = Clock::now();
  };

  void serve();

  /// The reason why a rank is refused, or empty.
  std::string admit(Greeting& greeting);

  /// False if the connection must be closed.
  bool receive(Connection& c);

  void answer(Connection& c, const Request& request);

  /// Ends the rendezvous: every client that waits for a key gets the reason.
  void fail(const std::string& why);

  /// Informs all ranks, in the rendezvous and by their heartbeats, of a lost rank.
  void lose(const Connection& c, const std::string& why, std::uint32_t kind = 0);
  /// Ends the connection because of the bytes that its rank sent.
  void drop(Connection& c, const std::string& why);
  void look_for_the_silent();

  bool flush(Connection& c);

  Identity identity_;
  std::chrono::duration<double> patience_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, std::string, std::less<>> values_;
  std::set<std::uint32_t> came_, met_, heartbeats_, told_;  // told_: other ranks that have the reason of a failure, or are gone
  std::size_t stored_ = 0;
  std::string failure_, gone_;  // of the rendezvous; of a rank, as a heartbeat reads it: its number and the reason
  std::uint32_t gone_kind_ = 0;
  Deadline looked_ = Clock::now();
  std::atomic<std::size_t> refused_{0};
  std::atomic<bool> stop_{false}, ending_{false}, all_told_{false};
  std::string ending_why_;  // written before ending_
  std::thread thread_;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/server_impl.hpp>
#endif
