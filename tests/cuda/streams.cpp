// SPDX-License-Identifier: Apache-2.0
// Concurrent copies and steps as graphs, over a test double of the CUDA runtime: the order of waits, the lifetime of buffers, and
// steps that cannot be recorded.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <weft/device/cuda/graph.hpp>
#include <weft/device/cuda/pinned_memory.hpp>
#include <weft/device/cuda/staged_copies.hpp>

#include "support/fake_nccl/internal.hpp"

using namespace weft;

namespace {

/// Work on a stream, as a kernel is.
template <class F>
void launch(cudaStream_t stream, F&& f) {
  fake_nccl::enqueue(stream, std::forward<F>(f));
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const CudaError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a copy beside the computation comes after the writes of its source and before the uses of its result") {
  CudaStream stream;
  gpu::SideCopy in, out;
  gpu::PinnedMemory pinned(sizeof(int));
  int* const host = static_cast<int*>(pinned.data());
  for (int round = 1; round <= 50; ++round) {
    auto on_device = std::make_shared<int>(0);
    std::weak_ptr<int> alive = on_device;
    int* const device = on_device.get();
    fake_nccl::Block earlier(stream.get());
    launch(stream.get(), [=] { *device = round; });
    out.start(host, device, sizeof(int), stream.get(), on_device);
    on_device.reset();
    CHECK(!out.done());  // the kernel before it has not run
    CHECK(!alive.expired());
    earlier.release();
    out.wait();
    CHECK(*host == round);
    CHECK(alive.expired());  // freed after the copy

    int there = 0, seen = 0;
    fake_nccl::Block busy(stream.get());
    in.start(&there, host, sizeof(int), stream.get());
    in.hold_back(stream.get());
    launch(stream.get(), [&] { seen = there; });
    busy.release();
    stream.wait();
    CHECK(seen == round);
  }
}

TEST_CASE("memory is held as long as its copy is in flight, however many there are") {
  CudaStream stream;
  gpu::SideCopy out;
  std::vector<int> host(20);
  std::vector<std::weak_ptr<int>> alive;
  {
    fake_nccl::Block busy(stream.get());
    for (int i = 0; i < 20; ++i) {
      auto value = std::make_shared<int>(i);
      alive.push_back(value);
      out.start(&host[std::size_t(i)], value.get(), sizeof(int), stream.get(), value);
    }
    for (const auto& value : alive) CHECK(!value.expired());
  }
  out.wait();
  for (const auto& value : alive) CHECK(value.expired());
  for (int i = 0; i < 20; ++i) CHECK(host[std::size_t(i)] == i);
}

TEST_CASE("small arrays go to the GPU in the order of its work, and the host neither waits nor keeps them") {
  CudaStream stream;
  gpu::StagedCopies copies;
  std::vector<int> from(3), first(3), second(3), before(3), between(3);
  const std::vector<int> ones(3, 1), twos(3, 2);
  {
    fake_nccl::Block busy(stream.get());  // this would wait for ever if a copy waited for earlier work
    launch(stream.get(), [&] { before = first; });
    from = ones;
    copies.start(first.data(), from.data(), 3 * sizeof(int), stream.get());
    from = twos;
    launch(stream.get(), [&] { between = first; });
    copies.start(second.data(), from.data(), 3 * sizeof(int), stream.get());
    from.assign(3, -1);
  }
  stream.wait();
  CHECK(before == std::vector<int>(3));
  CHECK(between == ones);
  CHECK(first == ones);
  CHECK(second == twos);
}

TEST_CASE("the third small array waits for the first one's memory, however large it is") {
  CudaStream stream;
  for (const std::size_t size : {1, 1000}) {
    gpu::StagedCopies copies;
    int first = 0, second = 0;
    std::vector<int> third(size);
    auto busy = std::make_unique<fake_nccl::Block>(stream.get());
    for (int* to : {&first, &second}) {
      const int value = to == &first ? 1 : 2;
      copies.start(to, &value, sizeof value, stream.get());
    }
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that one that does not wait is done before
      busy.reset();
    });
    copies.start(third.data(), std::vector<int>(size, 3).data(), size * sizeof(int), stream.get());
    later.join();
    stream.wait();
    CHECK((first == 1 && second == 2));
    CHECK(third == std::vector<int>(size, 3));
  }
}

