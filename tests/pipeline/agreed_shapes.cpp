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

/// One run of two stages with receives posted so many micro-batches ahead; returns the number of values that arrived as they were
/// sent. The first `larger` micro-batches have one sample more.
int run_once(Device<Exec>& device, const Communicator& comm, AgreedShapes& agreed, std::size_t samples, const Widths& widths,
             std::size_t ahead, std::size_t larger = 0) {
  std::vector<MicroBatch> sizes(widths.size(), {samples, 1});
  for (std::size_t micro = 0; micro < larger; ++micro) ++sizes[micro].sequences;
  const BatchShare share{.samples = samples * widths.size() + larger, .micro_batches = widths.size(), .differing = sizes};
  StageChannel<Exec> channel(device, comm, share, agreed);
  agreed.begin(comm);
  const Transport<Exec>& transport = transport_of<Exec, Pair>;
  const auto value = [&](std::size_t micro) {
    const std::size_t rows = sizes[micro].sequences;
    return Pair{filled<float>(device, {rows, widths[micro].first}, 100 * double(micro)),
                filled<double>(device, {2, rows, widths[micro].second}, -100 * double(micro))};
  };
  int right = 0;
  for (std::size_t micro = 0; micro < widths.size(); ++micro) {
    const StageMessage message{1, int(micro), true};
    if (comm.rank() == 0) {
      transport.send(channel, AnyValue(value(micro)), 1, message);
      continue;
    }
    for (std::size_t next = micro; next < std::min(micro + ahead, widths.size()); ++next)
      transport.expect(channel, 0, {1, int(next), true});
    channel.progress();
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
    const auto all_right = [&](AgreedShapes& agreed, std::size_t samples, const Widths& widths, std::size_t ahead) {
      const int right = run_once(world.device(), comm, agreed, samples, widths, ahead);
      return comm.rank() == 0 || right == int(widths.size());
    };
    for (const std::size_t ahead : {0, 3, 11}) {
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

TEST_CASE("tensors of unknown and of agreed shapes with the same tag, all expected at once") {
  const Widths widths(40, {4000, 3});
  const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
    const Communicator& comm = world.communicator();
    for (const std::size_t larger : {1, 5, 12, 40}) {
      AgreedShapes agreed;
      for (int repeat = 0; repeat < 3; ++repeat) {
        CHECK(run_once(world.device(), comm, agreed, 2, widths, 40) == (comm.rank() == 0 ? 0 : 40));
        CHECK(run_once(world.device(), comm, agreed, 2, widths, 40, larger) == (comm.rank() == 0 ? 0 : 40));
        agreed = {};
        CHECK(run_once(world.device(), comm, agreed, 2, widths, 40) == (comm.rank() == 0 ? 0 : 40));
      }
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
