// SPDX-License-Identifier: Apache-2.0
#pragma once
// The mutations of test_mutations.py: one collective of weft left out, or made twice. The script copies weft's headers and gives
// each call of a collective its place in the source; this header is included by the copy of comm/communicator.hpp. One program
// therefore has all mutations, and WEFT_MUTATION chooses one of them:
//
//   WEFT_MUTATION="nn/loss.hpp:73 tp all_reduce left_out" WEFT_PROVE=2 ./program
//
// WEFT_MUTATIONS_REACHED=FILE: the places that the program reaches on more than one rank are added to the file.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/operation.hpp>

namespace weft::mutation {

inline thread_local const char* collective = nullptr;  // the place of the next collective of this thread
inline thread_local const char* conversion = nullptr;  // that of the `to` in which it is made, for those of tensor/to.hpp
inline thread_local const char* next_conversion = nullptr;

/// A call of `to` or `to_layout_of`.
struct Scope {
  const char* before = conversion;
  Scope() {
    if (next_conversion != nullptr) conversion = std::exchange(next_conversion, nullptr);
  }
  ~Scope() { conversion = before; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

struct Via {};
inline Via via(const char* place) {
  next_conversion = place;
  return {};
}
template <class T>
T operator->*(Via, T&& made) {
  return std::forward<T>(made);
}

inline bool asked_for(const std::string& name) {
  static const char* const wanted = std::getenv("WEFT_MUTATION");
  static const char* const reached = std::getenv("WEFT_MUTATIONS_REACHED");
  if (reached != nullptr) {
    static std::mutex mutex;
    static std::set<std::string> known;
    const std::lock_guard lock(mutex);
    if (known.insert(name).second) {
      const int file = ::open(reached, O_WRONLY | O_APPEND | O_CREAT, 0644);
      const std::string line = name + "\n";
      if (file < 0 || ::write(file, line.data(), line.size()) < 0) std::abort();
      ::close(file);
    }
  }
  return wanted != nullptr && name == wanted;
}

inline void fill(void* to, std::size_t size, const void* from, std::size_t given) {
  for (std::size_t done = 0; done < size && given != 0; done += std::min(given, size - done))
    if (static_cast<char*>(to) + done != from) std::memmove(static_cast<char*>(to) + done, from, std::min(given, size - done));
}
inline std::size_t sum_of(std::span<const std::size_t> counts, std::size_t before) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < before; ++i) sum += counts[i];
  return sum;
}

/// The output of a rank that does without the others: its own elements.
inline void leave_out(const comm::Call& call, std::size_t rank, std::size_t ranks) {
  using comm::Operation;
  const std::size_t each = size_of(call.type);
  const char* const input = static_cast<const char*>(call.input);
  const auto all = [&](std::span<const std::size_t> counts) { return sum_of(counts, counts.size()); };
  switch (call.operation) {
    case Operation::all_reduce: return fill(call.output, call.count * each, input, call.count * each);
    case Operation::reduce_scatter:
      return fill(call.output, call.count * each, input + rank * call.count * each, call.count * each);
    case Operation::reduce_scatter_v:
      return fill(call.output, call.receive_counts[rank] * each, input + sum_of(call.receive_counts, rank) * each,
                  call.receive_counts[rank] * each);
    case Operation::all_gather: return fill(call.output, ranks * call.count * each, input, call.count * each);
    case Operation::all_gather_v:
      return fill(call.output, all(call.receive_counts) * each, input, call.receive_counts[rank] * each);
    case Operation::all_to_all: return fill(call.output, ranks * call.count * each, input, ranks * call.count * each);
    case Operation::all_to_all_v: return fill(call.output, all(call.receive_counts) * each, input, all(call.send_counts) * each);
    default: std::abort();
  }
}

/// Calls execute(call) as the mutation of this place wants, up to the call that the program makes itself (if it makes one).
template <class F>
bool done_without(comm::Call& call, std::string_view axis, std::size_t rank, std::size_t ranks, const F& execute) {
  using comm::Operation;
  const char* place = std::exchange(collective, nullptr);
  if (place == nullptr || ranks < 2) return false;
  const bool of_every_conversion = std::string_view(place).starts_with("tensor/to.hpp:");  // others are named themselves
  if (conversion != nullptr && of_every_conversion) place = conversion;
  const std::string name = std::string(place) + " " + std::string(axis) + " " + std::string(name_of(call.operation)) +
                           (reduces(call.operation) && call.reduction != Reduction::sum ? " idempotent" : "");
  if (asked_for(name + " left_out")) return leave_out(call, rank, ranks), true;
  const bool sums = reduces(call.operation);
  if ((sums || call.operation == Operation::all_to_all) && asked_for(name + " twice")) {
    if (call.operation == Operation::all_reduce || call.operation == Operation::all_to_all) {
      execute(call);
      auto* const again = new std::vector<char>((sums ? 1 : ranks) * call.count * size_of(call.type));  // outlives the call
      std::memcpy(again->data(), call.output, again->size());
      call.input = sums ? call.output : again->data();
    } else {  // an all-reduce of the input before
      const std::size_t count =
          call.operation == Operation::reduce_scatter ? ranks * call.count : sum_of(call.receive_counts, ranks);
      auto* const summed = new std::vector<char>(count * size_of(call.type));
      std::memcpy(summed->data(), call.input, summed->size());
      comm::Call before = call;
      before.operation = Operation::all_reduce, before.count = count, before.receive_counts = {};
      before.input = before.output = summed->data();
      execute(before);
      call.input = summed->data();
    }
  }
  return false;
}

}  // namespace weft::mutation
