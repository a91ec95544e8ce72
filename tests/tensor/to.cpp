// SPDX-License-Identifier: Apache-2.0
// The moves of a tensor between placements on two ranks, element by element.
#include <weft/tensor/to.hpp>

#include <mutex>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <weft/context/context.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Numbers = std::vector<double>;

template <class P>
Tensor<double, Exec, P> tensor(DefaultDevice& device, const Shape& shape, const Numbers& values) {
  const Tensor<double, Exec, P> x(device, shape);
  copy_from_host(x, std::span<const double>(values));
  return x;
}

}  // namespace

TEST_CASE("each move has the elements of its collective") {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          detail::Environment environment;
          const auto context =
              Context<Compute<Exec, double>>(world.device(), environment).with<Invariant<tp>>(tp{}, world.communicator());
          const double rank = double(world.rank());
          auto& device = world.device();
          const auto whole = tensor<Invariant<tp>>(device, {2, 2}, {1, 2, 3, 4});
          const auto term = tensor<Partial<tp>>(device, {2, 2}, {1 + rank, 2, 3, 4 * rank});
          const auto rows = tensor<Shard<tp, 0>>(device, {1, 2}, {10 * rank, 10 * rank + 1});
          const Numbers first = copy_to_host(to<Shard<tp, 0>>(context, whole)),
                        columns = copy_to_host(to<Shard<tp, 1>>(context, whole)),
                        sum = copy_to_host(to<Invariant<tp>>(context, term)),
                        scattered = copy_to_host(to<Shard<tp, 0>>(context, term)),
                        gathered = copy_to_host(to<Replicated<tp>>(context, rows)),
                        kept = copy_to_host(to<Partial<tp>>(context, whole)),
                        placed = copy_to_host(to<Partial<tp>>(context, rows));
          const std::lock_guard lock(mutex);
          CHECK(first == (rank == 0 ? Numbers{1, 2} : Numbers{3, 4}));
          CHECK(columns == (rank == 0 ? Numbers{1, 3} : Numbers{2, 4}));
          CHECK(sum == Numbers{3, 4, 6, 4});
          CHECK(scattered == (rank == 0 ? Numbers{3, 4} : Numbers{6, 4}));
          CHECK(gathered == Numbers{0, 1, 10, 11});
          CHECK(kept == (rank == 0 ? Numbers{1, 2, 3, 4} : Numbers(4)));
          CHECK(placed == (rank == 0 ? Numbers{0, 1, 0, 0} : Numbers{0, 0, 10, 11}));
          CHECK(to<Replicated<tp>>(context, whole).data() == whole.data());  // no communication, the same memory
        }) == 0);
}
