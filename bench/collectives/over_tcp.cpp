// SPDX-License-Identifier: Apache-2.0
// weft over TCP, under torchrun's environment, for comparison with bench/collectives/torch_gloo.py, which measures the same in
// the same way. Each line of the output is "OPERATION BYTES MEDIAN FASTEST" in seconds per call of float32. BYTES are of the
// buffer (all_reduce, broadcast) or of one rank's piece. WEFT_SHARED_MEMORY=0: over TCP, as between computers.
#include <weft/comm/tcp.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void measure(const weft::Communicator& c, const char* operation, std::size_t bytes, const std::function<void()>& step) {
  const std::size_t repetitions = std::clamp<std::size_t>((std::size_t(32) << 20) / bytes, 1, 200);
  constexpr int rounds = 7;
  std::vector<double> seconds;
  for (int round = -1; round < rounds; ++round) {
    c.barrier();
    const auto start = Clock::now();
    for (std::size_t k = 0; k < repetitions; ++k) step();
    c.barrier();
    if (round >= 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / double(repetitions));
  }
  std::sort(seconds.begin(), seconds.end());
  if (c.rank() == 0) std::printf("%s %zu %.9f %.9f\n", operation, bytes, seconds[seconds.size() / 2], seconds.front());
}

}  // namespace

int main(int argc, char** argv) {
  weft::comm::Tcp::Session session(argc, argv);
  const auto ending = session.run(session.started(), std::chrono::minutes(5), [](std::shared_ptr<weft::comm::Group> group) {
    const weft::Communicator c(std::move(group));
    const auto n = std::size_t(c.size());
    for (const std::size_t bytes : {std::size_t(4096), std::size_t(1) << 20, std::size_t(64) << 20}) {
      std::vector<float> x(bytes / sizeof(float), 0.0f), wide(x.size() * n, 0.0f);
      measure(c, "all_reduce", bytes, [&] { c.all_reduce(x); });
      measure(c, "all_gather", bytes, [&] { c.all_gather(x, wide); });
      measure(c, "reduce_scatter", bytes, [&] { c.reduce_scatter(wide, x); });
      measure(c, "broadcast", bytes, [&] { c.broadcast(x, 0); });
    }
  });
  return ending.error ? 1 : 0;
}
