// SPDX-License-Identifier: Apache-2.0
#pragma once
// A U-Net of weft's layers in two and three dims, as a stack of units that pass tuples, and its comparison with one rank over
// domain axes: losses, gradients and three steps of AdamW. Pieces are uneven. A test program for each backend calls it.
//
//   weft_test::check_unet<UNet<2>, comm::Threads>({.ranks = 4, .degrees = {.dx = 2, .dy = 2}});

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <weft/nn/batch_norm.hpp>
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/operations/parts.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/upsample.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/weft.hpp>

namespace weft_test {

using namespace weft;

template <int dims>
struct UNetFields;
template <>
struct UNetFields<2> {
  static constexpr data::Field<"state", double, data::Cut<dx, 2>, data::Cut<dy, 3>> state{};
  static constexpr data::Field<"next", double, data::Cut<dx, 2>, data::Cut<dy, 3>> next{};
};
template <>
struct UNetFields<3> {
  static constexpr data::Field<"state", double, data::Cut<dx, 2>, data::Cut<dy, 3>, data::Cut<dz, 4>> state{};
  static constexpr data::Field<"next", double, data::Cut<dx, 2>, data::Cut<dy, 3>, data::Cut<dz, 4>> next{};
};

/// Down twice, up twice: maxima and means of windows, a transposed convolution and a linear enlargement. tp cuts the channels
/// inside of each block.
template <int dims>
struct UNet {
  using scalar = double;
  using Fields = UNetFields<dims>;
  using Batch = FieldBatch<Fields::state, Fields::next>;
  struct Config {
    std::size_t channels = 4;
  };
  template <class... Rules>
  using Conv = std::conditional_t<dims == 2, Conv2d<Rules...>, Conv3d<Rules...>>;

  template <class Norm, PaddingMode mode = PaddingMode::zeros>
  struct Block : Module<Block<Norm, mode>> {
    Conv<Shard<tp, 0>> conv;
    Norm norm;
    Block(const auto& at, std::size_t in, std::size_t out, auto... groups)
        : conv(at / "conv", in, out, 3, {.padding = 1, .mode = mode}), norm(at / "norm", groups..., out) {}
    auto forward(const auto& x) const { return to<Invariant<tp>>(silu(norm(conv(to<Replicated<tp>>(x))))); }
  };
  using Groups = GroupNorm<Shard<tp, 0>>;

  struct First : Module<First> {
    Block<Groups, PaddingMode::periodic> block;
    First(const auto& at, const Config& c) : block(at / "block", 2, c.channels, 2u) {}
    auto forward(const auto& batch) const {
      const auto e = block(to<Invariant<tp>>(batch[Fields::state]));
      if constexpr (dims == 2) return std::tuple(e, max_pool2d(e));
      else return std::tuple(e, max_pool3d(e));
    }
  };
  struct Second : Module<Second> {
    Block<BatchNorm<Shard<tp, 0>>> block;
    Second(const auto& at, const Config& c) : block(at / "block", c.channels, 2 * c.channels) {}
    auto forward(const auto& e, const auto& x) const {
      const auto f = block(x);
      if constexpr (dims == 2) return std::tuple(e, f, avg_pool2d(f));
      else return std::tuple(e, f, avg_pool3d(f));
    }
  };
  struct Middle : Module<Middle> {
    Block<InstanceNorm<Shard<tp, 0>>, PaddingMode::replicate> block;
    std::conditional_t<dims == 2, ConvTranspose2d<>, ConvTranspose3d<>> up;
    Middle(const auto& at, const Config& c)
        : block(at / "block", 2 * c.channels, 2 * c.channels),
          up(at / "up", 2 * c.channels, c.channels, 4, {.stride = 2, .padding = 1}) {}
    auto forward(const auto& e, const auto& f, const auto& x) const { return std::tuple(e, f, up(block(x))); }
  };
  struct Third : Module<Third> {
    Block<Groups> block;
    Third(const auto& at, const Config& c) : block(at / "block", 3 * c.channels, c.channels, 2u) {}
    auto forward(const auto& e, const auto& f, const auto& x) const {
      return std::tuple(e, upsample(block(concat<1>(f, x)), {.mode = UpsampleMode::linear}));
    }
  };
  struct Last : Module<Last> {
    Block<Groups> block;
    Conv<> out;
    Last(const auto& at, const Config& c)
        : block(at / "block", 2 * c.channels, c.channels, 2u), out(at / "out", c.channels, 2, 1) {}
    auto predict(const auto& e, const auto& x) const { return out(block(concat<1>(e, x))); }
    auto forward(const auto& e, const auto& x, const auto& batch) const {
      return mse(predict(e, x), to<Invariant<tp>>(batch[Fields::next]));
    }
  };
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return First(context / "first", config); }, [=] { return Second(context / "second", config); },
                 [=] { return Middle(context / "middle", config); }, [=] { return Third(context / "third", config); },
                 [=] { return Last(context / "last", config); });
  }
};

