// SPDX-License-Identifier: Apache-2.0
// covers: weft/plan/layouts.hpp
// Rehearsals over domain axes: the rehearsed rank has neighbours on both sides, and sends both of them its rows; the memory of a
// U-Net of 512 x 512 x 512 points falls as one over the ranks.

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/operations/parts.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/plan/layouts.hpp>
#include <weft/runtime/rehearse.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"state", double, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"next", double, data::Cut<dx, 2>, data::Cut<dy, 3>> next;

struct Model : Module<Model> {
  using scalar = double;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Conv2d<> conv;
  Model(const auto& context, const Config&) : conv(context / "conv", 1, 1, 3, {.padding = 1}) {}
  auto loss(const auto& batch) const { return mse(conv(batch[state]), batch[next]); }
};

constexpr std::size_t rows = 8, columns = 6;

/// The rehearsal of one step over dx and dy.
std::vector<RehearsedStage> stages_of(int ranks, const Degrees& degrees) {
  return rehearse_stages({.ranks = ranks}, [&](World& world) {
    const Mesh mesh(world, axes<dp, dx, dy>, degrees);
    DataParallel<DomainParallel<Model, dx, dy>> model(mesh, {});
    Model::Batch batch{.samples = 1};
    batch[state].resize(1, {1, rows, columns}), batch[next].resize(1, {1, rows, columns});
    optim::AdamW optimizer(model, {});
    model.train_step(batch);
    optimizer.step();
  });
}
double sent_along(const Rehearsal& notes, std::string_view axis) { return notes.last_step.of(axis, "send").bytes; }

}  // namespace

TEST_CASE("the rehearsed rank of a domain axis is an inner one") {
  const auto border = stages_of(2, {.dx = 2}), inner = stages_of(4, {.dx = 4});
  REQUIRE(border.size() == 1);
  REQUIRE(inner.size() == 1);
  CHECK(border[0].rank == 0);
  CHECK(inner[0].rank == 1);
  // One row of doubles to each neighbour; the gradient of the input is not sent home, since nothing needs it.
  CHECK(sent_along(border[0].notes, "dx") >= columns * sizeof(double));
  CHECK(sent_along(inner[0].notes, "dx") == 2 * sent_along(border[0].notes, "dx"));
  const auto both = stages_of(9, {.dx = 3, .dy = 3});
  REQUIRE(both.size() == 1);
  CHECK(both[0].rank == 4);
}

