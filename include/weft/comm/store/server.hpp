// SPDX-License-Identifier: Apache-2.0
#pragma once
// The store of a job: keys and values that rank 0 serves while ranks find each other, in a thread that ends with this object. It
// listens on loopback unless a secret is given; nothing is encrypted.
//
//   store::Server server("127.0.0.1", 29501, {rank, world, job}, secret);

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/store/socket.hpp>

namespace weft::comm::store {

class Server {
 public:
  static constexpr std::size_t least_secret = 16;  ///< in bytes: 128 bits

  /// Listens on `host`:`port` (0: any free port). Throws StoreError if the port is taken, UsageError if the address is not
  /// loopback and the secret is missing.
  Server(const std::string& host, int port, Identity identity, std::string secret);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    stop_.store(true);
    thread_.join();
  }
  int port() const { return port_; }
  std::size_t refused() const { return refused_.load(); }  ///< refused connections so far

 private:
  struct Connection {
    Socket socket;
    RequestReader reader;
    Nonce nonce = random_nonce();
    std::string outgoing;
    std::string waits_for;  // a key, or empty
    std::uint32_t number = 0;
    bool greeted = false, closing = false;
    std::uint32_t rank = 0;
    Deadline must_greet = Clock::now() + std::chrono::seconds(5);
  };

  void serve();

  void accept();

  /// False if the connection must be closed.
  bool receive(Connection& c);

  void greet(Connection& c, Greeting greeting);

  void answer(Connection& c, const Request& request);

  /// Fails the job: every client that waits for a key gets the reason.
  void fail(const std::string& why);

  bool flush(Connection& c);

  void complain(const std::string& text) {
    if (refused_.fetch_add(1) == 0) std::fprintf(stderr, "%s (said once)\n", text.c_str());
  }

  Identity identity_;
  std::string secret_;
  Socket listener_;
  int port_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::uint32_t, bool> came_;
  std::size_t stored_ = 0;
  std::string failure_;
  std::atomic<std::size_t> refused_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/server_impl.hpp>
#endif