/// The rows of a rank, in blocks of four: the first ranks have one more.
struct UNetPiece {
  std::size_t first = 0, count = 0;
  UNetPiece(std::size_t whole, std::size_t ranks, std::size_t rank) {
    const std::size_t blocks = whole / 4, each = blocks / ranks, more = blocks % ranks;
    first = 4 * (rank * each + std::min(rank, more));
    count = 4 * (each + (rank < more ? 1 : 0));
  }
};
template <int dims>
inline constexpr std::size_t unet_extents[3] = {20, dims == 2 ? 12u : 8u, dims == 2 ? 1u : 8u};
inline constexpr std::size_t unet_samples = 4, unet_channels = 2;

/// A rank's samples and its piece of each field.
template <int dims>
typename UNet<dims>::Batch unet_batch(const data::Share& share, const std::vector<UNetPiece>& pieces) {
  using Fields = UNetFields<dims>;
  const std::size_t here = unet_samples / std::size_t(share.size), first = here * std::size_t(share.rank);
  typename UNet<dims>::Batch batch{.samples = here, .first_sample = first};
  const auto fill = [&](auto field, double shift) {
    std::vector<std::size_t> extents{unet_channels};
    for (const UNetPiece& piece : pieces) extents.push_back(piece.count);
    auto values = dims == 2 ? batch[field].resize(here, {extents[0], extents[1], extents[2]})
                            : batch[field].resize(here, {extents[0], extents[1], extents[2], extents.back()});
    std::size_t at = 0;
    const std::size_t depth = dims == 2 ? 1 : pieces.back().count, front = dims == 2 ? 0 : pieces.back().first;
    for (std::size_t n = first; n < first + here; ++n)
      for (std::size_t c = 0; c < unet_channels; ++c)
        for (std::size_t i = 0; i < pieces[0].count; ++i)
          for (std::size_t j = 0; j < pieces[1].count; ++j)
            for (std::size_t k = 0; k < depth; ++k) {
              const std::size_t x = pieces[0].first + i, y = pieces[1].first + j, z = front + k;
              const double place = double((((n * unet_channels + c) * unet_extents<dims>[0] + x) * unet_extents<dims>[1] + y) *
                                              unet_extents<dims>[2] +
                                          z);
              values[at++] = std::sin(place * place * 0.37 + shift);
            }
  };
  fill(Fields::state, 0), fill(Fields::next, 1);
  return batch;
}

struct UNetSteps {
  std::vector<double> losses;
  std::vector<std::string> names;
  std::vector<std::vector<double>> gradients;          // of each step and parameter
  std::map<std::string, std::vector<double>> running;  // statistics of BatchNorm after a step, on this rank's stage
};
template <class M, class Batch>
UNetSteps unet_steps(M& model, const Batch& batch) {
  UNetSteps all;
  all.names = model.parameter_names();
  optim::AdamW step(model, {.learning_rate = 1e-2});
  for (int i = 0; i < 3; ++i) {
    all.losses.push_back(model.train_step(batch));
    for (const std::string& name : all.names) all.gradients.push_back(model.gradient(name));
    step.step();
    // Of the first step: AdamW amplifies the rounding of gradients that are 0, as a bias' before a norm, whose mean it moves.
    if (i == 0)
      for (const auto& buffer : model.buffers()) all.running[buffer->name] = buffer->value;
  }
  return all;
}
/// The same on one rank, once for each process.
template <int dims>
const UNetSteps& unet_of_one_rank(DefaultDevice& device) {
  static const UNetSteps steps = [&] {
    SingleDevice<UNet<dims>> model(device, {});
    std::vector<UNetPiece> whole;
    for (int dim = 0; dim < dims; ++dim) whole.emplace_back(unet_extents<dims>[dim], 1, 0);
    return unet_steps(model, unet_batch<dims>({0, 1}, whole));
  }();
  REQUIRE(steps.running.size() == 1);
  return steps;
}

