// SPDX-License-Identifier: Apache-2.0
#pragma once
// Steps that all ranks do together. If one rank fails, all throw the error of the first that failed, so no rank continues with a
// checkpoint that another one does not have.
//
//   together(ranks, [&] { write_my_part(); });   // no communication inside

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/checkpoint/error.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/comm/gather_lists.hpp>

namespace weft::checkpoint::detail {

/// Numbers and texts as one message.
class Packed {
 public:
  Packed() = default;
  explicit Packed(std::vector<std::uint64_t> words) : words_(std::move(words)) {}

  void put(std::uint64_t word) { words_.push_back(word); }
  void put(std::string_view text) {
    put(std::uint64_t(text.size()));
    const std::size_t at = words_.size();
    words_.resize(at + (text.size() + 7) / 8);
    if (!text.empty()) std::memcpy(words_.data() + at, text.data(), text.size());
  }
  std::uint64_t word() { return words_[at_++]; }
  std::string text() {
    const std::size_t size = word();
    std::string out(reinterpret_cast<const char*>(words_.data() + at_), size);
    at_ += (size + 7) / 8;
    return out;
  }
  bool done() const { return at_ == words_.size(); }
  std::vector<std::uint64_t>& words() { return words_; }

 private:
  std::vector<std::uint64_t> words_;
  std::size_t at_ = 0;
};

/// The root's message on every rank. Collective.
inline Packed from(const Communicator& ranks, int root, Packed message) {
  if (ranks.size() == 1) return message;
  std::uint64_t words[] = {message.words().size()};
  ranks.broadcast(std::span(words), root);
  message.words().resize(words[0]);
  if (words[0] != 0) ranks.broadcast(message.words(), root);
  return Packed(std::move(message.words()));
}

/// Every rank's message on every rank. Collective.
inline std::vector<Packed> from_all(const Communicator& ranks, Packed message) {
  std::vector<Packed> all;
  for (auto& words : weft::detail::gather_lists(ranks, std::span<const std::uint64_t>(message.words())))
    all.emplace_back(std::move(words));
  return all;
}

/// A step's failure on one rank.
struct Failure {
  std::string what;
  Place place;
  int exit_code = 2;
};

/// If any rank failed, throws the first one's failure on every rank. Collective.
inline void require_all(const Communicator& ranks, const std::optional<Failure>& mine) {
  std::uint64_t first[] = {mine ? std::uint64_t(ranks.size() - ranks.rank()) : 0};  // the maximum is the lowest failed rank
  if (ranks.size() > 1) ranks.all_reduce(std::span(first), Reduction::max);
  if (first[0] == 0) return;
  const int root = ranks.size() - int(first[0]);
  Packed message;
  if (ranks.rank() == root) {
    message.put(ranks.size() > 1 ? weft::detail::joined({mine->what, " (rank ", root, ")"}) : mine->what);
    message.put(mine->place.file);
    message.put(mine->place.tensor);
    message.put(mine->place.offset);
    message.put(std::uint64_t(mine->exit_code));
  }
  message = from(ranks, root, std::move(message));
  const std::string what = message.text();
  Place place;
  place.file = message.text();
  place.tensor = message.text();
  place.offset = message.word();
  const int exit_code = int(message.word());
  throw Error(what, std::move(place), exit_code);
}

template <class F>
std::optional<Failure> failure_of(F&& f) {
  const auto plain = [](std::string_view what) { return std::string(what.starts_with("weft: ") ? what.substr(6) : what); };
  try {
    f();
  } catch (const Error& error) {
    return Failure{plain(error.what()), {error.file(), error.tensor(), error.offset()}, error.exit_code()};
  } catch (const std::exception& error) {
    const std::string what = plain(error.what());
    const auto* const ours = dynamic_cast<const weft::Error*>(&error);
    return Failure{what.starts_with("checkpoint: ") ? what : "checkpoint: " + what, {}, ours != nullptr ? ours->exit_code() : 1};
  }
  return std::nullopt;
}

template <class F>
void together(const Communicator& ranks, F&& f) {
  require_all(ranks, failure_of(std::forward<F>(f)));
}

}  // namespace weft::checkpoint::detail
