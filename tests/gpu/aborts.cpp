// SPDX-License-Identifier: Apache-2.0
// Two ranks over the real NCCL, one of which stays away: the other's operations on two communicators end at the deadline, and
// none of their results is used (./tests/run --gpu; WEFT_TIMEOUT_S is the deadline).
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include <weft/comm/nccl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/tensor.hpp>

using namespace weft;

namespace {

int failures = 0;
template <class F>
void must_throw(const char* what, F&& f) {
  try {
    f();
    std::printf("FAILED %s: no error\n", what);
    ++failures;
  } catch (const CommunicationError& error) {
    std::printf("ok     %s: %.160s\n", what, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run<comm::Threads, comm::Nccl>(argc, argv, [](World& world) {
    using Exec = DefaultDevice::execution_space;
    using Clock = std::chrono::steady_clock;
    auto& device = world.device();
    const Communicator all = world.communicator(), dp = all.split(0, 0, "dp"), alone = all.split(world.rank(), 0, "alone");
    const auto ones = [&] {
      Tensor<float, Exec> x(device, {1000});
      kernels::fill(device, x.size(), x.data(), 1.0f);
      return x;
    };
    const auto x = ones(), y = ones();
    for (const Communicator* both : {&all, &dp}) both->all_reduce(raw(x));  // connects
    device.exec().fence();
    if (world.rank() == 0) {
      const auto started = Clock::now();
      must_throw("two operations in flight, ended together", [&] {
        Request one = all.all_reduce_async(raw(x));
        Request two = dp.all_reduce_async(raw(y));
        one.wait();
        two.wait();
        device.exec().fence();  // only an abort ends this
        two = dp.all_reduce_async(raw(y));
        two.wait();
      });
      const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
      std::printf("%s after %.1f s\n", seconds < 20 ? "ok    " : "FAILED", seconds);
      failures += seconds >= 20;
      must_throw("a check", [&] { alone.check(); });
      std::vector<double> loss(1, 1.0);
      must_throw("a reduction on the host", [&] { alone.all_reduce(loss); });
      std::printf("%s\n", failures == 0 ? "passed" : "failed");
      std::fflush(stdout);
      std::_Exit(failures == 0 ? 0 : 1);  // the other rank is gone, so a normal shutdown would wait
    }
    std::this_thread::sleep_for(std::chrono::seconds(25));
    std::_Exit(0);
    return 0;
  });
}
