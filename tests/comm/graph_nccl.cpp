// SPDX-License-Identifier: Apache-2.0
// Steps with collectives as CUDA graphs: recorded once, launched again without a call of NCCL, and watched like any operation.
// Over the test double (tests/support/fake_nccl).
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/nccl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/device/cuda/graph.hpp>

#include "support/device_elements.hpp"
#include "support/fake_nccl/internal.hpp"

using namespace weft;
using weft_test::DeviceSpace;
using weft_test::OfDevice;

namespace {

using Seconds = std::chrono::duration<double>;

/// A rank with a separate stream and two all-reduces in flight at a time, as in a step.
struct Rank {
  explicit Rank(const Communicator& c) : comm(c), x(6), y(6) { exec.stream = stream.get(); }
  /// Sets x to the sum of all ranks' x + 1, and y to the mean of the previous x.
  void step() {
    add(x, 0.0f, y);
    Request mean = comm.all_reduce_async(exec, y.elements, Reduction::average);
    add(x, 1.0f, x);
    Request sum = comm.all_reduce_async(exec, x.elements);
    const bool nothing_left = mean.test();
    if (gpu::is_recorded(exec.stream)) CHECK(nothing_left);  // for the host, which may query no event of a recording
    mean.wait();
    sum.wait();
  }
  void add(OfDevice& from, float value, OfDevice& to) {
    const auto* const in = reinterpret_cast<const float*>(from.buffer.get());
    auto* const out = reinterpret_cast<float*>(to.buffer.get());
    fake_nccl::launch(exec.stream, "add", {from.range()}, {to.range()}, [=, n = from.elements.count] {
      std::transform(fake_nccl::seen(in), fake_nccl::seen(in) + n, fake_nccl::seen(out), [=](float x) { return x + value; });
    });
  }

