// SPDX-License-Identifier: Apache-2.0
// Finds the rank that is stuck, from the files of a failed run (WEFT_FLIGHT_DIR, one file per rank):
//
//   WEFT_FLIGHT_DIR=records mpirun -np 4 ./examples/run train_gpt ...
//   ./examples/run flight records
//
// Collectives are compared by communicator and number, messages by communicator, ranks, tag and number. The exit code is 0 if
// nothing is suspicious, 1 if something is, 2 if the files cannot be read or belong to several jobs.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/comm/run_options.hpp>
#include <weft/runtime/ending.hpp>

#include "records.hpp"

namespace {

using namespace flight;

constexpr double in_motion_s = 0.1;  // in an interrupted run, shorter waits are normal
constexpr double late_s = 1;         // a rank was stuck if it arrived this much later than others, and than half of their wait
constexpr std::size_t most_ranges = 16, most_findings = 16;

/// Communication errors end with the last calls of all ranks, which are also in the files; only the beginning is kept.
std::string short_text(const std::string& text) {
  constexpr std::size_t most_letters = 160;
  return text.size() <= most_letters ? text : text.substr(0, most_letters) + "...";
}
/// "rank 3", "ranks 0-4, 7". `ranks` are sorted.
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t ranges = 0;
  for (std::size_t k = 0; k < ranks.size();) {
    std::size_t end = k + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (++ranges > most_ranges) return text + joined({" and ", ranks.size() - k, " more"});
    weft::detail::append_to(text, {k == 0 ? "" : ", ", ranks[k]});
    if (end - k > 1) weft::detail::append_to(text, {end - k == 2 ? ", " : "-", ranks[end - 1]});
    k = end;
  }
  return text;
}

using Place = std::pair<const std::string*, std::uint64_t>;  // a communicator and the number of a collective

std::string place_text(const Flight& flight, const Entry& entry) {
  std::string text = joined({*entry.call, entry.message ? (entry.send ? " to rank " : " from rank ") : ""});
  if (entry.message) weft::detail::append_to(text, {entry.peer});
  weft::detail::append_to(text, {" on ", *flight.lines[entry.line].name});
  if (!entry.message) weft::detail::append_to(text, {", collective ", entry.step});
  return text;
}

/// The messages from one rank to another with one tag, in the order of their sender and of their receiver.
struct Messages {
  std::vector<const Entry*> sent, received;
};
using Route = std::tuple<const std::string*, int, int, int>;  // communicator, from, to, tag

std::map<Route, Messages> messages_of(const Run& run) {
  std::map<Route, Messages> all;
  for (const auto& [rank, flight] : run.flights)
    for (const Entry& entry : flight.entries) {
      if (!entry.message || entry.peer < 0) continue;
      const int from = entry.send ? rank : entry.peer, to = entry.send ? entry.peer : rank;
      Messages& messages = all[{flight.lines[entry.line].name, from, to, entry.tag}];
      (entry.send ? messages.sent : messages.received).push_back(&entry);
    }
  return all;
}

/// An unfinished call, and the ranks that have not arrived.
struct Wait {
  const Flight* flight;
  const Entry* entry;
  std::vector<int> on;
};

/// True if the other rank of an unfinished message has not begun its half.
bool other_is_missing(const Run& run, const Flight& flight, const Entry& entry, const std::map<Route, Messages>& messages) {
  if (entry.peer < 0) return false;  // unknown
  const auto other = run.flights.find(entry.peer);
  if (other == run.flights.end()) return true;
  const int from = entry.send ? flight.rank : entry.peer, to = entry.send ? entry.peer : flight.rank;
  const Messages& both = messages.at({flight.lines[entry.line].name, from, to, entry.tag});
  const auto& mine = entry.send ? both.sent : both.received;
  const auto& others = entry.send ? both.received : both.sent;
  if (flight.whole && other->second.whole)
    return std::find(mine.begin(), mine.end(), &entry) - mine.begin() >= std::ssize(others);
  return std::none_of(others.begin(), others.end(), [](const Entry* one) { return one->open; });  // the earliest calls are no
                                                                                                  // longer recorded
}

