// SPDX-License-Identifier: Apache-2.0
#pragma once
// Connections between all ranks of a world, each proved by both sides. A rank opens a Listener, writes its address into the
// store, connects to the ranks below it and accepts those above. The listener closes once all ranks are connected.
//
//   std::vector<store::Link> links = store::link_all(client, rendezvous);

#include <memory>
#include <string>
#include <vector>

#include <weft/comm/store/client.hpp>
#include <weft/comm/store/heartbeat.hpp>

namespace weft::comm::store {

/// A rank, the place where all ranks meet, and how long it waits for them.
struct Rendezvous {
  std::string host;
  int port;
  Identity who;
  std::string secret;
  std::chrono::duration<double> patience;
  Deadline deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
};

/// The heartbeat of this rank. `client` checks it while it waits, since the store may be stopped. Null in a world of one.
std::unique_ptr<Heartbeat> start_heartbeat(Client& client, const Rendezvous& rendezvous);

/// One connection to each other rank; the entry of this rank is empty. Throws StoreError that names the rank that did not come,
/// or that was lost meanwhile.
std::vector<Link> link_all(Client& client, const Rendezvous& rendezvous);

/// The other ranks whose key `prefix`RANK is not set, as "1, 3".
std::string missing(Client& client, const Identity& who, const std::string& prefix);

/// The error of a rendezvous with the number of this rank, unless its text has it already.
inline StoreError named(const Identity& who, const StoreError& error) {
  const std::string rank = weft::detail::joined({"rank ", who.rank, ": "}), text(error.text());
  return StoreError(text.starts_with(rank) || text.starts_with("MASTER_ADDR") ? text : rank + text, error.exit_code());
}

/// The text of it for the other ranks.
inline std::string unnamed(const Identity& who, const StoreError& error) {
  const std::string rank = weft::detail::joined({"rank ", who.rank, ": "}), text(error.text());
  return text.starts_with(rank) ? text.substr(rank.size()) : text;
}

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/links_impl.hpp>
#endif
