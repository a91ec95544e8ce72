// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/store/group.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/store/group.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::store {

WEFT_INLINE StoreGroup::StoreGroup(std::shared_ptr<Process> process, std::uint64_t number, std::vector<int> members,
                                   std::string axis)
    : process_(std::move(process)), number_(number), members_(std::move(members)), axis_(std::move(axis)) {
  rank_ = int(std::find(members_.begin(), members_.end(), process_->rank()) - members_.begin());
  flight_ = process_->recorder.open(axis_, members_, number_);
  process_->groups.push_back(this);
}

WEFT_INLINE StoreGroup::~StoreGroup() { std::erase(process_->groups, this); }

WEFT_INLINE int StoreGroup::rank() const { return rank_; }

WEFT_INLINE int StoreGroup::size() const { return int(members_.size()); }

WEFT_INLINE std::string_view StoreGroup::axis() const { return axis_; }

WEFT_INLINE std::string_view StoreGroup::backend() const { return "store"; }

WEFT_INLINE bool StoreGroup::supports(Operation, DataType, MemoryKind memory) const { return memory == MemoryKind::host; }

WEFT_INLINE void StoreGroup::execute(const Call& call) {
  if (const auto pending = start(call)) pending->wait();
}

WEFT_INLINE std::size_t StoreGroup::given(const Call& call) const {
  using enum Operation;
  const auto n = members_.size();
  const auto sum = [](std::span<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t(0));
  };
  switch (call.operation) {
    case broadcast: return call.root == rank_ ? call.count : 0;
    case scatter: return call.root == rank_ ? n * call.count : 0;
    case reduce_scatter:
    case all_to_all: return n * call.count;
    case reduce_scatter_v: return sum(call.receive_counts);
    case all_gather_v: return call.receive_counts[std::size_t(rank_)];
    case all_to_all_v: return sum(call.send_counts);
    case barrier:
    case split: return 0;
    default: return call.count;
  }
}

WEFT_INLINE std::string StoreGroup::contribution(const Call& call) const {
  Head head{signature(call), by_counts(call.operation) ? 0 : call.count, 0, given(call) * size_of(call.type)};
  if (call.operation != Operation::all_to_all_v)
    for (const std::size_t count : call.receive_counts) head.counts = head.counts * 1000003 + count;
  std::string text = bytes_of(&head, sizeof head);
  text += bytes_of(call.send_counts.data(), call.send_counts.size_bytes());
  return text += bytes_of(call.input, head.bytes);
}

WEFT_INLINE void StoreGroup::advance_all() {
  for (const auto& running : under_way_)
    if (!running->complete && advance(*running)) {
      running->complete = true;
      process_->recorder.complete(running->number);
    }
  std::erase_if(under_way_, [](const auto& running) { return running->complete; });
}

WEFT_INLINE StoreGroup::Started::~Started() {
  if (!running_->complete) std::erase(group_->under_way_, running_);  // nothing touches its buffers any more
}

WEFT_INLINE bool StoreGroup::Started::test() {
  if (running_->complete) return true;
  advance_everything(*group_->process_);
  if (running_->complete) return true;
  // A look at the others' ends costs two requests: not at every turn.
  if (++turns_ % 32 == 0)
    if (const std::string why = group_->guarded(*running_, [&] { return group_->process_->failure(); }); !why.empty())
      throw AbortedError(group_->process_->rank(), group_->axis_, describe(running_->call), running_->sequence, why);
  return false;
}

WEFT_INLINE void StoreGroup::Started::wait() { group_->wait(*running_); }

