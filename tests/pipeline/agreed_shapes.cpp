// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/agreed_shapes.hpp weft/pipeline/stage_channel.hpp
// Tensors between two stages over several runs: receives are posted in the shape of earlier runs, and a tensor of another shape
// arrives all the same, with its elements, beside tensors of the same tag that were expected before it came.

#include <doctest/doctest.h>

#include <numeric>
#include <tuple>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/pipeline/agreed_shapes.hpp>
#include <weft/pipeline/stage_channel.hpp>
#include <weft/pipeline/transport.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

using namespace weft;
using namespace weft::detail;

namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;
using Pair = std::tuple<Tensor<float, Exec>, Tensor<double, Exec>>;

template <class T>
Tensor<T, Exec> filled(Device<Exec>& device, const Shape& shape, double first) {
  Tensor<T, Exec> x(device, shape);
  std::vector<T> values(x.size());
  std::iota(values.begin(), values.end(), T(first));
  copy_from_host(x, std::span<const T>(values));
  return x;
}
template <class T>
bool equal(const Tensor<T, Exec>& x, const Tensor<T, Exec>& y) {
  return x.shape() == y.shape() && copy_to_host(x) == copy_to_host(y);
}

/// Columns of the two parts of a micro-batch's value.
using Widths = std::vector<std::pair<std::size_t, std::size_t>>;

/// One run of two stages; returns the number of values that arrived as they were sent.
int run_once(Device<Exec>& device, const Communicator& comm, AgreedShapes& agreed, std::size_t samples, const Widths& widths,
             bool ahead) {
  const BatchShare share{.samples = samples * widths.size(), .micro_batches = widths.size()};
  StageChannel<Exec> channel(device, comm, share, agreed);
  agreed.begin(comm);
  const Transport<Exec>& transport = transport_of<Exec, Pair>;
  const auto value = [&](std::size_t micro) {
    return Pair{filled<float>(device, {samples, widths[micro].first}, 100 * double(micro)),
                filled<double>(device, {2, samples, widths[micro].second}, -100 * double(micro))};
  };
  int right = 0;
  for (std::size_t micro = 0; micro < widths.size(); ++micro) {
    const StageMessage message{1, int(micro), true};
    if (comm.rank() == 0) {
      transport.send(channel, AnyValue(value(micro)), 1, message);
      continue;
    }
    if (ahead)
      for (std::size_t next = micro; next < std::min(micro + 3, widths.size()); ++next)
        transport.expect(channel, 0, {1, int(next), true});
    AnyValue arrived = transport.receive(channel, 0, message);
    const Pair sent = value(micro);
    right +=
        equal(std::get<0>(arrived.as<Pair>()), std::get<0>(sent)) && equal(std::get<1>(arrived.as<Pair>()), std::get<1>(sent));
  }
  channel.wait_for_sends();
  agreed.agree();
  return right;
}

bool agree(const AgreedShapes& agreed, std::size_t samples) {
  const MessageHeader* const first = agreed.find({samples, 1}, {1, 0, true, 0});
  return first != nullptr && agreed.find({samples, 1}, {1, 5, true, 1}) != nullptr;
}

}  // namespace

TEST_CASE("shapes that stages agree on, and tensors of other shapes") {
  const Widths same(11, {4, 3}), wider(11, {5000, 3});  // more than a message that is copied when it is sent
  Widths one_differs = same, all_differ = same;
  one_differs[4] = {9, 7};
  for (std::size_t micro = 0; micro < all_differ.size(); ++micro) all_differ[micro] = {micro + 1, 4000 + micro};
  const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
    const Communicator& comm = world.communicator();
    const auto all_right = [&](AgreedShapes& agreed, std::size_t samples, const Widths& widths, bool ahead) {
      const int right = run_once(world.device(), comm, agreed, samples, widths, ahead);
      return comm.rank() == 0 || right == int(widths.size());
    };
    for (const bool ahead : {true, false}) {
      AgreedShapes agreed;
      CHECK(!agree(agreed, 2));
      CHECK(all_right(agreed, 2, same, ahead));
      CHECK(agree(agreed, 2));
      CHECK(!agree(agreed, 3));
      CHECK(all_right(agreed, 2, same, ahead));
      CHECK(all_right(agreed, 3, wider, ahead));  // another size of micro-batch
      CHECK(agree(agreed, 2));
      CHECK(agree(agreed, 3));
      CHECK(all_right(agreed, 2, one_differs, ahead));
      CHECK(!agree(agreed, 2));  // not a function of the size
      CHECK(all_right(agreed, 3, all_differ, ahead));
      CHECK(all_right(agreed, 2, same, ahead));

      AgreedShapes other;
      CHECK(all_right(other, 2, same, ahead));
      CHECK(all_right(other, 2, all_differ, ahead));  // every expected tensor has another shape
      CHECK(all_right(other, 2, all_differ, ahead));

      const Communicator again = comm.split(0, comm.rank(), "pp");
      AgreedShapes moved;
      CHECK(all_right(moved, 2, same, ahead));
      moved.begin(again);
      CHECK(!agree(moved, 2));  // other ranks have seen nothing
    }
  });
  CHECK(code == 0);
}

TEST_CASE("sizes that change with every batch do not accumulate") {
  AgreedShapes agreed;
  agreed.begin(Communicator());
  for (std::size_t samples = 1; samples <= 1000; ++samples) {
    agreed.note({samples, 1}, {1, 0, true, 0}, {1, std::int64_t(samples)});
    agreed.agree();
  }
  std::size_t known = 0;
  for (std::size_t samples = 1; samples <= 1000; ++samples) known += agreed.find({samples, 1}, {1, 0, true, 0}) != nullptr;
  CHECK(known >= 1);
  CHECK(known <= 64);
  CHECK(agreed.find({1000, 1}, {1, 0, true, 0}) != nullptr);
}
