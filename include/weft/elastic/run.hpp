// SPDX-License-Identifier: Apache-2.0
#pragma once
// `elastic::run`: a run that survives the loss of ranks and takes in new ones. The ranks that are left agree on the newest step
// whose state they hold together, form a world of fewer ranks without ending their process, and repeat the step. No file is
// read. With `reproducible` (parallel/reproducible/option.hpp) losses and parameters are bitwise those of an undisturbed run.
//
//   int main(int argc, char** argv) {
//     return elastic::run<comm::Threads>({.ranks = 4, .argc = argc, .argv = argv}, {.least = 2, .shares = 12},
//                                        [](World& world, elastic::Member& member) { ... });
//   }

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <weft/comm/run_options.hpp>
#include <weft/comm/tcp.hpp>
#include <weft/comm/threads.hpp>
#include <weft/elastic/member.hpp>
#include <weft/elastic/options.hpp>
#include <weft/elastic/processes.hpp>
#include <weft/elastic/seats.hpp>
#include <weft/mesh/world.hpp>
#include <weft/runtime/run.hpp>

namespace weft::elastic {

namespace detail {

/// The elastic run that this thread starts, for the session that `runtime::run` makes.
struct Starting {
  Options options;
  std::function<Member&(const comm::Group*)> member_of = {};  ///< empty: the backend's ranks are not elastic
  std::string not_served = {};                                ///< the result of start_rendezvous

  inline static thread_local Starting* current = nullptr;
};

/// A backend whose run restarts when a rank is lost.
template <class B>
struct ElasticBackend : B {
  class Session : public B::Session {
   public:
    using B::Session::Session;
    comm::RunResult run(int ranks, std::chrono::duration<double> deadline,
                        const std::function<void(std::shared_ptr<comm::Group>)>& body) {
      require_served(Starting::current->options, ranks);
      return B::Session::run(ranks, deadline, [&](std::shared_ptr<comm::Group> group) {
        if (group->rank() == 0) {
          std::fprintf(stderr,
                       "weft: elastic: over %.*s the ranks stay as they are: a lost rank ends the run, which a launcher restarts "
                       "from the last checkpoint\n",
                       int(std::string_view(B::name).size()), std::string_view(B::name).data());
          std::fflush(stderr);
        }
        body(std::move(group));
      });
    }
  };
};

template <>
struct ElasticBackend<comm::Threads> : comm::Threads {
  class Session : public comm::Threads::Session {
   public:
    using comm::Threads::Session::Session;
    comm::RunResult run(int ranks, std::chrono::duration<double> deadline, const Seats::Body& body) {
      seats_ = std::make_unique<Seats>(Starting::current->options, ranks);
      Starting::current->member_of = [seats = seats_.get()](const comm::Group* group) -> Member& {
        return seats->member_of(group);
      };
      return seats_->run(deadline, body);
    }

   private:
    std::unique_ptr<Seats> seats_;
  };
};

template <>
struct ElasticBackend<comm::Tcp> : comm::Tcp {
  class Session {
   public:
    static constexpr bool owns_ranks = false;
    Session(int&, char**&)
        : launch_(runtime::launch_from_environment()),
          processes_(Starting::current->options, launch_, Starting::current->not_served) {}
    int started() const { return launch_.world; }
    int here() const { return launch_.local_world; }
    comm::RunResult run(int, std::chrono::duration<double> deadline, const Processes::Body& body) {
      Starting::current->member_of = [this](const comm::Group*) -> Member& { return processes_.member(); };
      return processes_.run(deadline, body);
    }
    int fail(int code, const std::function<void()>& report) {
      if (processes_.reports()) report();
      return code;
    }

   private:
    runtime::Launch launch_;
    Processes processes_;
  };
};

/// For processes over TCP: checks the range, and starts the rendezvous if this is the first rank.
template <class B>
void prepare(Starting& starting) {
  if constexpr (std::is_same_v<B, comm::Tcp>) {
    if (!comm::Tcp::detected()) return;
    const runtime::Launch launch = runtime::launch_from_environment();
    require_served(starting.options, launch.world);
    if (launch.rank == 0) starting.not_served = start_rendezvous(starting.options, launch, rendezvous_patience());
  }
}

}  // namespace detail

/// Runs `f(world, member)` on every rank, as `weft::run` runs `f(world)`, and again on all ranks that are left when a rank is
/// lost, or on more when ranks join: f makes mesh, model and optimizer from `world`, and calls Member::restore and Member::keep.
/// A rank that had returned runs f again, too, if another is lost before all have returned.
///
/// A rank is lost if its function throws an error of its own. Errors that would recur end the run as in `weft::run`: exit codes
/// 2, 3, 4 and 130, MismatchError and TimeoutError. So does the loss of more ranks than `elastic` permits. Each change prints one
/// line to standard error. Thread ranks (comm::Threads) and processes over TCP (comm::Tcp) are elastic. On other backends a
/// line warns that a lost rank ends the run.
///
/// Throws nothing; a range that the ranks or the batch cannot serve is reported with exit code 2.
template <comm::Backend... Backends, class F>
int run(const RunOptions& options, const Options& elastic, F&& f) {
  static_assert(std::is_invocable_v<F&, World&, Member&>,
                "weft: elastic::run calls f(world, member) on every rank: f takes a World& and an elastic::Member&");
  detail::Starting starting{elastic};
  try {
    (detail::prepare<Backends>(starting), ...);
  } catch (...) {
    return runtime::report(std::current_exception());
  }
  detail::Starting::current = &starting;
  const int code = [&] {
    const auto program = [&](World& world) {
      if (starting.member_of) return f(world, starting.member_of(world.communicator().group().get()));
      Member alone;
      return f(world, alone);
    };
    if constexpr (sizeof...(Backends) == 0) return runtime::run<detail::ElasticBackend<comm::Threads>>(options, program);
    else return runtime::run<detail::ElasticBackend<Backends>...>(options, program);
  }();
  detail::Starting::current = nullptr;
  return code;
}

}  // namespace weft::elastic
