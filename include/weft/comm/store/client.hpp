// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's connection to the store of its job, in which ranks find each other's addresses.
//
//   store::Client client("127.0.0.1", 29501, {rank, world, job}, secret, deadline);
//   client.set("address/3", bytes, deadline);
//   std::optional<std::string> other = client.get("address/2", deadline);        // waits for it

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <weft/comm/store/connector.hpp>
#include <weft/comm/store/sealed.hpp>
#include <weft/comm/store/server.hpp>

namespace weft::comm::store {

class Client {
 public:
  /// Tries until the store lets this rank in. Throws StoreError at the deadline, or if the store refuses this rank for good.
  /// A rank that `meets` ends everybody's meeting if it is lost before it calls met().
  Client(const std::string& host, int port, const Identity& who, std::string_view secret, Deadline deadline, bool meets = false);

  void set(std::string_view key, std::string_view value, Deadline deadline) {
    send(request(Op::set, ++number_, key, value), deadline);
    receive(key, deadline);
  }
  /// The value of the key, once any rank has set it; nothing if the deadline passes first.
  std::optional<std::string> get(std::string_view key, Deadline deadline) {
    send(request(Op::get, ++number_, key, {}), deadline);
    return receive(key, deadline, true);
  }
  bool has(std::string_view key, Deadline deadline) {
    send(request(Op::has, ++number_, key, {}), deadline);
    return receive(key, deadline) == "1";
  }
  /// Informs the store that this rank needs the other ranks for its rendezvous no more.
  void met(Deadline deadline) {
    send(request(Op::met, ++number_, "met", {}), deadline);
    receive("met", deadline);
  }
  /// Announces the end of this rank, which is then not reported as lost. If the store ends with it, the others get the reason.
  void leave(const std::string& why) noexcept;
  /// Throws StoreError if the rendezvous has failed or the store is gone.
  void look() { (void)has("met", Clock::now() + std::chrono::seconds(2)); }
  /// Sets a function that is called about ten times a second while this rank waits for the store, and may throw.
  void while_waiting(std::function<void()> look) { look_ = std::move(look); }
  /// This machine's address as the store's machine sees it.
  Address local() const { return local_address(link_.socket); }

 private:
  struct Late {};

  bool ready(short events, Deadline deadline);
  void send(std::string_view text, Deadline deadline);
  std::string read(std::size_t count, Deadline deadline);
  /// The reply to request `number`, or the end of the connection (number 0); replies to abandoned requests are skipped.
  std::pair<Status, std::string> read_reply(std::uint32_t number, Deadline deadline);
  std::optional<std::string> receive(std::string_view key, Deadline deadline, bool may_be_late = false);

  std::string where_, incoming_;
  std::optional<std::string> head_;
  std::uint32_t number_ = 0;
  Link link_;
  Sealed messages_;
  std::function<void()> look_;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/client_impl.hpp>
#endif
