// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/watch.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstring>

#include <weft/comm/watch.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>

namespace weft::comm {

WEFT_INLINE Watch::Wait::Wait(const Ledger& ledger, const Call& made, std::uint64_t number, std::string last_calls)
    : step{ledger.channel(),
           number,
           signature(made),
           made.count,
           digest_of_counts(made),
           made.tag,
           !is_point_to_point(made.operation)  ? Step::collective
           : made.operation == Operation::recv ? Step::send
                                               : Step::receive},
      call(describe(made)),
      axis(ledger.axis()),
      function(made.function == ProgramFunction::none ? std::string() : weft::detail::joined({" in ", name_of(made.function)})),
      last(std::move(last_calls)) {}

WEFT_INLINE std::shared_ptr<Ledger> Watch::open(std::uint64_t channel, const std::string& axis) {
  if (ledgers_.size() >= crowded_) forget_closed();
  opened_ = std::max(opened_, channel);
  ledgers_.push_back(std::make_shared<Ledger>(channel, axis));
  return ledgers_.back();
}

WEFT_COLD WEFT_INLINE void Watch::forget_closed() {
  const auto closed = [](const std::shared_ptr<Ledger>& ledger) { return ledger.use_count() == 1; };
  auto surplus = std::count_if(ledgers_.begin(), ledgers_.end(), closed) - std::ptrdiff_t(most_closed);
  past_sent_.resize(std::size_t(size()));
  past_received_.resize(std::size_t(size()));
  std::erase_if(ledgers_, [&](const std::shared_ptr<Ledger>& ledger) {
    if (!closed(ledger) || surplus-- <= 0) return false;
    for (const Ledger::Messages& m : ledger->messages()) {
      (m.sent ? past_sent_ : past_received_)[std::size_t(m.peer)] += m.begun;
      forgotten_ = std::max(forgotten_, ledger->channel() + 1);
    }
    return true;
  });
  crowded_ = std::max(2 * most_closed, 2 * ledgers_.size());
  std::erase_if(accusations_, [&](const Notice& notice) {  // no rank waits on those communicators any more
    return std::ranges::all_of(notice.communicators, [&](std::uint64_t number) {
      return 2 * number + 1 <= opened_ && ledger(2 * number) == nullptr && ledger(2 * number + 1) == nullptr;
    });
  });
}

WEFT_INLINE const Ledger* Watch::ledger(std::uint64_t channel) const {
  for (std::size_t k = ledgers_.size(); k-- > 0;)
    if (ledgers_[k]->channel() == channel) return ledgers_[k].get();
  return nullptr;
}

WEFT_INLINE std::string Watch::packed(const Notice& notice) const {
  const std::int64_t head[] = {std::int64_t(world_), notice.origin, notice.sender, std::int64_t(notice.wait),
                               std::int64_t(notice.communicators.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
  bytes.append(reinterpret_cast<const char*>(&notice.step), sizeof notice.step);
  bytes.append(reinterpret_cast<const char*>(notice.communicators.data()), notice.communicators.size() * sizeof(std::uint64_t));
  return bytes += notice.story;
}

WEFT_INLINE bool Watch::unpack(const std::string& bytes, Notice& notice) const {
  std::int64_t head[5];
  std::size_t at = sizeof head + sizeof notice.step;
  if (bytes.size() < at) return false;
  std::memcpy(head, bytes.data(), sizeof head);
  std::memcpy(&notice.step, bytes.data() + sizeof head, sizeof notice.step);
  const auto communicators = std::size_t(head[4]), length = communicators * sizeof(std::uint64_t);
  if (communicators > most_communicators || bytes.size() - at < length || std::uint64_t(head[0]) != world_) return false;
  notice.origin = int(head[1]);
  notice.sender = int(head[2]);
  notice.wait = std::uint64_t(head[3]);
  notice.communicators.resize(communicators);
  std::copy_n(bytes.data() + at, length, reinterpret_cast<char*>(notice.communicators.data()));
  notice.story = bytes.c_str() + at + length;  // a transport may fill a message up with zeros
  return true;
}

WEFT_INLINE void Watch::take_in() {
  for (std::string bytes; receive(bytes);) {
    Notice notice;
    if (!unpack(bytes, notice)) continue;
    if (notice.wait == 0) {
      accusations_.push_back(std::move(notice));
      continue;
    }
    // One of the same origin by the same rank replaces an older one: that wait has ended.
    std::erase_if(notices_, [&](const Notice& old) {
      return old.origin == notice.origin && old.sender == notice.sender && old.wait < notice.wait;
    });
    notices_.push_back(std::move(notice));
  }
}

WEFT_INLINE std::string Watch::accusation(std::uint64_t channel) const {
  for (const Notice& notice : accusations_)
    for (const std::uint64_t communicator : notice.communicators)
      if (communicator == channel / 2) return notice.story;
  return {};
}

WEFT_INLINE void Watch::accuse(std::vector<std::uint64_t> communicators, const std::string& why) {
  Notice notice;
  notice.origin = notice.sender = rank_;
  notice.story = why.substr(0, longest_story);
  notice.communicators = std::move(communicators);
  const std::string bytes = packed(notice);
  for (int q = 0; q < size(); ++q)
    if (q != rank_) send(q, bytes);
}

WEFT_INLINE void Watch::pass_on(const Wait& wait, const Notice* notice, std::size_t from, std::size_t to) {
  for (std::size_t k = from; k < to; ++k) {
    Notice next;
    next.origin = notice != nullptr ? notice->origin : rank_;
    next.wait = notice != nullptr ? notice->wait : wait.id;
    next.sender = rank_;
    next.step = wait.step;
    if (notice != nullptr) {
      next.story = notice->story + "; ";
      next.communicators = notice->communicators;
    }
    const std::uint64_t communicator = wait.step.channel / 2;
    if (std::find(next.communicators.begin(), next.communicators.end(), communicator) == next.communicators.end() &&
        next.communicators.size() < most_communicators)
      next.communicators.push_back(communicator);
    weft::detail::append_to(next.story, {"rank ", rank_, wait.function, " waits in ", wait.call, " on ", wait.axis, " for rank ",
                                         wait.on[k], ", last: ", wait.last});
    if (next.story.size() > longest_story) next.story.resize(longest_story);
    send(wait.on[k], packed(next));
  }
}

WEFT_INLINE std::string Watch::difference(const Notice& notice) const {
  if (notice.step.kind != Step::collective) return {};
  const Ledger* known = ledger(notice.step.channel);
  if (known == nullptr) return {};
  const auto mine = known->at(notice.step.number);
  const auto& its = notice.step;
  const bool same = same_call(mine[0], its.signature) && mine[1] == its.count;
  if (mine == std::array<std::uint64_t, 3>{} || (same && mine[2] == its.counts)) return {};
  const std::string my_call = describe(mine[0], mine[1]), other = describe(its.signature, its.count);
  const bool first = rank_ < notice.sender;
  const std::string lower = weft::detail::joined({"rank ", std::min(rank_, notice.sender)}),
                    higher = weft::detail::joined({"rank ", std::max(rank_, notice.sender)});
  return weft::detail::joined({"ranks disagree: ", lower, " called ", first ? my_call : other, ", ", higher, " called ",
                               first ? other : my_call, " on ", known->axis(),
                               functions_of(lower, first ? mine[0] : its.signature, higher, first ? its.signature : mine[0]),
                               same ? ": their counts differ" : ""});
}

WEFT_INLINE std::string Watch::look(Wait& wait) {
  const auto now = std::chrono::steady_clock::now();
  if (wait.id != 0 && now - looked_ < interval) return {};
  looked_ = now;
  take_in();
  if (wait.id == 0) wait.id = ++waits_;
  std::string why = accusation(wait.step.channel);
  if (!why.empty()) return why;
  if (wait.told < wait.on.size()) {
    const std::size_t to = std::min(wait.on.size(), wait.told + at_once);
    pass_on(wait, nullptr, wait.told, to);
    wait.told = to;
  }
  for (std::size_t k = 0; why.empty() && k < notices_.size(); ++k) {
    Notice& notice = notices_[k];
    std::vector<std::uint64_t> where{notice.step.channel / 2};
    why = difference(notice);
    if (made(notice)) {
      notice.wait = 0;  // no rank waits for that any more
    } else if (notice.origin == rank_) {
      if (notice.wait == wait.id) {
        why = "ranks wait for each other and none can go on: " + notice.story;
        where = notice.communicators;
      }
      notice.wait = 0;
    } else if (notice.passed != wait.id) {
      pass_on(wait, &notice, 0, wait.on.size());
      notice.passed = wait.id;
    }
    if (!why.empty()) accuse(std::move(where), why);
  }
  std::erase_if(notices_, [](const Notice& notice) { return notice.wait == 0; });
  return why;
}

WEFT_INLINE std::string Watch::unreceived(Group& all) const {
  const auto n = std::size_t(size());
  if (std::size_t(all.size()) != n) return {};
  std::vector<std::uint64_t> sent = past_sent_, received = past_received_, told(n);
  sent.resize(n);
  received.resize(n);
  struct Row {
    std::uint64_t channel, sent, begun, signature, count;
    std::int32_t rank, peer, tag, unused;
  };
  std::vector<Row> mine;
  for (const auto& ledger : ledgers_)
    for (const Ledger::Messages& m : ledger->messages()) {
      (m.sent ? sent : received)[std::size_t(m.peer)] += m.begun;
      mine.push_back({ledger->channel(), m.sent, m.begun, m.signature, m.count, rank_, m.peer, m.tag, 0});
    }
  const Call exchange{
      .operation = Operation::all_to_all, .type = DataType::uint64, .count = 1, .input = sent.data(), .output = told.data()};
  all.execute(exchange);
  const std::uint64_t differs = told != received, rows = mine.size();
  std::vector<std::uint64_t> any(n), lengths(n), forgotten(n), all_told(n * n), all_received(n * n);
  const auto gather = [&](const std::uint64_t& first, std::size_t count, std::vector<std::uint64_t>& to) {
    all.execute(
        {.operation = Operation::all_gather, .type = DataType::uint64, .count = count, .input = &first, .output = to.data()});
  };
  gather(differs, 1, any);
  if (std::find(any.begin(), any.end(), 1u) == any.end()) return {};
  gather(rows, 1, lengths);
  gather(forgotten_, 1, forgotten);
  gather(told[0], n, all_told);
  gather(received[0], n, all_received);
  std::vector<std::size_t> counts(n);
  std::size_t sum = 0;
  for (std::size_t q = 0; q < n; ++q) sum += lengths[q], counts[q] = lengths[q] * (sizeof(Row) / sizeof(std::uint64_t));
  std::vector<Row> everything(sum);
  all.execute({.operation = Operation::all_gather_v,
               .type = DataType::uint64,
               .input = mine.data(),
               .output = everything.data(),
               .receive_counts = counts});
  std::string text;
  for (const Row& row : everything) {
    if (row.sent == 0 || row.channel < forgotten[std::size_t(row.peer)]) continue;
    std::uint64_t got = 0;
    for (const Row& other : everything)
      if (other.sent == 0 && other.channel == row.channel && other.tag == row.tag && other.rank == row.peer &&
          other.peer == row.rank)
        got = other.begun;
    if (got >= row.begun || text.size() > longest_story) continue;
    const Ledger* known = ledger(row.channel);
    weft::detail::append_to(
        text, {text.empty() ? "" : "; ", "rank ", row.rank, " called ", describe(row.signature, row.count), " to rank ", row.peer,
               known == nullptr ? "" : " on ", known == nullptr ? "" : known->axis(), ", which never received it"});
    if (row.begun - got > 1) weft::detail::append_to(text, {" (nor ", row.begun - got - 1, " more)"});
  }
  for (std::size_t k = 0; k < n * n && text.empty(); ++k)  // sent on a communicator whose account is gone
    if (all_told[k] > all_received[k])
      weft::detail::append_to(text, {"rank ", k % n, " sent ", all_told[k], " messages to rank ", k / n, ", which received ",
                                     all_received[k], " of them before their communicators ended"});
  return text;
}

}  // namespace weft::comm
