// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/nccl/failure.hpp weft/comm/nccl/process.hpp weft/comm/nccl/rendezvous.hpp
// Calls that comm::Nccl refuses before they reach NCCL, and its ends when NCCL, the GPU or another rank fails. Over the test
// double (tests/support/fake_nccl).
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/nccl.hpp>
#include <weft/comm/nccl/failure.hpp>
#include <weft/comm/nccl/process.hpp>
#include <weft/comm/nccl/rendezvous.hpp>
#include <weft/comm/threads.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>

#include "support/device_elements.hpp"
#include "support/fake_nccl/internal.hpp"
#include "support/on_device.hpp"

using namespace weft;
using weft_test::DeviceSpace;
using weft_test::OfDevice;
using weft_test::on_device;

namespace {

using Seconds = std::chrono::duration<double>;
using Body = std::function<void(const Communicator&)>;

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

/// The error of over(), or of the body after it, on every rank; empty texts for ranks that ended without one.
std::vector<std::string> errors_of(int ranks, const comm::nccl::Options& options, const std::function<void(int)>& before,
                                   const Body& body = {}) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  comm::run_threads(ranks, [&](const Communicator& host) {
    fake_nccl::faults() = {};
    before(host.rank());
    const auto noting = [&](auto&& f) {
      try {
        f();
      } catch (const Error& error) {
        texts[std::size_t(host.rank())] = error.what();
      }
    };
    noting([&] {
      const Communicator c = comm::nccl::over(host, options);
      if (!body) return;
      noting([&] { body(c); });
      host.barrier();  // a rank that leaves with an error ends the others' waits
    });
    fake_nccl::faults() = {};
  });
  return texts;
}

/// The same text on every rank.
std::string one_error_of(
    int ranks, const comm::nccl::Options& options, const std::function<void(int)>& before = [](int) {}) {
  const auto texts = errors_of(ranks, options, before);
  for (const auto& text : texts) CHECK(text == texts[0]);
  return texts[0];
}