TEST_CASE("copies in flight when their owner ends still arrive") {
  CudaStream stream;
  int there = 0;
  auto busy = std::make_unique<fake_nccl::Block>(stream.get());
  auto copies = std::make_unique<gpu::StagedCopies>();
  const int value = 5;
  copies->start(&there, &value, sizeof value, stream.get());
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    busy.reset();
  });
  copies.reset();
  CHECK(there == 5);
  later.join();
}

TEST_CASE("a step is run twice, recorded, and launched from then on") {
  CudaStream stream, side;
  CudaEvent fork, join;
  gpu::StepGraph graph;
  int steps_on_the_host = 0, value = 0, square = 0;
  const auto step = [&] {
    ++steps_on_the_host;
    launch(stream.get(), [&] { ++value; });
    fork.record(stream.get());
    fork.hold_back(side.get());
    launch(side.get(), [&] { square = value * value; });
    join.record(side.get());
    join.hold_back(stream.get());
  };
  for (int i = 1; i <= 6; ++i) {
    graph.run(stream.get(), {7}, step);
    stream.wait();
    CHECK(value == i);
    CHECK(square == i * i);
    CHECK(graph.recorded() == (i > gpu::StepGraph::warm_up));
  }
  CHECK(steps_on_the_host == gpu::StepGraph::warm_up + 1);
  graph.run(stream.get(), {8}, step);  // another shape
  stream.wait();
  CHECK(!graph.recorded());
  CHECK(steps_on_the_host == gpu::StepGraph::warm_up + 2);
}

TEST_CASE("work that cannot be recorded is an error with the reason, and leaves the stream as it was") {
  CudaStream stream, side;
  CudaEvent fork;
  gpu::StepGraph graph;
  int value = 0;
  const auto refuses = [&](const char* name, const auto& step) {
    graph.forget();
    for (int i = 0; i < gpu::StepGraph::warm_up; ++i) graph.run(stream.get(), {1}, step);
    stream.wait();
    side.wait();
    const int before = value;
    CHECK(refusal([&] { graph.run(stream.get(), {1}, step); }) ==
          std::string("weft: cuda: this step cannot become a graph (") + name +
              "): it waited for the GPU, allocated memory from CUDA, or left a stream that nothing waits for");
    CHECK(!graph.recorded());
    launch(stream.get(), [&] { value += 100; });
    stream.wait();
    CHECK(value == before + 100);
  };
  refuses("cudaErrorStreamCaptureInvalidated", [&] {
    launch(stream.get(), [&] { ++value; });
    (void)cudaStreamSynchronize(stream.get());
  });
  refuses("cudaErrorStreamCaptureInvalidated", [&] {
    void* memory = nullptr;
    if (cudaMalloc(&memory, 8) == cudaSuccess) (void)cudaFree(memory);
  });
  refuses("cudaErrorStreamCaptureUnjoined", [&] {
    fork.record(stream.get());
    fork.hold_back(side.get());
    launch(side.get(), [&] { ++value; });
  });
  // An exception of the step itself.
  const auto throws = [&] {
    launch(stream.get(), [&] { ++value; });
    throw CudaError("a step's own");
  };
  graph.forget();
  for (int i = 0; i <= gpu::StepGraph::warm_up; ++i)
    CHECK(refusal([&] { graph.run(stream.get(), {2}, throws); }) == "weft: a step's own");
  launch(stream.get(), [&] { value = -1; });
  stream.wait();
  CHECK(value == -1);
}