namespace {

inline constexpr data::Field<"now", float, data::Cut<dx, 2>, data::Cut<dy, 3>, data::Cut<dz, 4>> now;
inline constexpr data::Field<"later", float, data::Cut<dx, 2>, data::Cut<dy, 3>, data::Cut<dz, 4>> later;

struct Block : Module<Block> {
  Conv3d<> conv;
  GroupNorm<> norm;
  Block(const auto& at, std::size_t in, std::size_t out)
      : conv(at / "conv", in, out, 3, {.padding = 1}), norm(at / "norm", 4, out) {}
  auto forward(const auto& x) const { return silu(norm(conv(x))); }
};
/// Two levels down and up, zeros around the volume.
struct Volume : Module<Volume> {
  using scalar = float;
  using Batch = FieldBatch<now, later>;
  struct Config {
    std::size_t channels = 16;
  };
  Block first, second, third, fourth, fifth;
  Conv3d<> out;
  Volume(const auto& at, const Config& c)
      : first(at / "first", 1, c.channels),
        second(at / "second", c.channels, 2 * c.channels),
        third(at / "third", 2 * c.channels, 4 * c.channels),
        fourth(at / "fourth", 6 * c.channels, 2 * c.channels),
        fifth(at / "fifth", 3 * c.channels, c.channels),
        out(at / "out", c.channels, 1, 1) {}
  auto loss(const auto& batch) const {
    const auto a = first(batch[now]);                                                // [samples, channels, side, side, side]
    const auto b = second(avg_pool3d(a, {.kernel = 2}));                             // side / 2
    const auto c = third(avg_pool3d(b, {.kernel = 2}));                              // side / 4
    const auto d = fourth(concat<1>(upsample(c, {.factor = 2}), b));                 // side / 2
    return mse(out(fifth(concat<1>(upsample(d, {.factor = 2}), a))), batch[later]);  // side
  }
};

/// Values of a volume that are not there: pages that are only read take no memory.
std::span<const float> no_memory(std::size_t values) {
  static const std::size_t most = std::size_t(512) * 512 * 512;
  static void* const pages = mmap(nullptr, most * sizeof(float), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  REQUIRE(values <= most);
  return {static_cast<const float*>(pages), values};
}

/// Two steps on one sample of side x side x side points.
void train_volume(World& world, std::size_t side, const Degrees& degrees, const ModelOptions& options) {
  const Mesh<dp, dx, dy, dz> mesh(world, degrees);
  FullyShardedDataParallel<DomainParallel<Volume, dx, dy, dz>> model(mesh, {}, options);
  optim::AdamW optimizer(model, {});
  const std::size_t x = side / mesh.size(dx{}), y = side / mesh.size(dy{}), z = side / mesh.size(dz{});
  Volume::Batch batch{.samples = 1};
  batch[now].view(no_memory(x * y * z), {1, x, y, z}), batch[later].view(no_memory(x * y * z), {1, x, y, z});
  for (int step = 0; step < 2; ++step) model.train_step(batch), optimizer.step();
}
Rehearsal rehearse_volume(int side, int rank, const ModelOptions& options = {.shard = {.stage = 0}}) {
  const std::size_t ranks = std::size_t(side);
  return rehearse({.rank = rank, .ranks = side * side * side},
                  [&](World& world) { train_volume(world, 512, {.dp = 1, .dx = ranks, .dy = ranks, .dz = ranks}, options); });
}

}  // namespace

TEST_CASE("the memory of a large U-Net falls as one over the ranks, and a rank in a corner sends half as much") {
  const Rehearsal one = rehearse_volume(1, 0), eight = rehearse_volume(2, 0), many = rehearse_volume(4, 1 + 4 + 16);
  MESSAGE("GB of a rank: ", double(one.peak) / 1e9, " on 1, ", double(eight.peak) / 1e9, " on 8, ", double(many.peak) / 1e9,
          " on 64");
  CHECK(one.peak > 8 * eight.peak);
  CHECK(one.peak > 64 * many.peak);
  CHECK(double(eight.peak) > 7.8 * double(many.peak));  // strips are a larger part of a smaller piece
  CHECK(one.peak > std::size_t(60) << 30);
  const Rehearsal corner = rehearse_volume(4, 0);
  for (const std::string_view axis : {"dx", "dy", "dz"}) {
    CHECK(sent_along(many, axis) > 1.95 * sent_along(corner, axis));
    CHECK(sent_along(many, axis) < 2.05 * sent_along(corner, axis));
  }
}

TEST_CASE("ranks of domain axes share the state of a volume's model") {
  const auto state = [](const ModelOptions& options) {
    return double(rehearse_volume(2, 0, options).kept.of(MemoryCategory::optimizer_state));
  };
  const double whole = state({.shard = {.stage = 0}}), shared = state({.shard = {.stage = 1, .over_domain = true}});
  CHECK(whole == state({.shard = {.stage = 1}}));
  CHECK(whole / shared > 7.9);
  const Rehearsal notes = rehearse_volume(2, 0, {.shard = {.stage = 2, .over_domain = true}});
  CHECK(notes.last_step.of("dp-dx-dy-dz", "reduce_scatter").calls > 0);
  CHECK(notes.last_step.of("dx", "all_reduce").bytes < 1e5);  // statistics; gradients of parameters are not summed here
}

namespace {

/// A program whose batches follow from its mesh: 8 samples over the data ranks, and the rank's piece of each.
void train_pieces_with(const ModelOptions& options, World& world) {
  const Mesh mesh(world, axes<dp, dx, dy>);
  const std::size_t samples = 8 / mesh.size(dp{}), x = rows / mesh.size(dx{}), y = columns / mesh.size(dy{});
  if (x * y == 0) throw LayoutError("a rank without a piece");
  FullyShardedDataParallel<DomainParallel<Model, dx, dy>> model(mesh, {}, options);
  optim::AdamW optimizer(model, {});
  for (int step = 0; step < 3; ++step) {
    Model::Batch batch{.samples = samples};
    batch[state].resize(samples, {1, x, y}), batch[next].resize(samples, {1, x, y});
    model.train_step(batch);
    optimizer.step();
  }
}
void train_pieces(World& world) { train_pieces_with({}, world); }
std::string refusal(const plan::LayoutLimits& limits, int ranks, const std::function<void(World&)>& f) {
  try {
    (void)plan::layouts({.ranks = ranks}, plan::known_machine("h100"), limits, f);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("all layouts of a program are rehearsed, with the figures of a rehearsal of each") {
  const plan::Machine machine = plan::known_machine("h100");
  const plan::Layouts found = plan::layouts({.ranks = 8}, machine, {}, train_pieces);
  CHECK(found.all == 28);     // 10 factors of 8, four stages where dp is above 1
  CHECK(found.refused == 1);  // dy 8 of 6 columns
  CHECK(found.fitting.size() == 27);
  CHECK(found.complete);
  for (std::size_t i = 0; i < found.fitting.size(); ++i) {
    const plan::ProgramLayout& one = found.fitting[i];
    if (i > 0) CHECK(one.step.tokens_per_second() <= found.fitting[i - 1].step.tokens_per_second());
    CHECK(one.step.tokens == 8);
    const auto again = [&](World& world) {
      const Mesh mesh(world, axes<dp, dx, dy>, {.dx = one.layout.degree("dx"), .dy = one.layout.degree("dy")});
      const std::size_t samples = 8 / mesh.size(dp{}), x = rows / mesh.size(dx{}), y = columns / mesh.size(dy{});
      FullyShardedDataParallel<DomainParallel<Model, dx, dy>> model(
          mesh, {}, {.shard = {.stage = one.layout.stage < 0 ? 3 : one.layout.stage}});
      optim::AdamW optimizer(model, {});
      for (int step = 0; step < 3; ++step) {
        Model::Batch batch{.samples = samples};
        batch[state].resize(samples, {1, x, y}), batch[next].resize(samples, {1, x, y});
        model.train_step(batch);
        optimizer.step();
      }
    };
    const RehearsedStages of{.ranks = 8, .ranks_per_node = machine.ranks_per_node};
    CHECK(one.memory == double(rehearse_stages(of, again).front().notes.peak));
    CHECK(one.step.seconds == plan::estimate(of, machine, again).seconds);
  }
  CHECK(plan::table_of(found).starts_with("layouts of 8 ranks on h100: 28 in all, 27 fit, 0 are too large, 1 are refused\n"));
  CHECK(refusal({.memory = 1e3}, 8, train_pieces)
            .starts_with("weft: none of 27 layouts of 8 ranks fits 1.0 kB: the smallest needs"));
  CHECK(refusal({}, 8, [](World& world) {
          if (world.size() > 1) throw LayoutError("eight is a bad number");
          train_pieces(world);
        }) == "weft: no layout of 8 ranks is possible; the first of them: weft: eight is a bad number");
}

TEST_CASE("stages vary on all layouts whose domain ranks share the state") {
  const plan::Layouts found = plan::layouts({.ranks = 4}, plan::known_machine("h100"), {},
                                            [](World& world) { train_pieces_with({.shard = {.over_domain = true}}, world); });
  CHECK(found.all == 24);     // 6 factors of 4, four stages each
  CHECK(found.refused == 6);  // stage 0 has nothing to share
  CHECK(found.fitting.size() == 18);
}

TEST_CASE("a volume that no rank can hold is cut") {
  const auto search = [](double memory) {
    return plan::layouts({.ranks = 4}, plan::known_machine("h100"), {.memory = memory, .seconds = 300},
                         [](World& world) { train_volume(world, 128, {.dx = 1}, {}); });
  };
  const plan::Layouts any = search(0);
  CHECK(any.fitting.size() == 22);   // ten factors of 4, four stages where dp is above 1
  double cut = 0, whole = HUGE_VAL;  // most memory if all four ranks cut the volume, least if fewer do
  for (const plan::ProgramLayout& one : any.fitting)
    if (one.layout.degree("dp") == 1) cut = std::max(cut, one.memory);
    else whole = std::min(whole, one.memory);
  CHECK(cut < 0.8 * whole);
  const plan::Layouts found = search((cut + whole) / 2);
  CHECK(found.too_large == 16);
  CHECK(found.fitting.size() == 6);
  for (const plan::ProgramLayout& one : found.fitting) CHECK(one.layout.degree("dp") == 1);
}
