// SPDX-License-Identifier: Apache-2.0
// covers: weft/runtime/cuda_rank.hpp
// The double of the CUDA runtime and of NCCL is strict: each of its checks finds a program that breaks the rule, and lets the
// same program pass that keeps it.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <weft/device/cuda/runtime.hpp>
#include <weft/runtime/cuda_rank.hpp>

#include "support/fake_nccl/internal.hpp"

using namespace weft;
using fake_nccl::Range;

namespace {

constexpr std::size_t count = 8, bytes = count * sizeof(float);

/// Device memory of eight floats.
class Floats {
 public:
  Floats() { cuda_check(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~Floats() { cuda_report(cudaFree(data_), "cudaFree"); }
  Floats(const Floats&) = delete;
  float* get() const { return static_cast<float*>(data_); }
  Range range() const { return {data_, bytes}; }

 private:
  void* data_ = nullptr;
};

void write(cudaStream_t stream, const Floats& x) {
  fake_nccl::launch(stream, "a writer", {}, {x.range()}, [to = x.get()] { std::fill_n(fake_nccl::seen(to), count, 1.0f); });
}
void read(cudaStream_t stream, const Floats& x) {
  fake_nccl::launch(stream, "a reader", {x.range()}, {}, [] {});
}
bool reported(const std::string& part) {
  bool found = false;
  for (const std::string& text : fake_nccl::take_reports()) found = found || text.find(part) != std::string::npos;
  return found;
}
const std::string race =
    "race: a reader reads 32 bytes, and nothing orders it after an earlier task of another stream: a writer writes 32 bytes";

struct Machine {
  explicit Machine(const fake_nccl::Machine& machine) { fake_nccl::machine() = machine; }
  ~Machine() { fake_nccl::machine() = {}; }
};
struct Schedule {
  explicit Schedule(const fake_nccl::Schedule& schedule) : before(fake_nccl::schedule()) { fake_nccl::schedule() = schedule; }
  ~Schedule() { fake_nccl::schedule() = before; }
  fake_nccl::Schedule before;
};

void until_ready(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  ncclResult_t asked = ncclSuccess;
  while (state == ncclInProgress && asked == ncclSuccess) asked = ncclCommGetAsyncError(comm, &state);
  REQUIRE(asked == ncclSuccess);
  REQUIRE(state == ncclSuccess);
}

/// The communicators of two ranks with a GPU each, and a stream on each GPU; both belong to this thread.
struct TwoRanks {
  TwoRanks() {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int rank = 0; rank < 2; ++rank) {
      REQUIRE(cudaSetDevice(rank) == cudaSuccess);
      REQUIRE(ncclCommInitRankConfig(&comm[rank], 2, id, rank, &config) == ncclInProgress);
      stream[rank] = std::make_unique<CudaStream>();
      data[rank] = std::make_unique<Floats>();
    }
    for (const ncclComm_t each : comm) until_ready(each);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
  }
  ~TwoRanks() {
    for (int rank = 0; rank < 2; ++rank)
      if (comm[rank] != nullptr) (void)ncclCommDestroy(comm[rank]);
  }
  void start(int rank) {
    REQUIRE(ncclAllReduce(data[rank]->get(), data[rank]->get(), count, ncclFloat, ncclSum, comm[rank], stream[rank]->get()) ==
            ncclInProgress);
  }
  void start_and_launch(int rank) {
    start(rank);
    until_ready(comm[rank]);
  }
  void abort(int rank) { CHECK(ncclCommAbort(std::exchange(comm[rank], nullptr)) == ncclSuccess); }

  ncclComm_t comm[2] = {};
  std::unique_ptr<CudaStream> stream[2];
  std::unique_ptr<Floats> data[2];
};

/// The exit status of a child process.
int status_of(const std::function<void()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    f();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("a read that nothing orders after a write is a race, whether or not they meet in time") {
  const CudaStream a, b;
  const Floats x;
  write(a.get(), x);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // long done, but not queried
  CHECK(!fake_nccl::waits_for(b.get(), x.get()));
  read(b.get(), x);
  CHECK(reported(race));
  b.wait();
  SUBCASE("an event orders them") {
    CudaEvent event;
    write(a.get(), x);
    event.record(a.get());
    event.hold_back(b.get());
    CHECK(fake_nccl::waits_for(b.get(), x.get()));
    read(b.get(), x);
  }
  SUBCASE("a wait of the host for the stream orders them") {
    write(a.get(), x);
    a.wait();
    read(b.get(), x);
  }
  SUBCASE("a query of the host that finds the event done orders them") {
    CudaEvent event;
    write(a.get(), x);
    event.record(a.get());
    while (!event.done()) std::this_thread::yield();
    read(b.get(), x);
  }
  SUBCASE("an event that was recorded before does not") {
    CudaEvent event;
    a.wait();
    event.record(a.get());
    write(a.get(), x);
    event.hold_back(b.get());
    read(b.get(), x);
    CHECK(reported(race));
  }
  a.wait();
  b.wait();
  CHECK(fake_nccl::take_reports().empty());
}

TEST_CASE("a write that nothing orders after a read is a race, too; two reads are none, nor are other bytes") {
  const CudaStream a, b;
  const Floats x;
  read(a.get(), x);
  read(b.get(), x);
  fake_nccl::launch(a.get(), "a writer", {}, {{x.get(), 8}}, [] {});
  CHECK(reported("race: a writer writes 8 bytes"));
  a.wait();
  b.wait();
  fake_nccl::launch(a.get(), "a writer", {}, {{x.get(), 8}}, [] {});
  fake_nccl::launch(b.get(), "a reader", {{x.get() + 2, 8}}, {}, [] {});
  CHECK(fake_nccl::take_reports().empty());
  a.wait();
  b.wait();
}

TEST_CASE("a copy from memory of the host's own returns before the bytes are there") {
  const CudaStream stream;
  const Floats x;
  const std::vector<float> host(count);
  CHECK(cudaMemcpy(x.get(), host.data(), bytes, cudaMemcpyDefault) == cudaSuccess);
  read(stream.get(), x);
  CHECK(reported("race: a reader reads 32 bytes"));
  stream.wait();
  CHECK(cudaMemcpy(x.get(), host.data(), bytes, cudaMemcpyDefault) == cudaSuccess);
  CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
  read(stream.get(), x);
  stream.wait();
  CHECK(fake_nccl::take_reports().empty());
}

TEST_CASE("the host cannot touch device memory") {
  const Floats x;
  const auto touched = [&](auto&& touch) {
    const int status = status_of([&] {
      std::signal(SIGSEGV, SIG_DFL);
      touch();
    });
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
  };
  CHECK(touched([&] { *const_cast<volatile float*>(x.get()) = 1; }));
  CHECK(touched([&] { (void)*const_cast<volatile float*>(x.get()); }));
  CHECK(!touched([&] { *const_cast<volatile float*>(fake_nccl::seen(x.get())) = 1; }));  // a kernel would
}

TEST_CASE("new memory holds garbage, and freed memory is found where it is used") {
  const CudaStream stream;
  unsigned char first = 0;
  void* gone = nullptr;
  CHECK(cudaMalloc(&gone, 8) == cudaSuccess);
  CHECK(cudaMemcpy(&first, gone, 1, cudaMemcpyDefault) == cudaSuccess);
  CHECK(first == 0xcb);
  CHECK(cudaFree(gone) == cudaSuccess);
  CHECK(cudaFree(gone) == cudaErrorInvalidValue);
  fake_nccl::launch(stream.get(), "a reader", {{gone, 8}}, {}, [] {});
  CHECK(reported("a reader reads 8 bytes of memory that was freed"));
  stream.wait();
}

TEST_CASE("a GPU's memory can be full") {
  const Machine small({.memory = 100});
  void *first = nullptr, *second = nullptr;
  CHECK(cudaMalloc(&first, 60) == cudaSuccess);
  CHECK(cudaMalloc(&second, 60) == cudaErrorMemoryAllocation);
  CHECK(cudaFree(first) == cudaSuccess);
  CHECK(cudaMalloc(&second, 60) == cudaSuccess);
  CHECK(cudaFree(second) == cudaSuccess);
}

TEST_CASE("cudaFree and cudaFreeHost wait for every stream of the GPU, and name a wait that does not end") {
  for (const bool pinned : {false, true}) {
    CAPTURE(pinned);
    const CudaStream stream;
    const auto take = [&] {
      void* memory = nullptr;
      CHECK((pinned ? cudaMallocHost(&memory, 8) : cudaMalloc(&memory, 8)) == cudaSuccess);
      return memory;
    };
    const auto free = [&](void* memory) { CHECK((pinned ? cudaFreeHost(memory) : cudaFree(memory)) == cudaSuccess); };
    fake_nccl::Block kernel(stream.get());
    void* const memory = take();
    std::atomic<bool> freed = false;
    std::thread other([&] {
      free(memory);
      freed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(!freed);
    kernel.release();
    other.join();
    CHECK(fake_nccl::take_reports().empty());

    const Machine impatient({.patience = 0.05});
    fake_nccl::Block endless(stream.get());
    free(take());
    CHECK(reported(std::string(pinned ? "cudaFreeHost" : "cudaFree") + " waits for the whole GPU, and for 0.05"));
    cuda_check(cudaSetDevice(1), "cudaSetDevice");  // another GPU is no matter
    free(take());
    CHECK(fake_nccl::take_reports().empty());
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
  }
}

TEST_CASE("an abort waits for the kernels of communicators that are not aborted yet; a group of aborts does not") {
  for (const bool grouped : {false, true}) {
    CAPTURE(grouped);
    const Machine impatient({.patience = 0.1});
    TwoRanks a, b;
    a.start_and_launch(0);
    b.start_and_launch(0);
    if (grouped) CHECK(ncclGroupStart() == ncclSuccess);
    a.abort(0);
    b.abort(0);
    if (grouped) CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(reported("ncclCommAbort waits for the whole GPU") == !grouped);
  }
}

TEST_CASE("neither an ended communicator nor the results of its operations may be used") {
  TwoRanks ranks;
  ranks.start_and_launch(0);
  const ncclComm_t gone = ranks.comm[0];
  ranks.abort(0);
  CHECK(ncclAllReduce(ranks.data[0]->get(), ranks.data[0]->get(), count, ncclFloat, ncclSum, gone, ranks.stream[0]->get()) ==
        ncclInvalidArgument);
  CHECK(reported("ncclAllReduce on a communicator that was aborted"));
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(gone, &state) == ncclInvalidArgument);
  CHECK(reported("ncclCommGetAsyncError on a communicator that was aborted"));
  CHECK(ncclCommAbort(gone) == ncclInvalidArgument);
  CHECK(reported("ncclCommAbort on a communicator that was aborted"));

  read(ranks.stream[0]->get(), *ranks.data[0]);
  CHECK(reported("a reader reads 32 bytes that ncclAllReduce left undefined when it was aborted"));
  write(ranks.stream[0]->get(), *ranks.data[0]);
  read(ranks.stream[0]->get(), *ranks.data[0]);
  ranks.stream[0]->wait();
  CHECK(fake_nccl::take_reports().empty());

  const ncclComm_t destroyed = ranks.comm[1];
  CHECK(ncclCommDestroy(std::exchange(ranks.comm[1], nullptr)) == ncclSuccess);
  CHECK(ncclCommDestroy(destroyed) == ncclInvalidArgument);
  CHECK(reported("ncclCommDestroy on a communicator that was destroyed"));
}

TEST_CASE("a communicator that does not block launches later: an event before that does not come after it") {
  const Schedule random({.order = fake_nccl::Schedule::Order::random, .seed = 5});
  bool found = false;
  for (int round = 0; round < 50 && !found; ++round) {  // the thread is sometimes quick
    TwoRanks ranks;
    const CudaStream compute;
    CudaEvent early;
    ranks.start(0);
    early.record(ranks.stream[0]->get());
    for (const int rank : {0, 1}) {
      if (rank == 1) ranks.start(rank);
      until_ready(ranks.comm[rank]);
    }
    early.hold_back(compute.get());
    read(compute.get(), *ranks.data[0]);
    found =
        reported("race: a reader reads 32 bytes, and nothing orders it after an earlier task of another stream: ncclAllReduce");
    compute.wait();
    ranks.stream[0]->wait();
    ranks.stream[1]->wait();

    CudaEvent late;
    for (const int rank : {0, 1}) ranks.start_and_launch(rank);
    late.record(ranks.stream[0]->get());
    late.hold_back(compute.get());
    read(compute.get(), *ranks.data[0]);
    CHECK(fake_nccl::take_reports().empty());
    compute.wait();
    ranks.stream[1]->wait();
  }
  CHECK(found);
}

TEST_CASE("a GPU has room for so many kernels: the first to start must be able to end") {
  for (const int kernels : {1, 2}) {
    CAPTURE(kernels);
    const Machine machine({.kernels = kernels});
    TwoRanks a, b;
    a.start_and_launch(0);  // the two GPUs start them in different orders
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b.start_and_launch(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b.start_and_launch(0);
    a.start_and_launch(1);
    CudaEvent end;
    end.record(a.stream[0]->get());
    if (kernels == 2) {
      end.wait();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(!end.done());
    CHECK(ncclGroupStart() == ncclSuccess);
    for (TwoRanks* both : {&a, &b})
      for (const int rank : {0, 1}) both->abort(rank);
    CHECK(ncclGroupEnd() == ncclSuccess);
  }
  CHECK(fake_nccl::take_reports().empty());
}

TEST_CASE("lazy streams work when something waits for them") {
  const Schedule lazy({.order = fake_nccl::Schedule::Order::lazy});
  const CudaStream stream, other;
  int early = 0;
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> done = false;
    fake_nccl::enqueue(stream.get(), [&] { done = true; });
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    early += done;
    stream.wait();
    CHECK(done);
  }
  CHECK(early < 10);
  int value = 0;
  CudaEvent event;
  fake_nccl::enqueue(stream.get(), [&] { value = 1; });
  event.record(stream.get());
  event.hold_back(other.get());
  other.wait();  // requests the other stream's work, too
  CHECK(value == 1);
}

TEST_CASE("independent tasks of two streams run in orders that the seed chooses") {
  int first[2] = {};
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const Schedule random({.order = fake_nccl::Schedule::Order::random, .seed = seed});
    const CudaStream a, b;
    std::atomic<int> order = 0, of_a = 0, of_b = 0;
    fake_nccl::enqueue(a.get(), [&] { of_a = ++order; });
    fake_nccl::enqueue(b.get(), [&] { of_b = ++order; });
    a.wait();
    b.wait();
    ++first[of_a < of_b ? 0 : 1];
  }
  CHECK(first[0] > 0);
  CHECK(first[1] > 0);
}

TEST_CASE("a program with unread reports fails") {
  CHECK(WEXITSTATUS(status_of([] {
          fake_nccl::report("not a fault: this report is expected");
          std::exit(0);
        })) == 3);
  CHECK(fake_nccl::take_reports().empty());
}

TEST_CASE("a process takes the GPU of its number on the machine, as its launcher gives it") {
  const auto without = [] {
    for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"})
      unsetenv(name);
  };
  without();
  auto place = runtime::local_place_from_environment();
  CHECK((place.rank == 0 && place.ranks == 1));
  setenv("SLURM_LOCALID", "3", 1);
  place = runtime::local_place_from_environment();
  CHECK((place.rank == 3 && place.ranks == 4));
  setenv("LOCAL_RANK", "5", 1), setenv("LOCAL_WORLD_SIZE", "8", 1);
  place = runtime::local_place_from_environment();
  CHECK((place.rank == 5 && place.ranks == 8));
  CHECK(runtime::first_gpu({.gpus = 4, .driver = 13000, .runtime = 13000}, place) == 1);
  CHECK_THROWS_AS(runtime::first_gpu({.gpus = 0, .driver = 13000, .runtime = 13000}, place), UsageError);
  without();
}
