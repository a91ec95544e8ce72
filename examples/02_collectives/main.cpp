// SPDX-License-Identifier: Apache-2.0
// Collectives: blocking and asynchronous, on vectors and on Kokkos Views, and the error when ranks disagree.
//   ./examples/run collectives                        ranks are threads, one per core (WEFT_RANKS=4 for four)
//   ./examples/run collectives --mismatch             the last rank calls something else: an immediate error names both calls
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include <Kokkos_Core.hpp>

#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

void blocking(const Communicator& world) {
  const int rank = world.rank(), size = world.size();
  std::vector<float> gradients(1000, float(rank + 1));
  world.all_reduce(gradients, Reduction::average);  // in place, the same bits on every rank

  const std::vector<int> mine{rank, rank * rank};  // [2]
  std::vector<int> all(2 * std::size_t(size));     // [2 * size], in rank order
  world.all_gather(mine, all);

  std::vector<int> from_left(1);
  world.send_recv(std::vector<int>{rank}, (rank + 1) % size, from_left, (rank + size - 1) % size);  // a ring

  if (rank == 0)
    std::printf("average %g, the last square %d, on the left of rank 0 is rank %d\n", double(gradients[0]), all.back(),
                from_left[0]);
}

/// Communication that continues while this rank computes. It progresses whenever the rank calls `test` or `wait`.
void asynchronous(const Communicator& world) {
  std::vector<double> first(100000, 1.0), second(50000, 2.0);
  Request one = world.all_reduce_async(first), two = world.all_reduce_async(second, Reduction::max);
  double work = 0;
  int pieces = 0;
  do {
    for (int i = 1; i <= 1000; ++i) work += 1.0 / i;
    ++pieces;
  } while (!two.test());
  one.wait();  // `first` may be read only after this
  if (world.rank() == 0)
    std::printf("both sums are there (%g, %g); rank 0 did some work meanwhile: %s\n", first[0], second[0],
                work > 0 && pieces > 0 ? "yes" : "no");
}

/// Two halves of the ranks, each with a separate communicator and a name for messages. A rank that passes its place and its
/// group's size can be rehearsed alone; otherwise the other ranks' colors would be needed.
void groups(const Communicator& world) {
  const int odd = world.rank() % 2;
  const Communicator half = world.split(odd, world.rank(), "half", {world.rank() / 2, (world.size() + 1 - odd) / 2});
  std::vector<int> members{1};
  half.all_reduce(members);
  if (world.rank() == 0) std::printf("rank 0 shares '%s' with %d ranks\n", std::string(half.axis()).c_str(), members[0]);
}

/// Views, written by a kernel on this rank's execution-space instance. The collective runs after the kernel.
void views(World& world) {
  const auto& exec = world.device().exec();
  Kokkos::View<double*> x(Kokkos::view_alloc(exec, "x"), 1000);
  const int rank = world.rank();
  Kokkos::parallel_for(
      "fill", Kokkos::RangePolicy(exec, 0, 1000), KOKKOS_LAMBDA(int i) { x(i) = rank + i; });
  world.communicator().all_reduce(exec, x);
  auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x);
  if (rank == 0) std::printf("the Views' last elements sum to %g\n", host(999));
}

}  // namespace

int main(int argc, char** argv) {
  const bool mismatch = argc > 1 && std::string(argv[argc - 1]) == "--mismatch";
  return run<comm::Threads>(only_run_options(argc - mismatch, argv), [&](World& world) {
    const Communicator& all = world.communicator();
    blocking(all);
    asynchronous(all);
    groups(all);
    views(world);
    if (mismatch && world.size() > 1) {
      std::vector<float> x(16);
      if (world.rank() == world.size() - 1) all.broadcast(x, 0);
      else all.all_reduce(x);
    }
  });
}