WEFT_INLINE void StoreGroup::Started::abandon() noexcept {
  if (running_->complete || std::uncaught_exceptions() > 0) return;
  try {
    wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

WEFT_INLINE std::unique_ptr<Pending> StoreGroup::start(const Call& call) {
  call.order.fence();
  if (call.tag < 0) throw_error<UsageError>({name_of(call.operation), ": tag ", call.tag, " is negative"});
  auto running = std::make_shared<Running>();
  running->call = call;
  running->counts.assign(call.receive_counts.begin(), call.receive_counts.end());
  running->counts.insert(running->counts.end(), call.send_counts.begin(), call.send_counts.end());
  const std::span<const std::size_t> all(running->counts);
  running->call.receive_counts = all.first(call.receive_counts.size());
  running->call.send_counts = all.subspan(call.receive_counts.size());
  running->sequence = ++sequence_;
  comm::detail::expect_no_stop(process_->rank(), axis_, call, sequence_);
  running->number = process_->recorder.begin(*flight_, sequence_, call);
  guarded(*running, [&] { post(*running); });
  if (running->complete) {
    process_->recorder.complete(running->number);
    return nullptr;
  }
  under_way_.push_back(running);
  return std::make_unique<Started>(shared_from_this(), std::move(running));
}

/// Sends this rank's data.
WEFT_INLINE void StoreGroup::post(Running& running) {
  const Call& call = running.call;
  if (call.operation == Operation::send) {
    const auto number = ++sent_[{call.root, call.tag}];
    Head head{std::uint64_t(call.type), call.count, 0, call.bytes()};
    process_->put(weft::detail::joined({"m/", number_, "/", rank_, "/", call.root, "/", call.tag, "/", number}),
                  bytes_of(&head, sizeof head) + bytes_of(call.input, call.bytes()));
    running.complete = true;
    return;
  }
  if (call.operation == Operation::recv) {
    running.key =
        weft::detail::joined({"m/", number_, "/", call.root, "/", rank_, "/", call.tag, "/", ++received_[{call.root, call.tag}]});
    return;
  }
  const std::uint64_t collective = ++collectives_;
  if (rank_ != 0) {
    process_->put(key(collective, rank_), contribution(call));
    running.key = weft::detail::joined({"r/", number_, "/", collective, "/", rank_});
    return;
  }
  running.key = weft::detail::joined({number_, "/", collective, "/"});
  running.parts.resize(members_.size());
  running.come.assign(members_.size(), false);
  running.parts[0] = contribution(call);
  running.come[0] = true;
}

WEFT_INLINE bool StoreGroup::advance(Running& running) {
  return guarded(running, [&] {
    const Call& call = running.call;
    if (call.operation != Operation::recv && rank_ == 0) {
      for (std::size_t q = 0; q < members_.size(); ++q) {
        if (running.come[q]) continue;
        auto part = process_->take("c/" + running.key + std::to_string(q));
        if (!part) continue;
        running.parts[q] = std::move(*part);
        running.come[q] = true;
      }
      if (std::find(running.come.begin(), running.come.end(), false) != running.come.end()) return false;
      gather_all(running);
      return true;
    }
    const auto message = process_->take(running.key);
    if (!message) return false;
    if (call.operation != Operation::recv) return finish(running, *message), true;
    const Head head = head_of(*message);
    if (head.signature != std::uint64_t(call.type) || head.count != call.count)
      throw MismatchError(
          process_->rank(), axis_, describe(call), running.sequence,
          weft::detail::joined({"rank ", call.root, " of ", axis_, " sent ", head.count, " ", name_of(DataType(head.signature)),
                                ", ", call.count, " ", name_of(call.type), " were expected"}));
    if (call.bytes() != 0) std::memcpy(call.output, message->data() + sizeof head, call.bytes());
    return true;
  });
}

/// Called on the first rank once it has all data: sends the data to the others, or a text that names two ranks that disagree.
WEFT_INLINE void StoreGroup::gather_all(Running& running) {
  std::string everything(1, '1');
  for (std::size_t q = 1; q < members_.size() && everything[0] == '1'; ++q) {
    const Head first = head_of(running.parts[0]), other = head_of(running.parts[q]);
    if (same_call(first.signature, other.signature) && first.count == other.count && first.counts == other.counts) continue;
    everything = weft::detail::joined({"0ranks disagree: rank 0 of ", axis_, " called ", describe(first.signature, first.count),
                                       ", rank ", long(q), " of ", axis_, " called ", describe(other.signature, other.count),
                                       functions_of("rank 0 of " + axis_, first.signature,
                                                    weft::detail::joined({"rank ", long(q), " of ", axis_}), other.signature)});
  }
  if (everything[0] == '1')
    for (const std::string& part : running.parts) {
      const std::uint64_t length = part.size();
      everything += bytes_of(&length, sizeof length) + part;
    }
  for (std::size_t q = 1; q < members_.size(); ++q) process_->put("r/" + running.key + std::to_string(q), everything);
  finish(running, everything);
}

/// Computes this rank's result from the data of all ranks.
WEFT_INLINE void StoreGroup::finish(Running& running, const std::string& everything) {
  using enum Operation;
  const Call& call = running.call;
  if (everything.empty() || everything[0] != '1')
    throw MismatchError(process_->rank(), axis_, describe(call), running.sequence,
                        everything.substr(std::min<std::size_t>(1, everything.size())));
  const std::size_t n = members_.size(), me = std::size_t(rank_), width = size_of(call.type), bytes = call.bytes();
  std::vector<const char*> inputs(n);
  std::vector<std::vector<std::size_t>> send_counts(n);
  std::size_t at = 1;
  for (std::size_t q = 0; q < n; ++q) {
    std::uint64_t length = 0;
    std::memcpy(&length, everything.data() + at, sizeof length);
    at += sizeof length;
    std::size_t header = sizeof(Head);
    if (call.operation == all_to_all_v) {
      send_counts[q].resize(n);
      std::memcpy(send_counts[q].data(), everything.data() + at + header, n * sizeof(std::size_t));
      header += n * sizeof(std::size_t);
    }
    inputs[q] = everything.data() + at + header;
    at += length;
  }
  auto* out = static_cast<char*>(call.output);
  const auto put = [&](std::size_t to, const char* from, std::size_t length) {
    if (length != 0) std::memcpy(out + to, from, length);
  };
  const auto before = [](std::span<const std::size_t> counts, std::size_t end) {
    return std::accumulate(counts.begin(), counts.begin() + std::ptrdiff_t(end), std::size_t(0));
  };
  const auto combine = [&](std::size_t from, std::size_t count) {
    // Copies, aligned for their type.
    std::vector<std::unique_ptr<std::byte[]>> rows;
    std::vector<const void*> pointers;
    for (std::size_t q = 0; q < n; ++q) {
      rows.emplace_back(new std::byte[count * width + 1]);
      if (count != 0) std::memcpy(rows[q].get(), inputs[q] + from * width, count * width);
      pointers.push_back(rows[q].get());
    }
    void* outputs[] = {call.output};
    call.combine(call.reduction, pointers, {outputs, 1}, 0, count);
  };
  switch (call.operation) {
    case all_reduce: return combine(0, call.count);
    case reduce:
      if (call.root == rank_) combine(0, call.count);
      return;
    case reduce_scatter: return combine(me * call.count, call.count);
    case reduce_scatter_v: return combine(before(call.receive_counts, me), call.receive_counts[me]);
    case broadcast: return put(0, inputs[std::size_t(call.root)], bytes);
    case all_gather:
      for (std::size_t q = 0; q < n; ++q) put(q * bytes, inputs[q], bytes);
      return;
    case all_gather_v:
      for (std::size_t q = 0; q < n; ++q) put(before(call.receive_counts, q) * width, inputs[q], call.receive_counts[q] * width);
      return;
    case gather:
      if (call.root == rank_)
        for (std::size_t q = 0; q < n; ++q) put(q * bytes, inputs[q], bytes);
      return;
    case scatter: return put(0, inputs[std::size_t(call.root)] + me * bytes, bytes);
    case all_to_all:
      for (std::size_t q = 0; q < n; ++q) put(q * bytes, inputs[q] + me * bytes, bytes);
      return;
    case all_to_all_v:
      for (std::size_t q = 0; q < n; ++q) {
        if (send_counts[q][me] != call.receive_counts[q])
          throw MismatchError(process_->rank(), axis_, describe(call), running.sequence,
                              weft::detail::joined({"rank ", long(q), " of ", axis_, " sends ", send_counts[q][me], " elements, ",
                                                    call.receive_counts[q], " were expected"}));
        put(before(call.receive_counts, q) * width, inputs[q] + before(send_counts[q], me) * width,
            call.receive_counts[q] * width);
      }
      return;
    case barrier:
    case split:
    case send:
    case recv: return;
  }
}

WEFT_COLD WEFT_INLINE std::string StoreGroup::missing(const Running& running) const {
  if (is_point_to_point(running.call.operation)) return weft::detail::joined({"rank ", members_[std::size_t(running.call.root)]});
  if (rank_ != 0) return weft::detail::joined({"rank ", members_[0], ", which gathers the data of all ranks"});
  std::string ranks;
  for (std::size_t q = 1; q < running.come.size(); ++q)
    if (!running.come[q]) weft::detail::append_to(ranks, {ranks.empty() ? "rank " : ", ", members_[q]});
  return ranks;
}

WEFT_INLINE void StoreGroup::wait(Running& running) {
  const auto start = Clock::now();
  auto looked = start;
  while (!running.complete) {
    advance_everything(*process_);
    if (running.complete) return;
    const auto now = Clock::now();
    if (now - looked > std::chrono::milliseconds(20)) {
      looked = now;
      if (const std::string why = guarded(running, [&] { return process_->failure(); }); !why.empty())
        throw AbortedError(process_->rank(), axis_, describe(running.call), running.sequence, why);
    }
    if (comm::detail::wait_must_end(start))
      comm::detail::throw_interrupted(process_->rank(), axis_, running.call, running.sequence, missing(running));
    if (now - start > process_->deadline)
      throw TimeoutError(process_->rank(), axis_, describe(running.call), running.sequence,
                         weft::detail::joined({"waited longer than the deadline of ", std::to_string(process_->deadline.count()),
                                               " s; last operations: ", process_->recorder.text()}));
    std::this_thread::sleep_for(std::chrono::microseconds(now - start < std::chrono::milliseconds(5) ? 50 : 500));
  }
}

WEFT_INLINE std::shared_ptr<Group> StoreGroup::split(int color, int key, std::string axis) {
  const auto n = members_.size();
  const std::int64_t mine[] = {color, key, std::int64_t(process_->next_group)};
  std::vector<std::int64_t> all(3 * n);
  execute({.operation = Operation::all_gather,
           .type = DataType::int64,
           .function = process_->recorder.function(),
           .count = 3,
           .input = mine,
           .output = all.data()});
  std::vector<std::size_t> same;
  std::uint64_t number = 0;  // new to every rank that gets it
  for (std::size_t q = 0; q < n; ++q) {
    number = std::max(number, std::uint64_t(all[3 * q + 2]));
    if (all[3 * q] == color) same.push_back(q);
  }
  process_->next_group = number + 1;
  std::stable_sort(same.begin(), same.end(), [&](std::size_t a, std::size_t b) { return all[3 * a + 1] < all[3 * b + 1]; });
  if (same.size() == 1) return std::make_shared<SelfGroup>(std::move(axis), "store");
  std::vector<int> members;
  for (const std::size_t q : same) members.push_back(members_[q]);
  // Parts of one split share its number: their first ranks tell them apart.
  return std::make_shared<StoreGroup>(process_, number * (std::uint64_t(1) << 20) + std::uint64_t(members[0]), std::move(members),
                                      std::move(axis));
}

}  // namespace weft::comm::store