struct Machine {
  explicit Machine(const fake_nccl::Machine& machine) { fake_nccl::machine() = machine; }
  ~Machine() { fake_nccl::machine() = {}; }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("machines that cannot run it are refused by all ranks with one line") {
  {
    const Machine none({.gpus = 0, .count = cudaErrorNoDevice});
    CHECK(one_error_of(2, {}) ==
          "weft: nccl: rank 0 has no GPU: cuda: no GPU is visible to this program (nvidia-smi lists them; CUDA_VISIBLE_DEVICES "
          "hides them)");
  }
  {
    const Machine old({.gpus = 2, .driver = 12040, .count = cudaErrorInsufficientDriver});
    CHECK(one_error_of(2, {}) ==
          "weft: nccl: rank 0 has no GPU: cuda: the driver supports CUDA up to 12.4, but this program was built with 13.0: "
          "install a newer driver, or build with an older toolkit");
  }
  {
    const Machine without({.gpus = 0, .driver = 0, .count = cudaErrorInsufficientDriver});
    CHECK(contains(one_error_of(2, {}), "no NVIDIA driver on this machine"));
  }
  {
    const Machine odd({.count = cudaErrorSystemDriverMismatch});
    CHECK(contains(one_error_of(2, {}), "weft: nccl: rank 0: cuda: cudaGetDeviceCount failed: cudaErrorSystemDriverMismatch"));
  }
  {
    const Machine few({.gpus = 2});
    CHECK(contains(one_error_of(3, {}),
                   "cuda: 3 ranks on this machine, but 2 GPUs: start at most as many ranks as GPUs, or allow ranks to share them "
                   "(WEFT_SHARE_GPUS=1)"));
    CHECK(contains(one_error_of(3, {.share_gpus = true}),
                   "rank 0 and rank 1 are threads of one process, which cannot share a GPU"));
  }
  CHECK(contains(one_error_of(3, {}, [](int rank) { fake_nccl::faults().version = rank == 2 ? 22203 : 22809; }),
                 "nccl: rank 0 has NCCL 2.28.9, rank 2 has 2.22.3: every rank needs the same"));
  CHECK(contains(one_error_of(2, {}, [](int) { fake_nccl::faults().no_id = true; }),
                 "weft: nccl: rank 0: nccl: ncclGetUniqueId failed: unhandled system error: no socket interface found"));
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("GPUs are assigned by machine and by the GPUs that each process sees") {
  using comm::nccl::assign_gpu;
  using comm::nccl::RankInfo;
  const auto info = [](std::uint64_t host, int gpus, int process, char first, bool shares = false) {
    RankInfo info{
        .nccl = 22809, .gpus = gpus, .driver = 13000, .runtime = 13000, .shares = shares, .process = process, .host = host};
    info.first[0] = first;
    return info;
  };
  const std::vector<RankInfo> two_machines{info(7, 2, 1, 'a'), info(9, 2, 1, 'c'), info(7, 2, 2, 'a'), info(9, 2, 2, 'c')};
  CHECK(assign_gpu(two_machines, 0) == 0);
  CHECK(assign_gpu(two_machines, 1) == 0);
  CHECK(assign_gpu(two_machines, 2) == 1);
  CHECK(assign_gpu(two_machines, 3) == 1);
  const std::vector<RankInfo> one_each{info(7, 1, 1, 'a'), info(7, 1, 2, 'b')};  // CUDA_VISIBLE_DEVICES for each
  CHECK(assign_gpu(one_each, 0) == 0);
  CHECK(assign_gpu(one_each, 1) == 0);
  const std::vector<RankInfo> the_same{info(7, 1, 1, 'a'), info(7, 1, 2, 'a')};
  for (const int rank : {0, 1})
    CHECK_THROWS_WITH_AS(assign_gpu(the_same, rank), doctest::Contains("2 ranks on this machine, but 1 GPU:"), UsageError);
  const std::vector<RankInfo> shared{info(7, 1, 1, 'a', true), info(7, 1, 2, 'a', true)};
  CHECK(assign_gpu(shared, 1) == 0);
  const std::vector<RankInfo> undecided{info(7, 1, 1, 'a', true), info(7, 1, 2, 'a')};
  CHECK_THROWS_WITH_AS(assign_gpu(undecided, 0),
                       doctest::Contains("rank 1 and rank 0 disagree whether ranks share GPUs (WEFT_SHARE_GPUS)"), UsageError);
}

TEST_CASE("ranks that share a GPU are hosts of their own to NCCL, each in its process") {
  unsetenv("NCCL_HOSTID");
  CHECK(errors_of(1, {.share_gpus = true}, [](int) {}) == std::vector<std::string>{""});
  const char* host = std::getenv("NCCL_HOSTID");
  REQUIRE(host != nullptr);
  CHECK(std::string(host).substr(0, 5) == "weft-");
  CHECK(std::string(host).back() == '0');  // its rank
  unsetenv("NCCL_HOSTID");
}

TEST_CASE("operations that a stream waits for are complete before a rank's communicators end") {
  const fake_nccl::Schedule usual = fake_nccl::schedule();
  const int aborted = fake_nccl::aborted();
  for (unsigned seed = 1; seed <= 8; ++seed) {
    // Slowly: kernels have ended for a while when the events after them are done.
    fake_nccl::set_schedule({.order = fake_nccl::Schedule::Order::random, .seed = seed, .longest_us = 10000});
    std::vector<std::unique_ptr<OfDevice>> x;
    for (int rank = 0; rank < 2; ++rank) {
      x.push_back(std::make_unique<OfDevice>(10));
      x.back()->fill(1.0f);
    }
    comm::run_threads(2, [&](const Communicator& host) {
      const Communicator c = comm::nccl::over(host, {.deadline = Seconds(20)});
      DeviceSpace own;
      const CudaStream stream;
      own.stream = stream.get();
      auto kernel = std::make_shared<fake_nccl::Block>(stream.get());
      std::thread([kernel] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        kernel->release();
      }).detach();
      c.all_reduce(own, x[std::size_t(host.rank())]->elements);
    });
    for (const auto& buffer : x) CHECK(buffer->at(3) == 2.0f);
  }
  fake_nccl::set_schedule(usual);
  CHECK(fake_nccl::aborted() == aborted);
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a rank that never comes to NCCL: all others give up in time") {
  std::vector<std::string> texts;
  const double seconds = seconds_of([&] {
    texts = errors_of(3, {.patience = Seconds(0.3)}, [](int rank) { fake_nccl::faults().never_connects = rank == 1; });
  });
  CHECK(seconds < 3);
  for (const auto& text : texts) CHECK(contains(text, "NCCL did not connect 3 ranks within 0.3"));
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a collective that a rank never calls: aborted at the deadline, with rank, axis, operation and number") {
  const int before = fake_nccl::aborted();
  std::optional<TimeoutError> error;
  std::string after;
  double seconds = 0;
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator world = comm::nccl::over(host, {.deadline = Seconds(0.3)});
    const Communicator c = on_device(world.split(0, 0, "dp"));
    std::vector<float> x(4, 1.0f);
    c.all_reduce(x, Reduction::max);  // connects
    if (host.rank() == 0) {
      seconds = seconds_of([&] {
        try {
          c.all_reduce(x, Reduction::max);
        } catch (const TimeoutError& caught) {
          error = caught;
        }
      });
      try {
        on_device(world).all_reduce(x);
      } catch (const AbortedError& caught) {
        after = caught.what();
      }
    }
    host.barrier();
  });
  REQUIRE(error);
  CHECK(seconds >= 0.3);
  CHECK(seconds < 2);
  CHECK(error->rank() == 0);
  CHECK(error->axis() == "dp");
  CHECK(error->operation() == "all_reduce(max) of 4 float32");
  CHECK(error->sequence() == 2);
  CHECK(contains(error->what(), "waited longer than the deadline of 0.3"));
  CHECK(contains(error->what(), "launched, and other ranks did not come"));
  CHECK(contains(after, "weft: rank 0, axis world, all_reduce(sum) of 4 float32 #"));
  CHECK(contains(after, ": NCCL's communicators were aborted: waited longer"));
  CHECK(fake_nccl::aborted() >= before + 2);  // of the axis and of the world
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("after an abort no result is used: of operations in flight, of the host's reductions, of a test") {
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator world = comm::nccl::over(host, {.deadline = Seconds(0.3)});
    const Communicator dp = world.split(0, 0, "dp"), alone = world.split(host.rank(), 0, "alone");
    DeviceSpace own;
    const CudaStream stream;
    own.stream = stream.get();
    OfDevice x(10), y(10), z(10);
    world.all_reduce(own, x.elements);  // connects
    dp.all_reduce(own, y.elements);
    stream.wait();
    host.barrier();
    if (host.rank() == 0) {
      x.fill(1.0f);
      world.all_reduce(own, x.elements);  // only the stream waits: the watching thread ends it
      Request flying = dp.all_reduce_async(own, y.elements);
      Request tested = dp.all_reduce_async(own, z.elements);
      stream.wait();
      CHECK(fake_nccl::take_reports().empty());  // kernels of two communicators were in flight: aborted together
      (void)x.at(0);                             // not the sum
      CHECK(fake_nccl::take_reports() ==
            std::vector<std::string>{"a copy reads 4 bytes that ncclAllReduce left undefined when it was aborted"});
      CHECK_THROWS_AS(flying.wait(), CommunicationError);
      CHECK_THROWS_AS(tested.test(), CommunicationError);
      std::vector<float> loss(1, 1.0f);
      CHECK_THROWS_AS(alone.all_reduce(loss), CommunicationError);
      CHECK_THROWS_AS((void)alone.all_reduce_async(loss), CommunicationError);
      CHECK_THROWS_AS((void)world.all_reduce_async(loss), CommunicationError);
      CHECK_THROWS_AS(alone.barrier(), CommunicationError);
      CHECK_THROWS_AS(alone.check(), CommunicationError);
    }
    host.barrier();
  });
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("an abort while the host's ranks reduce: their result is not used, whatever waits for it") {
  enum class How { executed, waited, tested };
  for (const How how : {How::executed, How::waited, How::tested}) {
    CAPTURE(int(how));
    comm::run_threads(2, [&](const Communicator& host) {
      const Communicator c = comm::nccl::over(host, {.deadline = Seconds(0.3)});
      std::vector<float> loss(1, 1.0f);
      DeviceSpace own;
      const CudaStream stream;
      own.stream = stream.get();
      OfDevice x(10);
      x.fill(1.0f);
      c.all_reduce(own, x.elements);  // connects
      stream.wait();
      host.barrier();
      if (host.rank() == 0) {
        c.all_reduce(own, x.elements);  // only the stream waits: the watching thread aborts
        if (how == How::executed) {
          CHECK_THROWS_AS(c.all_reduce(loss), CommunicationError);
        } else {
          Request request = c.all_reduce_async(loss);
          if (how == How::tested) std::this_thread::sleep_for(std::chrono::milliseconds(900));  // the other rank has arrived
          if (how == How::tested) CHECK_THROWS_AS((void)request.test(), CommunicationError);
          else CHECK_THROWS_AS(request.wait(), CommunicationError);
        }
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        c.all_reduce(loss);
      }
      host.barrier();
    });
  }
  CHECK(fake_nccl::take_reports().empty());
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a test for progress makes no stream wait") {
  std::vector<std::unique_ptr<OfDevice>> x;
  for (int rank = 0; rank < 2; ++rank) {
    x.push_back(std::make_unique<OfDevice>(10));
    x.back()->fill(1.0f);
  }
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator c = comm::nccl::over(host, {.deadline = Seconds(20)});
    DeviceSpace own;
    const CudaStream stream;
    own.stream = stream.get();
    auto& mine = *x[std::size_t(host.rank())];
    if (host.rank() == 0) {
      Request request = c.all_reduce_async(own, mine.elements);
      for (int turn = 0; turn < 20; ++turn) {
        CHECK(!request.test());
        REQUIRE(!fake_nccl::waits_for(stream.get(), mine.elements.data));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      OfDevice other(10);
      other.fill_on(stream.get(), 5.0f);
      stream.wait();  // an independent kernel does not wait for the other rank
      CHECK(other.at(0) == 5.0f);
      host.barrier();
      float after = 0;
      request.wait();
      CHECK(fake_nccl::waits_for(stream.get(), mine.elements.data));
      auto* const sum = reinterpret_cast<float*>(mine.buffer.get());
      fake_nccl::launch(stream.get(), "a kernel", {mine.range()}, {}, [&] { after = *fake_nccl::seen(sum); });
      stream.wait();
      CHECK(after == 2.0f);
    } else {
      host.barrier();
      c.all_reduce(own, mine.elements);
      stream.wait();
    }
  });
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a message that no rank sends: at the deadline the error names the missing side") {
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator c = on_device(comm::nccl::over(host, {.deadline = Seconds(0.2)}));
    std::vector<float> x(4, 1.0f);
    if (host.rank() == 0)
      CHECK_THROWS_WITH_AS(
          c.recv(x, 1, 3),
          doctest::Contains("recv of 4 float32 with tag 3 from rank 1 #1: waited longer than the deadline of 0.2"), TimeoutError);
    host.barrier();
  });
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a process that must stop does not wait until NCCL has connected its ranks") {
  std::vector<std::string> texts;
  comm::detail::stop_state.patience_ms = 300;
  comm::request_stop(SIGTERM);
  const double seconds = seconds_of(
      [&] { texts = errors_of(2, {.patience = Seconds(20)}, [](int rank) { fake_nccl::faults().never_connects = rank == 1; }); });
  comm::detail::stop_state.patience_ms = 0;
  comm::detail::stop_state.signal = 0;
  CHECK(seconds < 3);
  CHECK(contains(texts[0] + texts[1], "interrupted by SIGTERM and waited 300 ms more for the other ranks, in vain"));
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a process that must stop does not wait for a rank that never comes, on the host or on a stream") {
  for (const bool on_stream : {false, true}) {
    INFO(on_stream);
    std::string text;
    comm::run_threads(2, [&](const Communicator& host) {
      const Communicator c = comm::nccl::over(host, {.deadline = Seconds(20)});
      const CudaStream mine;
      DeviceSpace exec;
      exec.stream = mine.get();
      OfDevice x(10);
      x.fill(1.0f);
      c.all_reduce(exec, x.elements);
      mine.wait();
      host.barrier();
      if (host.rank() == 0) {
        comm::detail::stop_state.patience_ms = 200;
        comm::detail::stop_state.heeded = true;
        comm::request_stop(SIGTERM);
        try {
          std::vector<float> y(4);
          if (!on_stream) on_device(c).recv(y, 1, 3);
          c.all_reduce(exec, x.elements);
          mine.wait();  // only an abort ends it
          c.all_reduce(exec, x.elements);
        } catch (const InterruptedError& error) {
          text = error.what();
        }
        comm::detail::stop_state.patience_ms = 0;
        comm::detail::stop_state.heeded = false;
        comm::detail::stop_state.signal = 0;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(800));  // without a wait, which would also end
      }
      host.barrier();
    });
    CHECK(contains(text, on_stream ? "all_reduce(sum) of 10 float32" : "recv of 4 float32 with tag 3 from rank 1"));
    CHECK(contains(text, "interrupted by SIGTERM and waited 200 ms more for the other ranks, in vain"));
    CHECK(fake_nccl::alive() == 0);
  }
}

