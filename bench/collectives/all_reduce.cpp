// SPDX-License-Identifier: Apache-2.0
// Seconds of an in-place all_reduce(sum) of float32 between two ranks, over message sizes. The first argument is the library. The
// output is a line "BYTES SECONDS" per size, from the fastest of several rounds.
//
//   limit     no communication: two threads, each summing its half of two arrays into both
//   threads   weft's thread ranks
//   weft_mpi  weft's MPI ranks                 (under mpirun -np 2)
//   mpi       MPI_Allreduce                    (under mpirun -np 2)
//   gloo      gloo::allreduce over TCP on the loopback interface, two threads (if built with Gloo)
#include <weft/comm/mpi.hpp>
#include <weft/comm/mpi/api.hpp>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/threads.hpp>

#ifdef WEFT_BENCH_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t sizes[] = {4096, 65536, 1 << 20, 16 << 20, 64 << 20};
constexpr int rounds = 9;

/// Pins the calling thread to core `core`: the figures are for ranks with one core each.
void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);  // if this is not allowed, the system chooses
}

/// The fastest round; a round repeats `step` often enough to be timed.
double seconds_of(std::size_t bytes, const std::function<void()>& synchronize, const std::function<void()>& step,
                  std::size_t most_repetitions = 4000) {
  const std::size_t repetitions = std::clamp<std::size_t>((std::size_t(64) << 20) / bytes, 2, most_repetitions);
  double best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    synchronize();
    const auto start = Clock::now();
    for (std::size_t k = 0; k < repetitions; ++k) step();
    synchronize();  // finished when both ranks are
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count() / double(repetitions));
  }
  return best;
}

void print(std::size_t bytes, double seconds) {
  std::printf("%zu %.9f\n", bytes, seconds);
  std::fflush(stdout);
}

/// One rank of weft, on any backend. The buffer lies where a tensor of its World does.
void bench_communicator(const weft::Communicator& communicator) {
  constexpr weft::detail::BlockSource own{&std::malloc, &std::free};
  const auto* const shared = communicator.group()->shared_blocks();
  const weft::detail::BlockSource& blocks = shared != nullptr ? *shared : own;
  for (const std::size_t bytes : sizes) {
    const std::unique_ptr<void, void (*)(void*)> block(blocks.take(bytes), blocks.give_back);
    const std::span x(static_cast<float*>(block.get()), bytes / sizeof(float));
    std::fill(x.begin(), x.end(), 0.0f);
    const double seconds = seconds_of(
        bytes, [&] { communicator.barrier(); }, [&] { communicator.all_reduce(x); });
    if (communicator.rank() == 0) print(bytes, seconds);
  }
}

/// Two threads; `body` gets its number and a function that waits for the other.
void two_threads(const std::function<void(int, const std::function<void()>&)>& body) {
  std::atomic<int> arrived{0};
  const std::function<void()> meet = [&] {
    const int target = (arrived.fetch_add(1) / 2 + 1) * 2;
    while (arrived.load() < target) weft::detail::relax();
  };
  std::thread other([&] { body(1, meet); });
  body(0, meet);
  other.join();
}

void bench_limit() {
  for (const std::size_t bytes : sizes) {
    std::vector<float> a(bytes / sizeof(float), 0.0f), b(a);
    two_threads([&](int rank, const std::function<void()>& meet) {
      stay_on(rank);
      const weft::comm::Piece piece = weft::comm::piece_of(a.size(), sizeof(float), rank, 2);
      const void* from[] = {a.data(), b.data()};
      void* into[] = {a.data(), b.data()};
      const double seconds =
          seconds_of(bytes, meet, [&] { weft::comm::combine<float>(weft::Reduction::sum, from, into, piece.begin, piece.end); });
      if (rank == 0) print(bytes, seconds);
    });
  }
}

void bench_mpi() {
  int rank = 0;
  weft::comm::mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  for (const std::size_t bytes : sizes) {
    std::vector<float> x(bytes / sizeof(float), 0.0f);
    const auto step = [&] {
      weft::comm::mpi::check(MPI_Allreduce(MPI_IN_PLACE, x.data(), int(x.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
                             "MPI_Allreduce");
    };
    const double seconds = seconds_of(
        bytes, [] { weft::comm::mpi::check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }, step);
    if (rank == 0) print(bytes, seconds);
  }
}

#ifdef WEFT_BENCH_GLOO
void bench_gloo() {
  gloo::rendezvous::HashStore store;
  two_threads([&](int rank, const std::function<void()>& meet) {
    gloo::transport::tcp::attr where("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(where);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
    context->connectFullMesh(store, device);
    for (const std::size_t bytes : sizes) {
      std::vector<float> x(bytes / sizeof(float), 0.0f);
      const double seconds = seconds_of(
          bytes, meet,
          [&] {
            gloo::AllreduceOptions options(context);
            options.setOutput(x.data(), x.size());
            void (*sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
            options.setReduceFunction(sum);
            gloo::allreduce(options);
          },
          50);
      if (rank == 0) print(bytes, seconds);
    }
    meet();
  });
}
#endif

int usage() {
  std::fprintf(stderr, "usage: all_reduce limit|threads|weft_mpi|mpi|gloo\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what == "limit") {
    bench_limit();
  } else if (what == "threads") {
    weft::comm::run_threads(2, [](const weft::Communicator& communicator) {
      stay_on(communicator.rank());
      bench_communicator(communicator);
    });
  } else if (what == "mpi" || what == "weft_mpi") {
    MPI_Init(&argc, &argv);
    if (what == "mpi") bench_mpi();
    else bench_communicator(weft::comm::mpi::over(MPI_COMM_WORLD));
    MPI_Finalize();
#ifdef WEFT_BENCH_GLOO
  } else if (what == "gloo") {
    bench_gloo();
#endif
  } else {
    return usage();
  }
  return 0;
}
