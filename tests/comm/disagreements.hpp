// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls that differ in one property each; every ordered pair is a mistake: all ranks make the one call, one rank makes the other.
// Used by comm/mismatch.cpp and by the program comm/programs/disagree.cpp.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/errors.hpp>

namespace weft_test {

using weft::Communicator;

struct Buffers {
  std::vector<float> a, b;
  std::vector<double> d;
  explicit Buffers(std::size_t count, int size)
      : a((count + 2) * std::size_t(size), 1.0f), b((count + 2) * std::size_t(size), 2.0f), d(count + 2, 3.0) {}
  bool operator==(const Buffers&) const = default;
};

/// The call of one rank on `c`. `d` is another communicator of the same ranks.
struct Case {
  std::string name;      ///< as errors describe it; empty if the call is missing
  bool message = false;  ///< between two ranks
  std::function<void(const Communicator& c, const Communicator& d, Buffers&)> call;
};

/// `count`: the elements of a message; short ones travel another way than long ones.
inline std::vector<Case> disagreements(std::size_t count) {
  using weft::Reduction;
  using C = const Communicator&;
  using B = Buffers&;
  const auto text = [](std::size_t n) { return std::to_string(n); };
  const auto some = [](auto& v, std::size_t n) { return std::span(v).first(n); };
  const auto all = [count](C c) { return count * std::size_t(c.size()); };
  // Counts of _v operations: one element more for the last rank, or one less.
  const auto counts = [count](C c, int more) {
    std::vector<std::size_t> n(std::size_t(c.size()), count);
    n.back() += std::size_t(more);
    return n;
  };
  std::vector<Case> cases{
      {"all_reduce(sum) of " + text(count) + " float32", false, [=](C c, C, B x) { c.all_reduce(some(x.a, count)); }},
      {"all_reduce(max) of " + text(count) + " float32", false,
       [=](C c, C, B x) { c.all_reduce(some(x.a, count), Reduction::max); }},
      {"all_reduce(sum) of " + text(count - 1) + " float32", false, [=](C c, C, B x) { c.all_reduce(some(x.a, count - 1)); }},
      {"all_reduce(sum) of " + text(count) + " float64", false, [=](C c, C, B x) { c.all_reduce(some(x.d, count)); }},
      {"all_gather of " + text(count) + " float32", false,
       [=](C c, C, B x) { c.all_gather(some(x.a, count), some(x.b, all(c))); }},
      {"reduce_scatter(sum) of " + text(count) + " float32", false,
       [=](C c, C, B x) { c.reduce_scatter(some(x.a, all(c)), some(x.b, count)); }},
      {"all_to_all of " + text(count) + " float32", false,
       [=](C c, C, B x) { c.all_to_all(some(x.a, all(c)), some(x.b, all(c))); }},
      {"barrier()", false, [](C c, C, B) { c.barrier(); }},
      {"barrier()", false,
       [](C c, C d, B) {  // the order of two communicators is swapped
         d.barrier();
         c.barrier();
       }},
      {"all_reduce(sum) of " + text(count) + " float32", false, [=](C, C d, B x) { d.all_reduce(some(x.a, count)); }},
      {"split()", false, [](C c, C, B) { static_cast<void>(c.split(0, 0, "part")); }},
      {"recv of " + text(count) + " float32", true, [=](C c, C, B x) { c.recv(some(x.b, count), (c.rank() + 1) % c.size()); }},
      {"send of " + text(count) + " float32", true, [=](C c, C, B x) { c.send(some(x.a, count), (c.rank() + 1) % c.size()); }},
      {"", false, [](C, C, B) {}},
  };
  for (const int root : {0, 1}) {
    const std::string what = " of " + text(count) + " float32 with root " + std::to_string(root);
    cases.push_back({"broadcast" + what, false, [=](C c, C, B x) { c.broadcast(some(x.a, count), root); }});
    cases.push_back({"reduce(sum)" + what, false, [=](C c, C, B x) { c.reduce(some(x.a, count), some(x.b, count), root); }});
    cases.push_back({"gather" + what, false, [=](C c, C, B x) { c.gather(some(x.a, count), some(x.b, all(c)), root); }});
    cases.push_back({"scatter" + what, false, [=](C c, C, B x) { c.scatter(some(x.a, all(c)), some(x.b, count), root); }});
  }
  for (const int more : {0, 1}) {
    const auto mine = [=](C c) { return counts(c, more)[std::size_t(c.rank())]; };
    const auto whole = [=](C c) { return all(c) + std::size_t(more); };
    cases.push_back({"all_gather_v float32", false,
                     [=](C c, C, B x) { c.all_gather_v(some(x.a, mine(c)), some(x.b, whole(c)), counts(c, more)); }});
    cases.push_back({"reduce_scatter_v(sum) float32", false,
                     [=](C c, C, B x) { c.reduce_scatter_v(some(x.a, whole(c)), some(x.b, mine(c)), counts(c, more)); }});
    cases.push_back({"all_to_all_v float32", false, [=](C c, C, B x) {
                       const std::vector<std::size_t> sent(std::size_t(c.size()), mine(c)), received = counts(c, more);
                       const std::size_t sends = std::accumulate(sent.begin(), sent.end(), std::size_t(0));
                       c.all_to_all_v(some(x.a, sends), sent, some(x.b, whole(c)), received);
                     }});
  }
  return cases;
}

/// False if the two make a correct program: between two ranks each message matches the other.
inline bool disagree(const Case& usual, const Case& other, int size) { return !(size == 2 && usual.message && other.message); }

/// The end of one rank in one trial.
struct Ending {
  enum Kind : int { fine, mismatch, aborted, timeout, other } kind = fine;
  bool changed = false;  ///< a buffer of the call that threw
  double seconds = 0;
  std::string text;
};

/// Makes this rank's call, then calls `end`, and returns the outcome.
template <class F>
Ending trial(const Case& mine, const Communicator& c, const Communicator& d, std::size_t count, F&& end, bool again = false) {
  const auto start = std::chrono::steady_clock::now();
  Ending ending;
  Buffers buffers(count, c.size());
  bool called = false;
  try {
    mine.call(c, d, buffers);
    called = true;
    end();
  } catch (const weft::MismatchError& error) {
    ending = {Ending::mismatch, false, 0, error.what()};
  } catch (const weft::AbortedError& error) {
    ending = {Ending::aborted, false, 0, error.what()};
  } catch (const weft::TimeoutError& error) {
    ending = {Ending::timeout, false, 0, error.what()};
  } catch (const std::exception& error) {
    ending = {Ending::other, false, 0, error.what()};
  }
  ending.changed = ending.kind != Ending::fine && !called && !(buffers == Buffers(count, c.size()));
  ending.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (again && ending.kind != Ending::fine) throw weft::MismatchError(c.rank(), "world", "trial", 0, ending.text);
  return ending;
}

/// Empty if a trial in which rank `odd` made another call ended correctly: detected, within a second, with both ranks and both
/// calls named and no buffer changed. `ends_alone`: a rank without a call may end without an error.
inline std::string complaint(std::span<const Ending> endings, const Case& usual, const Case& other, int odd, bool ends_alone) {
  bool named = false;
  std::size_t found = 0;
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  for (std::size_t r = 0; r < endings.size(); ++r) {
    const Ending& ending = endings[r];
    const std::string who = "rank " + std::to_string(r) + " ";
    if (ending.kind == Ending::timeout) return who + "found it by its deadline only: " + ending.text;
    if (ending.kind == Ending::other) return who + "ended otherwise: " + ending.text;
    if (ending.seconds > 1.0) return who + "took " + std::to_string(ending.seconds) + " s: " + ending.text;
    // Messages of an all_to_all_v with matching ends are received, even if those of other ranks do not match.
    const bool taken = ending.kind == Ending::aborted && usual.name.starts_with("all_to_all_v") && usual.name == other.name;
    if (ending.changed && !taken) return who + "has another buffer: " + ending.text;
    found += ending.kind == Ending::mismatch;
    if (ending.kind == Ending::fine && !ends_alone) return who + "noticed nothing";
    for (std::size_t q = 0; q < endings.size(); ++q)
      named = named ||
              (ending.kind == Ending::mismatch && int(q) != odd && has(ending.text, usual.name) && has(ending.text, other.name) &&
               has(ending.text, "rank " + std::to_string(odd)) && has(ending.text, "rank " + std::to_string(q)));
  }
  if (found == 0) return "nobody noticed";
  if (!named) {
    std::string all = "the calls or ranks are not named:";
    for (const Ending& ending : endings) all += " [" + ending.text + "]";
    return all;
  }
  return {};
}

}  // namespace weft_test