std::vector<Wait> waits_of(const Run& run, const std::map<Route, Messages>& messages) {
  std::map<std::pair<const std::string*, int>, std::uint64_t> begun;
  for (const auto& [rank, flight] : run.flights)
    for (const Line& line : flight.lines) begun[{line.name, rank}] = line.begun;
  std::map<Place, std::vector<int>> missing;  // computed once for all ranks that wait there
  std::vector<Wait> waits;
  for (const auto& [rank, flight] : run.flights)
    for (const Entry& entry : flight.entries) {
      if (!entry.open || (flight.interrupted() && entry.timed && flight.age(entry) < in_motion_s)) continue;
      const std::string* name = flight.lines[entry.line].name;
      std::vector<int> on;
      if (entry.message) {
        if (other_is_missing(run, flight, entry, messages)) on.push_back(entry.peer);
      } else {
        const auto [place, first] = missing.try_emplace({name, entry.step});
        if (first)
          for (const int q : run.members.at(*name)) {
            const auto found = begun.find({name, q});
            if (found == begun.end() || found->second < entry.step) place->second.push_back(q);
          }
        on = place->second;
      }
      // An interrupted rank may have continued after it wrote its file.
      const bool fresh = entry.timed && flight.age(entry) < in_motion_s;
      std::erase_if(on, [&, &flight = flight](int q) {
        const auto other = run.flights.find(q);
        return q == flight.rank || (fresh && other != run.flights.end() && other->second.interrupted());
      });
      if (!on.empty()) waits.push_back({&flight, &entry, std::move(on)});
    }
  return waits;
}

/// The position of a rank that waits for no other rank.
std::string last_of(const Flight& flight) {
  if (flight.entries.empty()) return "it has begun nothing";
  const Entry& last = flight.entries.back();
  std::string text = joined({"its last call, ", place_text(flight, last)});
  if (last.open) text += ", has all its ranks and is not complete";
  else if (last.timed)
    text += ", ended " + seconds(double(flight.written_ns - last.end_ns) * 1e-9) + " before its file was written";
  return text;
}

/// Lines of findings. After the first ones only their number is printed.
class Findings {
 public:
  void add(const std::string& text) {
    if (++count_ <= most_findings) std::printf("%s\n", text.c_str());
  }
  ~Findings() {
    if (count_ > most_findings) std::printf("and %zu more of this kind\n", count_ - most_findings);
  }
  std::size_t count() const { return count_; }

 private:
  std::size_t count_ = 0;
};

/// Reports the first collective of each communicator, and the first message of each route, on which ranks disagree.
std::size_t report_disagreements(const Run& run, const std::map<Route, Messages>& messages) {
  struct First {
    const std::string* call;
    int rank;
  };
  std::map<Place, First> called;
  std::map<const std::string*, std::uint64_t> differs;  // by communicator: the lowest number
  for (const auto& [rank, flight] : run.flights)
    for (const Entry& entry : flight.entries) {
      if (entry.message) continue;
      const std::string* name = flight.lines[entry.line].name;
      const auto [place, first] = called.try_emplace({name, entry.step}, First{entry.call, rank});
      if (first || place->second.call == entry.call) continue;
      const auto [lowest, only] = differs.try_emplace(name, entry.step);
      if (!only) lowest->second = std::min(lowest->second, entry.step);
    }
  Findings findings;
  for (const auto& [name, step] : differs) {
    std::map<std::string, std::vector<int>> ranks;
    for (const auto& [rank, flight] : run.flights)
      for (const Entry& entry : flight.entries)
        if (!entry.message && entry.step == step && flight.lines[entry.line].name == name) ranks[*entry.call].push_back(rank);
    std::string text = joined({"ranks disagree at collective ", step, " of ", *name, ":"});
    for (bool first = true; const auto& [call, who] : ranks) {
      weft::detail::append_to(text, {first ? " " : "; ", ranks_text(who), " called ", call});
      first = false;
    }
    findings.add(text);
  }
  const auto after_the_word = [](const Entry* entry) {
    return std::string_view(*entry->call).substr(entry->call->find(' ') + 1);
  };
  for (const auto& [route, both] : messages) {
    const auto& [name, from, to, tag] = route;
    const auto sender = run.flights.find(from), receiver = run.flights.find(to);
    if (sender == run.flights.end() || receiver == run.flights.end() || !sender->second.whole || !receiver->second.whole)
      continue;
    for (std::size_t k = 0; k < std::min(both.sent.size(), both.received.size()); ++k)
      if (after_the_word(both.sent[k]) != after_the_word(both.received[k])) {
        findings.add(joined({"ranks disagree at message ", k + 1, " of ", *name, ": rank ", from, " called ", *both.sent[k]->call,
                             " to rank ", to, "; rank ", to, " called ", *both.received[k]->call, " from rank ", from}));
        break;
      }
  }
  return findings.count();
}

