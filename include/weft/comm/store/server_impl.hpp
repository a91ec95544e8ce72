// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/server.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <system_error>

#include <weft/comm/run_options.hpp>
#include <weft/comm/stop.hpp>
#include <weft/comm/store/connector.hpp>
#include <weft/comm/store/server.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE std::chrono::duration<double> heartbeat_patience() {
  const double seconds = runtime::detail::number_from_environment("WEFT_HEARTBEAT_S", 0, 1e6).value_or(30);
  // A slow rank must not be taken for a stopped one.
  return std::chrono::duration<double>(seconds == 0 ? 1e9 : std::max(seconds, 1.0));
}

WEFT_INLINE Server::Server(const std::string& host, int port, Identity identity, std::string secret)
    : identity_(std::move(identity)), patience_(heartbeat_patience()) {
  try {
    listener_ = std::make_unique<Listener>(host, port, identity_, secret, the_store);
  } catch (const StoreError&) {
    // An unnamed job of this user that meets at this port learns here that two ranks 0 exist.
    std::string answer;
    try {
      if (port != 0) Connector(host, port, identity_, secret, the_store).connect(Clock::now() + std::chrono::milliseconds(300));
    } catch (const Error& error) {
      answer = error.what();
    }
    if (answer.find("rank 0 has come twice") != std::string::npos)
      throw_error<StoreError>(
          {"rank 0 cannot serve the store at ", host, ":", port,
           ": another process of this job has RANK 0 and serves it: give each process its own RANK, from 0 to "
           "WORLD_SIZE - 1 (and each job its own WEFT_JOB)"});
    throw;
  }
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    throw_error<StoreError>({"rank 0 cannot start the thread of its store: ", error.what()});
  }
}

WEFT_INLINE void Server::end_rendezvous(const std::string& why) {
  ending_why_ = why;
  ending_.store(true);
  const auto begin = Clock::now();
  while (!all_told_.load() && Clock::now() - begin < std::chrono::milliseconds(1500) && !comm::detail::wait_must_end(begin))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

WEFT_INLINE void Server::serve() {
  std::vector<pollfd> entries;
  const Listener::Admit may_come = [this](Greeting& greeting) { return admit(greeting); };
  // The refusal of a rank of this job ends the rendezvous.
  const Listener::Refused was_refused = [this](const Greeting& greeting) {
    if (met_.size() < identity_.world) fail(greeting.refusal);
    if (greeting.who.rank != 0) told_.insert(greeting.who.rank);
  };
  while (!stop_.load()) {
    entries.clear();
    for (const auto& c : connections_)
      entries.push_back({c->socket.get(), short(POLLIN | (c->outgoing.empty() ? 0 : POLLOUT)), 0});
    listener_->append_pollfds(entries);
    if (::poll(entries.data(), nfds_t(entries.size()), 20) < 0 && errno != EINTR) return;
    const std::size_t known = connections_.size();
    try {
      for (auto& arrival : listener_->step(std::span(entries).subspan(known), may_come, was_refused)) {
        auto c = std::make_unique<Connection>(std::move(arrival.link));
        c->rank = arrival.greeting.who.rank;
        c->heartbeat = arrival.greeting.to == the_heartbeat;
        connections_.push_back(std::move(c));
      }
    } catch (const std::exception& error) {
      listener_->complain(error.what());
    }
    refused_.store(listener_->refused());
    for (std::size_t i = 0; i < known; ++i) {
      Connection& c = *connections_[i];
      try {
        if (c.kept && (entries[i].revents & (POLLIN | POLLHUP | POLLERR))) c.kept = receive(c);
        if (!c.kept) lose(c, "its process ended or its connection broke");
      } catch (const InvalidFrame& error) {
        drop(c, weft::detail::joined({"bytes from rank ", c.rank, " are no valid frame: ", error.what()}));
      } catch (const StoreError& error) {
        drop(c, std::string(error.text()));
      } catch (const std::exception& error) {
        drop(c, error.what());
      }
    }
    look_for_the_silent();
    if (ending_.load()) fail(ending_why_);
    for (const auto& c : connections_) c->kept = flush(*c) && c->kept;
    if (ending_.load()) all_told_.store(told_.size() + 1 >= identity_.world);
    std::erase_if(connections_, [](const auto& c) { return !c->kept; });
  }
}

WEFT_INLINE std::string Server::admit(Greeting& greeting) {
  const std::uint32_t rank = greeting.who.rank;
  // A rank that has met can no longer end the rendezvous, even if others still need theirs. A newcomer with its number may belong
  // to the next rendezvous at this port, and tries again.
  greeting.ours = !met_.contains(rank);
  if (!failure_.empty()) return failure_;
  if ((greeting.to == the_heartbeat ? heartbeats_ : came_).contains(rank))
    return weft::detail::joined({"rank ", rank, " has come twice"});
  return {};
}

WEFT_INLINE bool Server::receive(Connection& c) {
  char bytes[65536];
  const ssize_t got = ::recv(c.socket.get(), bytes, sizeof bytes, 0);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (got == 0) return false;
  if (c.dropped) return true;
  c.heard = Clock::now();
  if (!c.came) {
    // The first request shows that the rank received its admission; one that missed it has connected again, and counts once.
    c.came = true;
    if (!(c.heartbeat ? heartbeats_ : came_).insert(c.rank).second) {
      c.refusal = weft::detail::joined({"rank ", c.rank, " has come twice"});
      c.left = true;  // it is not reported as lost
      if (met_.size() < identity_.world) fail(c.refusal);
    }
    if (c.heartbeat && !gone_.empty()) c.reply(Status::refused, gone_kind_, gone_);
  }
  c.messages.add(std::string_view(bytes, std::size_t(got)));
  while (const auto text = c.messages.open()) {
    c.reader.add(*text);
    Request request;
    while (c.reader.next(request)) answer(c, request);
  }
  return true;
}

WEFT_INLINE void Server::answer(Connection& c, const Request& request) {
  c.number = request.number;
  c.waits_for.clear();
  if (request.op == Op::beat || request.op == Op::leave) {
    if (request.op == Op::leave)
      for (const auto& other : connections_) other->left = other->left || (other->rank == c.rank && other->came);
    if (request.op == Op::leave && c.rank == 0 && c.meets) fail(std::string(request.key));  // this store ends with it
    if (c.outgoing.size() < most_key) c.reply(Status::done, c.number, {});
    return;
  }
  if (!failure_.empty() || !c.refusal.empty()) {
    if (c.rank != 0) told_.insert(c.rank);
    c.reply(Status::refused, c.number, failure_.empty() ? c.refusal : failure_);
    return;
  }
  const auto found = values_.find(request.key);
  if (request.op == Op::met) {
    c.meets = request.key == "begin";
    if (!c.meets) met_.insert(c.rank);
    c.reply(Status::done, c.number, {});
  } else if (request.op == Op::set) {
    if (found == values_.end() && values_.size() >= most_keys) throw StoreError("store: too many keys");
    const std::size_t before = found == values_.end() ? 0 : found->second.size();
    if (stored_ - before + request.key.size() + request.value.size() > most_stored) throw StoreError("store: it is full");
    stored_ += request.value.size() + (found == values_.end() ? request.key.size() : 0);
    stored_ -= before;
    values_[std::string(request.key)] = request.value;
    c.reply(Status::done, c.number, {});
    for (const auto& other : connections_)
      if (other->waits_for == request.key) {
        other->waits_for.clear();
        other->reply(Status::done, other->number, request.value);
      }
  } else if (request.op == Op::has) {
    c.reply(Status::done, c.number, found != values_.end() ? "1" : "0");
  } else if (found != values_.end()) {
    // A client that asks and never reads costs at most a few values.
    if (c.outgoing.size() > 2 * most_value) throw StoreError("store: a client does not read its replies");
    c.reply(Status::done, c.number, found->second);
  } else {
    c.waits_for = request.key;
  }
}

WEFT_INLINE void Server::fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
  for (const auto& c : connections_)
    if (!c->waits_for.empty()) {
      c->waits_for.clear();
      if (c->rank != 0) told_.insert(c->rank);
      c->reply(Status::refused, c->number, failure_);
    }
}