/// The largest difference of a loss or a gradient from one rank's, by the largest value of its kind. A bias before a norm has a
/// gradient of rounding errors, which counts by the largest gradient of its step.
inline double unet_difference(const UNetSteps& a, const UNetSteps& b) {
  double worst = 0;
  REQUIRE(a.names == b.names);
  for (std::size_t i = 0; i < a.losses.size(); ++i) worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / b.losses[i]);
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    double largest = 0, off = 0, of_step = 0;
    REQUIRE(a.gradients[i].size() == b.gradients[i].size());
    for (std::size_t k = 0; k < a.gradients[i].size(); ++k) {
      largest = std::max(largest, std::abs(b.gradients[i][k]));
      off = std::max(off, std::abs(a.gradients[i][k] - b.gradients[i][k]));
    }
    const std::size_t step = i / a.names.size();
    for (std::size_t p = 0; p < a.names.size(); ++p)
      for (const double value : b.gradients[step * a.names.size() + p]) of_step = std::max(of_step, std::abs(value));
    REQUIRE(of_step > 1e-3);
    worst = std::max(worst, off / std::max(largest, 1e-3 * of_step));
  }
  for (const auto& [name, values] : a.running)
    for (std::size_t k = 0; k < values.size(); ++k) worst = std::max(worst, std::abs(values[k] - b.running.at(name)[k]));
  return worst;
}

struct UNetLayout {
  int ranks;
  Degrees degrees;
  ModelOptions options = {};
  std::size_t micro_batches = 1;
};
/// Trains M, a wrapped UNet, in this layout and compares it with one rank.
template <int dims, class M, class Axes, comm::Backend Backend = comm::Threads>
void check_unet(Axes, const UNetLayout& layout) {
  std::mutex mutex;
  std::size_t compared = 0;
  const int code = runtime::run<Backend>(runtime::RunOptions{.ranks = layout.ranks}, [&](World& world) {
    const UNetSteps& reference = unet_of_one_rank<dims>(world.device());
    const Mesh mesh(world, Axes(), layout.degrees);
    std::vector<UNetPiece> pieces;
    const auto piece = [&]<class A>(A axis, std::size_t whole) {
      if constexpr (Axes::template has<A>) pieces.emplace_back(whole, mesh.size(axis), mesh.rank(axis));
      else pieces.emplace_back(whole, 1, 0);
    };
    piece(dx{}, unet_extents<dims>[0]), piece(dy{}, unet_extents<dims>[1]);
    if constexpr (dims == 3) piece(dz{}, unet_extents<dims>[2]);
    M model(mesh, {}, layout.options);
    const UNetSteps steps = unet_steps(model, unet_batch<dims>(data::share_of(mesh), pieces));
    const double worst = unet_difference(steps, reference);
    const std::lock_guard lock(mutex);
    INFO(mesh.text(), ": ", worst);
    CHECK(worst < 1e-13);
    ++compared;
  });
  CHECK(code == 0);
  CHECK(compared > 0);
}

using UNetPlane = FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<UNet<2>>, dx, dy>>>;
inline constexpr Axes<dp, tp, pp, dx, dy> unet_plane;

/// Between 2 or 4 processes: cut along one dim and two, beside tp, dp with ZeRO and pp.
template <comm::Backend Backend>
void check_unet_processes(int world) {
  const auto check = [&](const Degrees& degrees, const ModelOptions& options = {}) {
    check_unet<2, UNetPlane, Axes<dp, tp, pp, dx, dy>, Backend>(unet_plane, {world, degrees, options});
  };
  if (world == 2) {
    check({.dx = 2});
    check({.dy = 2});
  } else {
    check({.dx = 2, .dy = 2});
    check({.tp = 2, .dx = 2});
    check({.dp = 2, .dy = 2}, {.shard = {.stage = 3}});
    check({.pp = 2, .dx = 2});
  }
}

}  // namespace weft_test