TEST_CASE("an error that NCCL finds while an operation runs is thrown, with NCCL's words") {
  for (const auto code : {ncclSystemError, ncclRemoteError}) {
    const auto texts = errors_of(
        2, {.deadline = Seconds(20)}, [](int) {},
        [&](const Communicator& world) {
          const Communicator c = on_device(world);
          std::vector<float> x(4, 1.0f);
          c.all_reduce(x);
          if (c.rank() == 1) return;  // to the barrier of the hosts
          Request request = c.all_reduce_async(x);
          fake_nccl::faults().asynchronous = code;
          try {
            request.wait();
          } catch (const AbortedError&) {
            CHECK(code == ncclRemoteError);
          } catch (const CommunicationError& error) {
            CHECK(code == ncclSystemError);
            CHECK(
                contains(error.what(), "all_reduce(sum) of 4 float32 #2: NCCL failed: unhandled system error: the link is down"));
          }
          fake_nccl::faults().asynchronous = ncclSuccess;
          CHECK_THROWS_AS(c.all_reduce(x), AbortedError);
          CHECK_THROWS_AS(world.barrier(), AbortedError);
        });
    CHECK(texts == std::vector<std::string>{"", ""});
    CHECK(fake_nccl::alive() == 0);
  }
}

TEST_CASE("a rank that throws ends the waits of all others at once") {
  for (const int what : {0, 1, 2}) {
    std::string text;
    const double seconds = seconds_of([&] {
      CHECK_THROWS_WITH_AS(comm::run_threads(3,
                                             [&](const Communicator& host) {
                                               const Communicator world = comm::nccl::over(host, {.deadline = Seconds(60)});
                                               const Communicator c = on_device(world.split(0, 0, "tp"));
                                               std::vector<float> x(1000, 1.0f);
                                               c.all_reduce(x);
                                               if (host.rank() == 2) {
                                                 std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                                 throw std::runtime_error("boom");
                                               }
                                               try {
                                                 if (what == 0) c.all_reduce(x);
                                                 if (what == 1) c.recv(x, 2);
                                                 if (what == 2) world.barrier();
                                               } catch (const AbortedError& error) {
                                                 if (host.rank() == 0) text = error.what();
                                                 throw;
                                               }
                                             }),
                           "boom", std::runtime_error);
    });
    CHECK(seconds < 3);
    CHECK(contains(text, "rank 2 has failed"));
    if (what == 0) CHECK(contains(text, "weft: rank 0, axis tp, all_reduce(sum) of 1000 float32 #2: "));
    CHECK(fake_nccl::alive() == 0);
  }
}