WEFT_INLINE void Server::lose(const Connection& c, const std::string& why, std::uint32_t kind) {
  if (c.rank != 0 && !c.heartbeat && c.came) told_.insert(c.rank);
  if (!c.came || c.left) return;
  const std::string text = weft::detail::joined({"rank ", c.rank, " is lost, ", why});
  if (c.heartbeat) {
    if (!met_.contains(c.rank)) fail(text + " while ranks met");  // it may be stopped, and its other connection with it
    if (!gone_.empty()) return;
    gone_ = weft::detail::joined({c.rank, " ", text});
    gone_kind_ = kind;
    for (const auto& other : connections_)
      if (other->heartbeat && other->came && other->rank != c.rank) other->reply(Status::refused, kind, gone_);
  } else if (c.meets) {
    fail(text + " while ranks met");
  }
}

WEFT_INLINE void Server::drop(Connection& c, const std::string& why) {
  lose(c, weft::detail::joined({"its connection to the store broke (", why, ")"}), invalid_frame);
  c.dropped = c.left = true;
  const std::string text = weft::detail::joined({"rank 0 closed the connection of rank ", c.rank, " to its store (", why, ")"});
  if (c.heartbeat) c.reply(Status::refused, invalid_frame, "0 " + text);
  else c.reply(Status::refused, 0, text);
}

WEFT_INLINE void Server::look_for_the_silent() {
  // This process may have been stopped itself, and the heartbeats of that time are not read yet.
  const auto now = Clock::now();
  if (now - looked_ > std::chrono::seconds(1))
    for (const auto& c : connections_) c->heard = now;
  looked_ = now;
  for (const auto& c : connections_)
    if (c->heartbeat && c->came && c->kept && now - c->heard > patience_) {
      lose(*c, weft::detail::joined({"nothing was heard of it for ", long(patience_.count()), " s (WEFT_HEARTBEAT_S)"}));
      c->heard = now;
    }
}

WEFT_INLINE bool Server::flush(Connection& c) {
  while (!c.outgoing.empty()) {
    const ssize_t sent = ::send(c.socket.get(), c.outgoing.data(), c.outgoing.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    c.outgoing.erase(0, std::size_t(sent));
  }
  return true;
}

}  // namespace weft::comm::store
