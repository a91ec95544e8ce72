// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of an elastic run that are processes connected by TCP. A process keeps its copies and runs the program once in each
// generation that the rendezvous (elastic/rendezvous.hpp) begins, with new connections and a new store each time.
//
//   Processes processes(options, launch);
//   const comm::RunResult ending = processes.run(deadline, body);

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/flight_file.hpp>
#include <weft/comm/launcher.hpp>
#include <weft/comm/run_result.hpp>
#include <weft/comm/stop.hpp>
#include <weft/comm/store/connector.hpp>
#include <weft/comm/tcp.hpp>
#include <weft/elastic/copies.hpp>
#include <weft/elastic/member.hpp>
#include <weft/elastic/options.hpp>
#include <weft/elastic/rendezvous.hpp>
#include <weft/elastic/seats.hpp>

namespace weft::elastic::detail {

inline std::chrono::duration<double> rendezvous_patience() {
  return std::chrono::duration<double>(runtime::detail::number_from_environment("WEFT_RENDEZVOUS_S", 0.001, 1e6).value_or(120));
}

class Processes {
 public:
  using Body = std::function<void(std::shared_ptr<comm::Group>)>;

  /// `not_served`: the result of start_rendezvous, which explains why no rendezvous answers. Throws StoreError then.
  Processes(const Options& options, const runtime::Launch& launch, const std::string& not_served)
      : options_(options), launch_(launch), line_(link_to_rendezvous(launch, not_served), store::Sealed::Side::rank) {}

  comm::RunResult run(std::chrono::duration<double> deadline, const Body& body) {
    std::exception_ptr error;
    for (bool returned = false;;) {
      send_state(returned);
      const Order order = next_order(returned);
      if (order.over) {
        if (order.code == 0) return {};
        reports_ = order.reports;
        if (!order.text.empty()) error = std::make_exception_ptr(Error(order.text));
        if (!error) error = std::make_exception_ptr(Error("elastic: another rank ended the run"));
        return {error, launch_.rank, true};
      }
      returned = false;
      try {
        returned = run_generation(order, deadline, body);
      } catch (const comm::StoreError&) {  // a rank was lost while the new world met
        error = std::current_exception();
      } catch (...) {
        error = std::current_exception();
        const Ending ending = ending_of_current();
        if (ending == Ending::fatal) report_fatal(error);
        if (ending != Ending::aborted) return {error, launch_.rank, true};
      }
    }
  }

  Member& member() { return member_; }
  bool reports() const { return reports_; }

 private:
  using Clock = store::Clock;
  struct Order {
    bool over = false, reports = true;
    std::uint64_t generation = 0;
    int rank = 0, world = 0, continues = 0, code = 0;
    std::string text = {};
  };

  static store::Link link_to_rendezvous(const runtime::Launch& launch, const std::string& not_served) {
    store::Connector connector(launch.host, rendezvous_port(launch), rendezvous_identity(launch),
                               store::secret_of(launch.host, launch.secret), store::the_store);
    try {
      return connector.connect(Clock::now() + std::chrono::duration_cast<Clock::duration>(rendezvous_patience()));
    } catch (const comm::StoreError& error) {
      if (not_served.empty()) throw;
      throw comm::StoreError(weft::detail::joined({"elastic: ", not_served, "; ", error.text()}));
    }
  }

  void send_state(bool returned) {
    std::string text =
        weft::detail::joined({returned ? "returned " : "ready ", member_.confirmed() ? 1 : 0, " ", member_.newest()});
    for (const HeldPart& part : member_.parts())
      weft::detail::append_to(text, {" ", part.generation, ":", part.number, ":", part.of});
    line_.send(text);
  }