/// Reports ranks that wait for no rank although others wait for them, and ranks without a file.
std::size_t report_still(const Run& run, const std::vector<Wait>& waits) {
  std::map<int, std::vector<const Wait*>> wanted;
  std::set<int> waiting;
  for (const Wait& wait : waits) {
    waiting.insert(wait.flight->rank);
    for (const int q : wait.on) wanted[q].push_back(&wait);
  }
  Findings findings;
  const auto who_waits = [](const std::vector<const Wait*>& all) {
    std::vector<int> ranks;
    const Wait* longest = all.front();
    for (const Wait* one : all) {
      ranks.push_back(one->flight->rank);
      if (one->flight->age(*one->entry) > longest->flight->age(*longest->entry)) longest = one;
    }
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::string text = joined({ranks_text(ranks), ranks.size() == 1 ? " waits" : " wait", " for it in ",
                               place_text(*longest->flight, *longest->entry)});
    if (longest->entry->timed) text += ", for " + seconds(longest->flight->age(*longest->entry));
    return text;
  };
  std::vector<int> unwanted;  // without a file, and no known rank waits for them
  for (int q = 0; q < int(run.world()); ++q) {
    if (run.flights.contains(q)) continue;
    if (const auto by = wanted.find(q); by == wanted.end()) unwanted.push_back(q);
    else
      findings.add(
          joined({"rank ", q, " has no file: it was lost, or stands still and got no notice to end; ", who_waits(by->second)}));
  }
  if (!unwanted.empty())
    findings.add(ranks_text(unwanted) + (unwanted.size() == 1 ? " has" : " have") +
                 " no file: lost, or ended without an error, or without a notice to end");
  for (const auto& [q, by] : wanted) {
    const auto found = run.flights.find(q);
    if (found == run.flights.end() || waiting.contains(q)) continue;
    findings.add(joined({"rank ", q, " stands still: ", who_waits(by), "; ", last_of(found->second),
                         "; its file has: ", short_text(found->second.reason)}));
  }
  return findings.count();
}

/// Reports ranks that were stuck and continued before their file was written: they arrived late at an unfinished collective.
std::size_t report_late(const Run& run) {
  struct Came {
    const Flight* flight;
    const Entry* entry;
  };
  std::map<Place, std::vector<Came>> open;
  for (const auto& [rank, flight] : run.flights)
    for (const Entry& entry : flight.entries)
      if (entry.open && entry.timed && !entry.message)
        open[{flight.lines[entry.line].name, entry.step}].push_back({&flight, &entry});
  Findings findings;
  for (const auto& [place, all] : open) {
    const auto begun = [](const Came& a, const Came& b) { return a.entry->begin_ns < b.entry->begin_ns; };
    const Came& first = *std::min_element(all.begin(), all.end(), begun);
    const auto after_s = [&](const Came& one) { return double(one.entry->begin_ns - first.entry->begin_ns) * 1e-9; };
    const double limit = std::max(late_s, first.flight->age(*first.entry) / 2);
    std::vector<int> waited;
    for (const Came& one : all)
      if (after_s(one) < limit) waited.push_back(one.flight->rank);
    for (const Came& one : all)
      if (after_s(one) >= limit)
        findings.add(joined({"rank ", one.flight->rank, " stood still and went on: ", ranks_text(waited), " waited for it in ",
                             place_text(*first.flight, *first.entry), ", for "}) +
                     seconds(after_s(one)) + " until it came; its file has: " + short_text(one.flight->reason));
  }
  return findings.count();
}

