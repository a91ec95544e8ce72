// SPDX-License-Identifier: Apache-2.0
// Steps of a model of four convolutions of 3 x 3 on one field of 256 x 256 x 32 in fp32, on ranks of one thread each: the best
// time of a step in milliseconds, without and with a delay in every exchange of halos, and the share of the delays that is
// hidden.
//
//   bench_domain_convolutions [dx [dy [delay in milliseconds [steps]]]]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <weft/nn/convolution.hpp>
#include <weft/operations/losses.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/testing/delay_messages.hpp>
#include <weft/weft.hpp>

namespace {

using namespace weft;

inline constexpr data::Field<"state", float, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"next", float, data::Cut<dx, 2>, data::Cut<dy, 3>> next;
constexpr std::size_t extent = 256, channels = 32;

struct Four : Module<Four> {
  using scalar = float;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Conv2d<> a, b, c, d;
  Four(const auto& at, const Config&)
      : a(at / "a", channels, channels, 3, {.padding = 1}),
        b(at / "b", channels, channels, 3, {.padding = 1}),
        c(at / "c", channels, channels, 3, {.padding = 1}),
        d(at / "d", channels, channels, 3, {.padding = 1}) {}
  auto loss(const auto& batch) const { return mse(d(c(b(a(batch[state])))), batch[next]); }
};

void measure(World& world, std::size_t x, std::size_t y, double delay_s, int steps,
             const std::shared_ptr<testing::SlowNetwork>& network) {
  World slow(testing::delay_messages(world.communicator(), network), world.device());
  const Mesh mesh(slow, axes<dp, dx, dy>, {.dx = x, .dy = y});
  DataParallel<DomainParallel<Four, dx, dy>> model(mesh, {});
  Four::Batch batch{.samples = 1};
  for (const auto values :
       {batch[state].resize(1, {channels, extent / x, extent / y}), batch[next].resize(1, {channels, extent / x, extent / y})})
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(std::sin(0.37 * double(i % 10007)));
  double best[2] = {1e9, 1e9}, in_transit = 0;
  for (int step = 0; step < 2 * steps; ++step) {
    const bool slowly = step % 2 == 1;
    world.communicator().barrier();
    if (world.rank() == 0) network->set({.seconds = slowly ? delay_s : 0, .collectives = false});  // of halos only
    world.communicator().barrier();
    const double before = testing::delayed(slow.communicator()).seconds, begin = testing::SlowNetwork::now();
    model.train_step(batch);
    best[slowly] = std::min(best[slowly], testing::SlowNetwork::now() - begin);
    in_transit = testing::delayed(slow.communicator()).seconds - before;
  }
  if (world.rank() != 0) return;
  std::printf("dx %zu, dy %zu: a step of %.2f ms", x, y, 1e3 * best[0]);
  if (delay_s > 0)
    std::printf("; with messages of %.1f ms in all %.2f ms: %.0f %% hidden", 1e3 * in_transit, 1e3 * best[1],
                100 * (1 - (best[1] - best[0]) / in_transit));
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int at, double otherwise) { return at < count ? std::atof(arguments[at]) : otherwise; };
  const std::size_t x = std::size_t(number(1, 1)), y = std::size_t(number(2, 1));
  const auto network = std::make_shared<testing::SlowNetwork>();
  return run<comm::Threads>(RunOptions{.ranks = int(x * y), .threads_per_rank = 1},
                            [&](World& world) { measure(world, x, y, 1e-3 * number(3, 0), int(number(4, 30)), network); });
}