  // Takes the messages that have come; the last order among them is kept. Without the rendezvous the ranks stay as they are.
  void take_messages() {
    std::vector<std::string> texts;
    alive_ = line_.receive(texts) && alive_;  // what came before the end still counts
    for (const std::string& text : texts) {
      std::istringstream words(text);
      std::string kind;
      words >> kind;
      if (kind == "available") {
        words >> available_;
      } else if (kind == "begin") {
        Order order;
        words >> order.generation >> order.rank >> order.world >> order.continues;
        order_ = order;
      } else {
        Order order{.over = true};
        words >> order.code >> order.reports;
        order.text = rest_of(words);
        order_ = order;
      }
    }
  }

  // `returned`: the function of this rank has returned, so it needs the rendezvous no more.
  Order next_order(bool returned) {
    for (const auto start = Clock::now(); !order_;) {
      if (!alive_ && returned) return {.over = true};
      if (!alive_) throw Error("elastic: the rendezvous of the ranks is lost: its process ended or its connection broke");
      (void)store::wait_for(line_.descriptor(), POLLIN, Clock::now() + std::chrono::milliseconds(100), start);
      line_.flush();
      take_messages();
    }
    return *std::exchange(order_, std::nullopt);
  }

  // All ranks may have the same error, and one of them prints it.
  void report_fatal(const std::exception_ptr& error) {
    std::string text;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& reason) {
      text = reason.what();
    }
    line_.send("fatal " + (text.starts_with("weft: ") ? text.substr(6) : text));
    try {
      reports_ = next_order(false).reports;
    } catch (const Error&) {}  // without the rendezvous, each rank prints its own
  }

  // The number of ranks that run or wait. Without the rendezvous none can join.
  int available(const Order& order) {
    take_messages();
    if (alive_) return available_;
    if (order.rank == 0 && !std::exchange(warned_, true))
      say({"the process of the rendezvous has ended: the run goes on, but the next lost rank ends it"});
    return order.world;
  }

  // True if the function has returned, false if ranks join.
  bool run_generation(const Order& order, std::chrono::duration<double> deadline, const Body& body) {
    runtime::Launch launch = launch_;
    launch.rank = order.rank;
    launch.world = order.world;
    weft::detail::append_to(launch.job, {", generation ", order.generation});
    available_ = order.world;
    // A rank that is killed while a later world meets does not come. The others must return before they count as lost themselves.
    std::chrono::duration<double> patience = rendezvous_patience();
    if (order.generation > 0) patience = std::min(patience, store::heartbeat_patience() / 3);
    const bool check = runtime::detail::switch_from_environment("WEFT_FINGERPRINTS", false);
    const auto process = std::make_shared<comm::tcp::Process>(comm::tcp::rendezvous(launch, patience), deadline, check);
    process->listen();
    member_.begin(
        options_, order.generation, order.continues != 0, [this, order] { return available(order); },
        [this] {
          if (!std::exchange(confirmed_, true)) line_.send("confirmed");
        });
    bool changed = false;
    try {
      std::vector<int> members(std::size_t(order.world));
      std::iota(members.begin(), members.end(), 0);
      // The name shows the change in errors and in the files of the flight recorder.
      const std::shared_ptr<comm::Group> world =
          comm::tcp::TcpGroup::over(process, 0, std::move(members),
                                    order.generation == 0 ? "world" : weft::detail::joined({"world ", order.generation + 1}));
      comm::with_flight_record(launch.rank, [&] {
        try {
          body(world);
        } catch (const WorldChange&) {
          changed = true;
        }
        world->end();
      });
      process->tell(0, false, std::chrono::seconds(2));
    } catch (const AbortedError&) {
      throw;  // the others notice that the connections close, or are out already
    } catch (...) {
      process->tell(1, true, std::chrono::milliseconds(400));
      throw;
    }
    return !changed;
  }

  Options options_;
  runtime::Launch launch_;
  Line line_;
  Member member_;
  std::optional<Order> order_;
  int available_ = 0;
  bool alive_ = true, reports_ = true, warned_ = false, confirmed_ = false;
};

}  // namespace weft::elastic::detail
