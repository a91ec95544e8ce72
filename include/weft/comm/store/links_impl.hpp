// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/links.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/links.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE std::string missing(Client& client, const Identity& who, const std::string& prefix) {
  std::string names;
  const auto soon = Clock::now() + std::chrono::seconds(2);
  for (std::uint32_t r = 0; r < who.world; ++r)
    if (r != who.rank && !client.has(prefix + std::to_string(r), soon))
      weft::detail::append_to(names, {names.empty() ? "" : ", ", r});
  return names;
}

/// The error of a rank that waits in vain: it names the other ranks whose key `prefix`RANK is not set.
[[noreturn]] WEFT_COLD WEFT_INLINE void throw_missing(Client& client, const Rendezvous& rendezvous, const std::string& prefix) {
  const std::string names = missing(client, rendezvous.who, prefix);
  const std::string why = weft::detail::joined({"rank ", names.empty() ? "?" : names, " of a world of ", rendezvous.who.world,
                                                " did not come to ", rendezvous.host, ":", rendezvous.port, " within ",
                                                long(rendezvous.patience.count()), " s (WEFT_RENDEZVOUS_S)"});
  client.leave(why);  // this rank is not the one to name
  throw_error<StoreError>({"rank ", rendezvous.who.rank, ": ", why});
}

WEFT_INLINE std::unique_ptr<Heartbeat> start_heartbeat(Client& client, const Rendezvous& rendezvous) {
  if (rendezvous.who.world == 1) return nullptr;
  auto heartbeat =
      std::make_unique<Heartbeat>(rendezvous.host, rendezvous.port, rendezvous.who, rendezvous.secret, rendezvous.deadline);
  client.while_waiting([&heartbeat = *heartbeat] {
    if (heartbeat.lost() == 0) throw StoreError(heartbeat.fate());
  });
  return heartbeat;
}

WEFT_INLINE std::vector<Link> link_all(Client& client, const Rendezvous& rendezvous) {
  const Identity& who = rendezvous.who;
  const std::string& secret = rendezvous.secret;
  const Deadline deadline = rendezvous.deadline;
  std::vector<Link> links(who.world);
  const std::string host = client.local().text();
  Listener listener(host, 0, who, secret, who.rank);
  const std::string mine = std::to_string(who.rank);
  client.set("link/" + mine, weft::detail::joined({host, " ", listener.port()}), deadline);
  std::vector<std::string> addresses(who.world);
  for (std::uint32_t q = 0; q < who.world; ++q) {
    const auto found = client.get("link/" + std::to_string(q), deadline);
    if (!found) throw_missing(client, rendezvous, "link/");
    addresses[q] = *found;
  }
  const std::function<void()> look = [&] { client.look(); };
  // A rank answers once it has called those below it: rank 0 at once, rank 1 soon after, and so on.
  for (std::uint32_t q = 0; q < who.rank; ++q) {
    const auto space = addresses[q].find(' ');
    if (space == std::string::npos) throw_error<StoreError>({"rank ", who.rank, ": rank ", q, " told no address"});
    links[q] =
        Connector(addresses[q].substr(0, space), std::atoi(addresses[q].c_str() + space), who, secret, q).connect(deadline, look);
  }
  const Listener::Admit admit = [&](Greeting& greeting) {
    return greeting.who.rank > who.rank ? std::string()
                                        : weft::detail::joined({"rank ", greeting.who.rank, " is called by this one"});
  };
  const Listener::Refused ignore = [](const Greeting&) {};
  std::vector<pollfd> entries;
  bool told = false;
  auto looked = Clock::now();
  const auto start = looked;
  for (std::uint32_t linked = who.rank + 1; true;) {
    if (!told && linked == who.world) {
      client.set("linked/" + mine, "", deadline);
      told = true;
    }
    // A rank that missed the answer connects again, so the listener stays open until all are connected.
    if (const auto now = Clock::now(); now - looked > std::chrono::milliseconds(told ? 2 : 100)) {
      looked = now;
      if (told && who.rank == 0 && missing(client, who, "linked/").empty()) client.set("all linked", "", deadline);
      if (told && client.has("all linked", now + std::chrono::seconds(2))) return links;
      client.look();
      if (comm::detail::wait_must_end(start)) {
        const std::string why =
            weft::detail::joined({"rank ", who.rank, ": ", comm::detail::stop_text(),
                                  " while it waited for the connection of rank ", missing(client, who, "linked/")});
        client.leave(why);
        throw InterruptedError(why);
      }
      if (now > deadline) throw_missing(client, rendezvous, "linked/");
    }
    entries.clear();
    listener.append_pollfds(entries);
    (void)::poll(entries.data(), nfds_t(entries.size()), told ? 2 : 50);
    for (auto& arrival : listener.step(entries, admit, ignore)) {
      Link& place = links[arrival.greeting.who.rank];
      if (!place.socket) ++linked;
      place = std::move(arrival.link);
    }
  }
}

}  // namespace weft::comm::store