  Communicator comm;
  CudaStream stream;
  DeviceSpace exec;
  OfDevice x, y;
};

void with_ranks(int ranks, double deadline_s, const std::function<void(const Communicator&)>& f) {
  comm::run_threads(ranks, [&](const Communicator& host) {
    fake_nccl::faults() = {};
    f(comm::nccl::over(host, {.deadline = Seconds(deadline_s)}).split(0, 0, "dp"));
  });
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a recorded step gives the numbers of an ordinary one, and calls NCCL no more") {
  with_ranks(2, 20, [](const Communicator& c) {
    Rank rank(c);
    rank.x.fill(float(c.rank()));
    CHECK(std::string(std::getenv("NCCL_GRAPH_REGISTER")) == "0");  // else NCCL would meet other ranks while it is recorded
    gpu::StepGraph graph;
    float x[2] = {0, 1}, mean = 0;
    for (int i = 0; i < 6; ++i) {
      graph.run(rank.exec.stream, {1}, [&] { rank.step(); });
      c.watch(rank.exec);
      mean = (x[0] + x[1]) / 2;
      x[0] = x[1] = x[0] + x[1] + 2;
      rank.stream.wait();
      CHECK(rank.x.at(5) == x[0]);
      CHECK(rank.y.at(0) == mean);
      CHECK(graph.recorded() == (i >= gpu::StepGraph::warm_up));
    }
    CHECK(fake_nccl::own_calls() == 2 * 2);    // of the second step and of the recording
    c.all_reduce(rank.exec, rank.x.elements);  // an ordinary call runs after the launched work
    rank.stream.wait();
    CHECK(rank.x.at(0) == 2 * x[0]);
    graph.forget();
  });
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a rank that does not launch a recorded step is found at the deadline") {
  std::string text;
  const auto start = std::chrono::steady_clock::now();
  comm::run_threads(2, [&](const Communicator& host) {
    const Communicator c = comm::nccl::over(host, {.deadline = Seconds(0.3)}).split(0, 0, "dp");
    Rank rank(c);
    rank.x.fill(1.0f);
    gpu::StepGraph graph;
    for (int i = 0; i < 4; ++i) graph.run(rank.exec.stream, {1}, [&] { rank.step(); });
    rank.stream.wait();
    host.barrier();
    if (host.rank() == 0) {
      graph.run(rank.exec.stream, {1}, [&] { rank.step(); });
      c.watch(rank.exec);
      rank.stream.wait();  // only an abort ends it
      try {
        c.check();
      } catch (const TimeoutError& error) {
        text = error.what();
      }
      CHECK_THROWS_AS(c.watch(rank.exec), AbortedError);
    }
    host.barrier();
    graph.forget();
  });
  CHECK(text.find("axis dp, all_reduce(sum) of 6 float32") != std::string::npos);
  CHECK(text.find("waited longer than the deadline of 0.3") != std::string::npos);
  CHECK(Seconds(std::chrono::steady_clock::now() - start).count() < 3);
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("a communicator whose operations a graph holds ends after the graph") {
  comm::run_threads(2, [](const Communicator& host) {
    const Communicator world = comm::nccl::over(host, {.deadline = Seconds(20)});
    gpu::StepGraph graph;
    auto dp = std::make_unique<Communicator>(world.split(0, 0, "dp"));
    auto rank = std::make_unique<Rank>(*dp);
    rank->x.fill(1.0f);
    for (int i = 0; i < 4; ++i) {
      graph.run(rank->exec.stream, {1}, [&] { rank->step(); });
      dp->watch(rank->exec);
    }
    rank->stream.wait();
    const CudaStream held;
    DeviceSpace on_held;
    on_held.stream = held.get();
    fake_nccl::Block kernel(held.get());
    Request progress = world.all_reduce_async(on_held, rank->y.elements);  // its tests are the rank's progress
    rank->comm = world;
    dp.reset();
    for (int turn = 0; turn < 50; ++turn) {
      CHECK(!progress.test());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(fake_nccl::alive() == 8);  // two of each rank for the world, and two for the axis
    world.barrier();
    graph.forget();
    for (int turn = 0; turn < 2000 && fake_nccl::alive() > 4; ++turn) {
      CHECK(!progress.test());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(fake_nccl::alive() == 4);
    kernel.release();
    progress.wait();
    held.wait();
  });
  CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("an operation that cannot be recorded is an error on every rank, and has no other effect") {
  with_ranks(2, 20, [](const Communicator& c) {
    Rank rank(c);
    rank.x.fill(1.0f);
    const auto recording = [&](const std::function<void()>& step) {
      cudaGraph_t graph = nullptr;
      cuda_check(cudaStreamBeginCapture(rank.exec.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
      const std::string text = refusal(step);
      (void)cudaStreamEndCapture(rank.exec.stream, &graph);
      if (graph != nullptr) cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
      return text;
    };
    CHECK(recording([&] { c.all_reduce(rank.exec, rank.x.elements); }) ==
          detail::joined({"weft: rank ", c.rank(),
                          ", axis dp, all_reduce(sum) of 6 float32: cannot be recorded into a graph: it is the "
                          "first of its kind, and ranks connect: run the step before it is recorded"}));
    const comm::StreamOrder order{&rank.exec, nullptr,
                                  [](const void* exec) -> void* { return static_cast<const DeviceSpace*>(exec)->stream; }};
    const comm::Call message{.operation = comm::Operation::send,
                             .type = DataType::float32,
                             .memory = comm::MemoryKind::device,
                             .root = 1 - c.rank(),
                             .tag = 3,
                             .count = 6,
                             .input = rank.x.buffer.get(),
                             .order = order};
    CHECK(recording([&] {
            (void)c.group()->start(message);
          }).find("the two ranks of a message agree on its order in each step") != std::string::npos);
    Request flying = c.all_reduce_async(rank.exec, rank.x.elements);
    while (!flying.test()) std::this_thread::yield();
    fake_nccl::Block kernel(rank.exec.stream);
    Request later = c.all_reduce_async(rank.exec, rank.x.elements);
    CHECK(recording([&] { c.all_reduce(rank.exec, rank.x.elements); }).find("an earlier operation was not waited for") !=
          std::string::npos);
    kernel.release();
    flying.wait();
    later.wait();
    rank.stream.wait();
    CHECK(rank.x.at(0) == 4.0f);
    c.all_reduce(rank.exec, rank.x.elements);
    rank.stream.wait();
    CHECK(rank.x.at(0) == 8.0f);
  });
  CHECK(fake_nccl::alive() == 0);
}