TEST_CASE("fingerprints name ranks that disagree, before anything is launched; without them the deadline does") {
  for (const int kind : {0, 1, 2}) {
    const auto texts = errors_of(
        2, {.deadline = Seconds(20), .fingerprints = true}, [](int) {},
        [&](const Communicator& world) {
          const Communicator c = on_device(world);
          std::vector<float> x(4 + std::size_t(kind == 0 && c.rank() == 1), 1.0f);
          if (kind == 1 && c.rank() == 1) c.broadcast(x, 0);
          else c.all_reduce(x, kind == 2 && c.rank() == 1 ? Reduction::max : Reduction::sum);
        });
    const std::string theirs = kind == 0   ? "all_reduce(sum) of 5 float32"
                               : kind == 1 ? "broadcast of 4 float32 with root 0"
                                           : "all_reduce(max) of 4 float32";
    for (const auto& text : texts)
      CHECK(contains(text,
                     "ranks disagree: rank 0 of world called all_reduce(sum) of 4 float32, rank 1 of world called " + theirs));
  }
  const auto texts = errors_of(
      2, {.deadline = Seconds(0.2)}, [](int) {},
      [](const Communicator& world) {
        std::vector<float> x(4 + std::size_t(world.rank()), 1.0f);
        on_device(world).all_reduce(x);
      });
  for (const auto& text : texts) CHECK(contains(text, "waited longer than the deadline of 0.2"));
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("messages of another type or length are refused on both sides before they are sent") {
  for (const int from : {0, 1}) {
    const auto texts = errors_of(
        2, {.deadline = Seconds(20)}, [](int) {},
        [&](const Communicator& world) {
          const Communicator c = on_device(world);
          std::vector<float> x(world.rank() == from ? 4 : 3, 1.0f);
          if (world.rank() == from) c.send(x, 1 - from, 5);
          else c.recv(x, from, 5);
        });
    CHECK(contains(texts[std::size_t(from)],
                   detail::joined({"rank ", 1 - from, " of world expects 3 float32, this rank sent 4 float32"})));
    CHECK(contains(texts[std::size_t(1 - from)],
                   detail::joined({"rank ", from, " of world sent 4 float32, this rank expects 3 float32"})));
  }
}

TEST_CASE("with a stream: an operation begins after the stream's earlier work, and wait() returns before it is done") {
  comm::run_threads(2, [](const Communicator& host) {
    const Communicator c = comm::nccl::over(host, {.deadline = Seconds(20)});
    const CudaStream mine;
    DeviceSpace exec;
    exec.stream = mine.get();
    OfDevice x(1000);
    fake_nccl::Block kernel(mine.get());
    x.fill_on(mine.get(), float(c.rank() + 1));
    c.all_reduce(exec, x.elements);  // returns once all work is submitted to the GPU
    kernel.release();
    mine.wait();  // later work on the stream reads the sum
    CHECK(x.at(0) == 3.0f);
    CHECK(x.at(999) == 3.0f);
    Request request = c.all_reduce_async(exec, x.elements);
    while (!request.test()) std::this_thread::yield();
    mine.wait();
    CHECK(x.at(5) == 6.0f);
    host.barrier();
  });
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("with a stream: a rank that never comes is found although no call of weft waits") {
  std::optional<TimeoutError> error;
  const double seconds = seconds_of([&] {
    comm::run_threads(2, [&](const Communicator& host) {
      const Communicator c = comm::nccl::over(host, {.deadline = Seconds(0.3)});
      const CudaStream mine;
      DeviceSpace exec;
      exec.stream = mine.get();
      OfDevice x(10);
      x.fill(1.0f);
      c.all_reduce(exec, x.elements);
      mine.wait();
      if (host.rank() == 0) {
        c.all_reduce(exec, x.elements);
        mine.wait();  // only an abort ends it
        try {
          c.all_reduce(exec, x.elements);
        } catch (const TimeoutError& caught) {
          error = caught;
        }
        CHECK_THROWS_AS(c.all_reduce(exec, x.elements), AbortedError);
      }
      host.barrier();
    });
  });
  REQUIRE(error);
  CHECK(error->sequence() == 2);
  CHECK(contains(error->what(), "waited longer than the deadline of 0.3"));
  CHECK(seconds < 3);
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("collectives of all axes follow each other on one stream, in the order of their calls") {
  // A rank's third axis is ready long before its first two: on a separate stream it would overtake them.
  comm::run_threads(4, [](const Communicator& host) {
    const Communicator world = on_device(comm::nccl::over(host, {.deadline = Seconds(20)}));
    const Communicator rows = world.split(world.rank() / 2, 0, "tp"), columns = world.split(world.rank() % 2, 0, "dp");
    std::vector<float> a(3, 1.0f), b(3, 1.0f), c(3, 1.0f);
    std::vector<Request> requests;
    if (world.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    requests.push_back(world.all_reduce_async(a));
    requests.push_back(rows.all_reduce_async(b));
    requests.push_back(columns.all_reduce_async(c));
    requests[2].wait();  // so the others are done as well
    CHECK(requests[0].test());
    CHECK(requests[1].test());
    CHECK(a[0] == 4.0f);
    CHECK(b[0] == 2.0f);
    CHECK(c[0] == 2.0f);
  });
}

TEST_CASE("run: thread ranks with a GPU each") {
  setenv("WEFT_RANKS", "2", 1);
  char name[] = "test";
  char* argv[] = {name, nullptr};
  const int code = run<comm::NcclOver<comm::Threads>>(1, argv, [](World& world) {
    std::vector<float> x(3, 1.0f);
    on_device(world.communicator()).all_reduce(x);
    if (world.backend() != "nccl" || x[0] != 2.0f) throw Error("wrong");
    Mesh<dp, tp> mesh(world, {.tp = 2});
  });
  CHECK(code == 0);
  {
    const Machine none({.gpus = 0, .count = cudaErrorNoDevice});
    const int refused = run<comm::NcclOver<comm::Threads>>(1, argv, [](World&) {});
    CHECK(refused == 2);
  }
  unsetenv("WEFT_RANKS");
}