/// If every awaited rank waits itself, each path through the waits ends in a cycle.
bool report_circle(const std::vector<Wait>& waits) {
  std::map<int, const Wait*> of_rank;
  for (const Wait& wait : waits) of_rank.try_emplace(wait.flight->rank, &wait);
  std::vector<int> way;
  int at = waits.front().flight->rank;
  for (; std::find(way.begin(), way.end(), at) == way.end(); at = of_rank.at(at)->on.front()) {
    if (!of_rank.contains(at)) return false;
    way.push_back(at);
  }
  way.erase(way.begin(), std::find(way.begin(), way.end(), at));
  std::string text = "ranks wait for each other in a circle:";
  for (std::size_t k = 0; k < way.size() && k < most_ranges; ++k) {
    const Wait& wait = *of_rank.at(way[k]);
    weft::detail::append_to(text, {k == 0 ? " rank " : "; rank ", way[k], " in ", place_text(*wait.flight, *wait.entry),
                                   ", for rank ", wait.on.front()});
  }
  // The record does not show whether a rank is blocked in a call or has only started it.
  std::printf("%s (or one of them has begun that call asynchronously, and stands still after it)\n", text.c_str());
  return true;
}

int report(const std::string& folder) {
  const std::vector<std::string> changes = changes_of(folder);
  for (const std::string& change : changes) std::printf("%s\n", change.c_str());
  if (!changes.empty() && rank_files(folder).empty()) {
    std::printf("no rank of the last world has a file: none has failed\n");
    return 0;
  }
  const Run run = read_all(folder);
  const Flight& first = run.flights.begin()->second;
  std::printf("%llu ranks over %s, files of %zu of them\n", (unsigned long long)run.world(), first.backend.c_str(),
              run.flights.size());
  const auto messages = messages_of(run);
  const std::vector<Wait> waits = waits_of(run, messages);
  std::size_t found = report_still(run, waits);
  const std::size_t disagreements = report_disagreements(run, messages);
  if (found == 0 && !waits.empty()) found += report_circle(waits);
  found += disagreements;
  const Flight *earliest = &first, *oldest_of = nullptr;
  const Entry* oldest = nullptr;
  for (const auto& [rank, flight] : run.flights) {
    if (flight.written_ns < earliest->written_ns) earliest = &flight;
    for (const Entry& entry : flight.entries)
      if (entry.open && entry.timed && (oldest == nullptr || flight.age(entry) > oldest_of->age(*oldest)))
        oldest = &entry, oldest_of = &flight;
  }
  if (found == 0 && !earliest->interrupted()) found += report_late(run);
  if (oldest != nullptr)
    std::printf("oldest open call: rank %d in %s, for %s\n", oldest_of->rank, place_text(*oldest_of, *oldest).c_str(),
                seconds(oldest_of->age(*oldest)).c_str());
  std::printf("first file: rank %d's: %s\n", earliest->rank, short_text(earliest->reason).c_str());
  if (found == 0) std::printf("nothing suspicious: no rank waits for another one\n");
  return found == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // An error is not a verdict: exit code 1 means that something is suspicious.
  constexpr int no_verdict = 2;
  return weft::runtime::run_alone(
      [&] {
        if (argc == 2 && argv[1] == std::string_view("--help")) {
          std::printf(
              "flight FOLDER: reads the files in the folder that WEFT_FLIGHT_DIR named, and names ranks that others wait for\n");
          return 0;
        }
        if (argc == 2 && argv[1] == std::string_view("--version")) return weft::runtime::print_versions("flight");
        for (int i = 1; i < argc; ++i)
          if (argv[i][0] == '-')
            throw UsageError("flight: unknown option '" + weft::detail::shown(argv[i]) +
                             "': the argument is the folder that WEFT_FLIGHT_DIR named");
        if (argc != 2 || *argv[1] == '\0') throw UsageError("flight: the argument is the folder that WEFT_FLIGHT_DIR named");
        return report(argv[1]);
      },
      no_verdict);
}
