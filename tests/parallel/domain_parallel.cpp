// SPDX-License-Identifier: Apache-2.0
// Fields cut over dx, dy and dz: a model of windows equals one rank in its losses, gradients and steps.
#include <weft/parallel/domain_parallel.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <weft/checkpoint/load.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/engine/parameter_pieces.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/operations/window.hpp>
#include <weft/weft.hpp>

#include "support/domain_steps.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;
using weft_test::domain_difference;
using weft_test::DomainSteps;
using weft_test::UnevenPiece;

namespace {

inline constexpr data::Field<"state", double, data::Cut<dx, 2>, data::Cut<dy, 3>> state;
inline constexpr data::Field<"next", double, data::Cut<dx, 2>, data::Cut<dy, 3>> next;

template <int before, int after = before>
auto reach(const auto& x) {
  // The second exchange brings the corners.
  return to<Halo<dy, 3, before, after>>(to<Halo<dx, 2, before, after>>(x));
}

/// Two convolutions on one exchange, an average of windows, and a gate of channels. The gradient of the gate is whole on each
/// rank of a domain axis; that of `c` is whole from one use, and a term of a sum from the other.
struct Net : Module<Net> {
  Parameter<Shard<tp, 0>> u, a;
  Parameter<Shard<tp, 1>> v;
  Parameter<> w, c;
  Linear<> gate;
  explicit Net(const auto& at)
      : u(at, "u", {4, 2, 3, 3}, normal(0.3)),
        a(at, "a", {4}, normal(0.3)),
        v(at, "v", {3, 4, 3, 3}, normal(0.3)),
        w(at, "w", {2, 3, 3, 3}, normal(0.3)),
        c(at, "c", {2}, normal(0.3)),
        gate(at / "gate", 2, 3) {}
  auto forward(const auto& x) const {
    const auto y = sigmoid(conv2d<Window{3, 1, 1}>(to<Replicated<tp>>(reach<2>(x)), u, a));
    const auto z = to<Invariant<tp>>(conv2d<Window{3, 1, 1}>(y, v));
    const auto open = to<Replicated<dy>>(to<Replicated<dx>>(sigmoid(gate(global_avg_pool2d(x) + c))));  // [samples, 3]
    const auto shown = z * reshape(open, {open.shape()[0], 3, 1, 1});
    return conv2d<Window{3, 1, 1}>(reach<1>(tanh(shown)), w, c) + avg_pool2d<Window{3, 1, 1}>(reach<1>(x));
  }
};
struct Model : Module<Model> {
  using scalar = double;
  using Batch = FieldBatch<state, next>;
  struct Config {};
  Net net;
  Model(const auto& context, const Config&) : net(context / "net") {}
  auto predict(const auto& batch) const { return net(to<Invariant<tp>>(batch[state])); }
  auto loss(const auto& batch) const { return mse(predict(batch), to<Invariant<tp>>(batch[next])); }
};

constexpr std::size_t samples = 4, channels = 2, rows = 9, columns = 10;
constexpr const char* names[] = {"net.u", "net.a", "net.v", "net.w", "net.c", "net.gate.weight", "net.gate.bias"};

// A rank's part of the global batch: its samples, and its piece of each field.
Model::Batch batch_of(const data::Share& share, const UnevenPiece& x, const UnevenPiece& y) {
  const std::size_t here = samples / std::size_t(share.size), first = here * std::size_t(share.rank);
  Model::Batch batch{.samples = here, .first_sample = first};
  const auto fill = [&](auto field, double shift) {
    auto values = batch[field].resize(here, {channels, x.count, y.count});
    std::size_t at = 0;
    for (std::size_t n = first; n < first + here; ++n)
      for (std::size_t c = 0; c < channels; ++c)
        for (std::size_t i = 0; i < x.count; ++i)
          for (std::size_t j = 0; j < y.count; ++j) {
            const double place = double(((n * channels + c) * rows + x.first + i) * columns + y.first + j);
            values[at++] = std::sin(place * place * 0.37 + shift);
          }
  };
  fill(state, 0), fill(next, 1);
  return batch;
}

template <class M>
DomainSteps train(M& model, const Model::Batch& batch) {
  DomainSteps all;
  optim::AdamW step(model, {.learning_rate = 1e-2});
  for (int i = 0; i < 3; ++i) {
    all.losses.push_back(model.train_step(batch));
    for (const char* name : names) all.gradients.push_back(model.gradient(name));
    all.losses.push_back(step.step().gradient_norm);
  }
  return all;
}
DomainSteps of_one_rank() {
  DomainSteps all;
  REQUIRE(run(RunOptions{.ranks = 1}, [&](World& world) {
            SingleDevice<Model> model(world.device(), {});
            all = train(model, batch_of({0, 1}, {rows, 1, 0}, {columns, 1, 0}));
          }) == 0);
  return all;
}

std::vector<std::size_t> places_of(const weft::detail::Runs& runs) {
  std::vector<std::size_t> places;
  for (const auto& run : runs) places.insert(places.end(), {run.local, run.global, run.length});
  return places;
}

template <class M, class A>
void check(A, int ranks, const Degrees& degrees, const DomainSteps& reference, const ModelOptions& options = {}) {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
          const Mesh mesh(world, A(), degrees);
          const auto piece = [&]<class B>(B axis, std::size_t whole) {
            if constexpr (A::template has<B>) return UnevenPiece(whole, mesh.size(axis), mesh.rank(axis));
            else return UnevenPiece(whole, 1, 0);
          };
          const UnevenPiece x = piece(dx{}, rows), y = piece(dy{}, columns);
          M model(mesh, {}, options);
          model.for_each_state([&](ParameterState& state) {  // all ranks can compute the elements that this one keeps
            std::size_t kept = 0;
            const auto pieces = weft::detail::pieces_of(state, mesh.grids(), std::size_t(world.rank()));
            for (const auto& holder : pieces.holders) {
              if (holder.rank != std::size_t(world.rank())) continue;
              CHECK(places_of(pieces.of(holder)) == places_of(state.runs()));
              kept = state.kept();
            }
            CHECK(kept == state.kept());
          });
          const double worst = domain_difference(train(model, batch_of(data::share_of(mesh), x, y)), reference);
          const std::lock_guard lock(mutex);
          INFO(mesh.text(), ": ", worst);
          CHECK(worst < 1e-13);
        }) == 0);
}

}  // namespace

TEST_CASE("a model over domain axes equals one rank") {
  const DomainSteps reference = of_one_rank();
  check<DataParallel<DomainParallel<Model, dx, dy>>>(axes<dp, dx, dy>, 4, {.dx = 2, .dy = 2}, reference);
  check<DataParallel<DomainParallel<Model, dx, dy>>>(axes<dp, dx, dy>, 4, {.dx = 1, .dy = 4}, reference);
  check<DataParallel<DomainParallel<Model, dx, dy>>>(axes<dp, dx, dy>, 8, {.dp = 2, .dx = 4, .dy = 1}, reference);
}
TEST_CASE("beside tensor parallelism and sharded state") {
  using Sharded = FullyShardedDataParallel<TensorParallel<DomainParallel<Model, dx>>>;
  check<Sharded>(axes<dp, tp, dx>, 8, {.tp = 2, .dx = 2}, of_one_rank(), {.shard = {.stage = 3}});
}

TEST_CASE("ranks of domain axes share the state of data ranks") {
  const DomainSteps reference = of_one_rank();
  using Sharded = FullyShardedDataParallel<DomainParallel<Model, dx, dy>>;
  ModelOptions options{.shard = {.stage = 2, .over_domain = true}};
  for (options.shard.stage = 1; options.shard.stage <= 3; ++options.shard.stage) {
    check<Sharded>(axes<dp, dx, dy>, 4, {.dx = 2, .dy = 2}, reference, options);
    check<Sharded>(axes<dp, dx, dy>, 4, {.dp = 2, .dy = 2}, reference, options);
  }
  // Two copies, each among the ranks of one field; then four, between which each sum over copies runs along dp and dx.
  check<Sharded>(axes<dp, dx, dy>, 8, {.dp = 2, .dx = 2, .dy = 2}, reference,
                 {.shard = {.stage = 3, .replicate = 2, .over_domain = true}});
  check<Sharded>(axes<dp, dx, dy>, 8, {.dp = 2, .dx = 2, .dy = 2}, reference,
                 {.shard = {.stage = 2, .replicate = 4, .over_domain = true}});
  using Inside = FullyShardedDataParallel<TensorParallel<DomainParallel<Model, dx>>>;
  check<Inside>(axes<dp, tp, dx>, 8, {.tp = 2, .dp = 2, .dx = 2}, reference, {.shard = {.stage = 3, .over_domain = true}});
}

TEST_CASE("state that ranks of domain axes share is saved and loaded in other layouts") {
  const DomainSteps reference = of_one_rank();
  const weft_test::TemporaryFolder folder;
  using Sharded = FullyShardedDataParallel<DomainParallel<Model, dx, dy>>;
  const auto train_in = [&](int ranks, const Degrees& degrees, const ModelOptions& options, bool saves) {
    CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
            const Mesh mesh(world, axes<dp, dx, dy>, degrees);
            Sharded model(mesh, {}, options);
            optim::AdamW step(model, {.learning_rate = 1e-2});
            const auto batch = batch_of(data::share_of(mesh), UnevenPiece(rows, mesh.size(dx{}), mesh.rank(dx{})),
                                        UnevenPiece(columns, mesh.size(dy{}), mesh.rank(dy{})));
            if (saves) {
              for (int i = 0; i < 2; ++i) model.train_step(batch), step.step();
              checkpoint::save(folder.path.string(), model, step, 2);
              return;
            }
            CHECK(checkpoint::load(folder.path.string(), model, step) == 2);
            const double loss = model.train_step(batch);  // the third step of one rank
            DomainSteps third{{loss}, {}, {}}, expected{{reference.losses[4]}, {}, {}};
            constexpr std::size_t count = std::size(names);
            for (std::size_t p = 0; p < count; ++p) {
              third.gradients.push_back(model.gradient(names[p]));
              expected.gradients.push_back(reference.gradients[2 * count + p]);
            }
            CHECK(domain_difference(third, expected) < 1e-13);
          }) == 0);
  };
  train_in(4, {.dx = 2, .dy = 2}, {.shard = {.stage = 2, .over_domain = true}}, true);
  train_in(4, {.dp = 2, .dx = 2}, {.shard = {.stage = 3}}, false);
  train_in(8, {.dp = 2, .dx = 2, .dy = 2}, {.shard = {.stage = 1, .replicate = 2, .over_domain = true}}, false);
  train_in(4, {.dp = 2, .dy = 2}, {.shard = {.stage = 3, .over_domain = true}}, false);
}

TEST_CASE("options that do not go with shared state are refused") {
  const auto refused = [](const ModelOptions& options) {
    std::mutex mutex;
    std::string found;
    CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
            const Mesh mesh(world, axes<dp, dx>, {.dx = 2});
            try {
              FullyShardedDataParallel<DomainParallel<Model, dx>> model(mesh, {}, options);
            } catch (const UsageError& error) {
              const std::lock_guard lock(mutex);
              found = error.what();
            }
          }) == 0);
    return found;
  };
  CHECK(refused({.shard = {.stage = 1, .over_domain = true}}) == "");
  CHECK(refused({.shard = {.stage = 0, .over_domain = true}})
            .starts_with("weft: ModelOptions: shard.replicate, shard.over_domain"));
  CHECK(refused({.shard = {.stage = 1, .over_domain = true}, .numerics = {.recheck_every = 1}})
            .starts_with("weft: ModelOptions: shard.over_domain sums gradients over data ranks and domain axes at once"));
}

TEST_CASE("copies of shared state that differ are found, also between ranks of a domain axis") {
  using Sharded = FullyShardedDataParallel<DomainParallel<Model, dx>>;
  std::mutex mutex;
  std::string found;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          const Mesh mesh(world, axes<dp, dx>, {.dx = 4});
          Sharded model(mesh, {}, {.shard = {.stage = 1, .replicate = 2, .over_domain = true}});
          model.require_equal_parameters();
          model.for_each_state([&](ParameterState& state) {
            if (world.rank() == 3 && state.kept() != 0) static_cast<double*>(state.value().get())[0] += 1;
          });
          try {
            model.require_equal_parameters();
          } catch (const Error& error) {
            const std::lock_guard lock(mutex);
            found = error.what();
          }
        }) == 0);
  CHECK_MESSAGE(found.find("on dx rank 3") != std::string::npos, found);
}

namespace {

// The piece [first, first + count) of the rows and columns of [samples, channels, rows, columns].
std::vector<double> piece_of(const std::vector<double>& whole, std::size_t first, std::size_t count, const UnevenPiece& x,
                             const UnevenPiece& y) {
  std::vector<double> piece;
  for (std::size_t image = first * channels; image < (first + count) * channels; ++image)
    for (std::size_t i = x.first; i < x.end(); ++i)
      for (std::size_t j = y.first; j < y.end(); ++j) piece.push_back(whole[(image * rows + i) * columns + j]);
  return piece;
}
/// The predictions of M are those of one rank: whole, of the share, and the piece of each rank.
template <class M, class A>
void check_predictions(A, int ranks, const Degrees& degrees, const std::vector<double>& expected) {
  REQUIRE(expected.size() == samples * channels * rows * columns);
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
          const Mesh mesh(world, A(), degrees);
          const auto piece = [&]<class B>(B axis, std::size_t whole) {
            if constexpr (A::template has<B>)
              return UnevenPiece(whole, std::size_t(mesh.size(axis)), std::size_t(mesh.rank(axis)));
            else return UnevenPiece(whole, 1, 0);
          };
          const UnevenPiece x = piece(dx{}, rows), y = piece(dy{}, columns);
          const data::Share share = data::share_of(mesh);
          const std::size_t here = samples / share.size, first = here * share.rank;
          auto batch = batch_of(share, x, y);
          batch.micro_batches = 2;
          M model(mesh, {});
          const auto check = [&](Gather gather, const Shape& shape, const std::vector<double>& wanted) {
            const Prediction found = model.predict(batch, gather);
            double worst = 0;
            const std::lock_guard lock(mutex);
            REQUIRE(found.shape == shape);
            REQUIRE(found.values.size() == wanted.size());
            for (std::size_t i = 0; i < wanted.size(); ++i) worst = std::max(worst, std::abs(found.values[i] - wanted[i]));
            CHECK_MESSAGE(worst < 1e-13, mesh.text(), ": ", worst);
          };
          const UnevenPiece all_rows(rows, 1, 0), all_columns(columns, 1, 0);
          check(Gather::whole, {samples, channels, rows, columns}, expected);
          check(Gather::share, {here, channels, rows, columns}, piece_of(expected, first, here, all_rows, all_columns));
          check(Gather::piece, {here, channels, x.count, y.count}, piece_of(expected, first, here, x, y));
        }) == 0);
}

}  // namespace

TEST_CASE("predictions of cut fields: whole on every rank, or each rank's piece, of even and uneven pieces") {
  const auto whole = batch_of({0, 1}, {rows, 1, 0}, {columns, 1, 0});
  DefaultDevice device;
  SingleDevice<Model> one(device, {});
  const std::vector<double> expected = one.predict(whole).values;
  using Plane = DomainParallel<Model, dx, dy>;
  check_predictions<Plane>(axes<dx, dy>, 2, {.dy = 2}, expected);  // 5 and 5 columns
  check_predictions<Plane>(axes<dx, dy>, 2, {.dx = 2}, expected);  // 5 and 4 rows
  check_predictions<Plane>(axes<dx, dy>, 4, {.dx = 2, .dy = 2}, expected);
  check_predictions<DataParallel<TensorParallel<Plane>>>(axes<dp, tp, dx, dy>, 8, {.tp = 2, .dx = 2}, expected);
}

TEST_CASE("outputs whose pieces do not fit together are refused") {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Shape shape{2, 3 + std::size_t(world.rank())};
          std::vector<double> values(shape.size());
          std::string found;
          try {
            weft::detail::gather_pieces(world.communicator(), "dx", 0, 1, shape, values);
          } catch (const ShapeError& error) {
            found = error.what();
          }
          const std::lock_guard lock(mutex);
          CHECK(
              found ==
              "weft: predict: the outputs are [2, 3] on dx rank 0 and [2, 4] on dx rank 1: pieces that are gathered differ only "
              "in dim 0");
        }) == 0);
}

TEST_CASE("ranks of domain axes are next to each other, the last one fastest") {
  CHECK(run(RunOptions{.ranks = 8}, [](World& world) {
          const Mesh mesh(world, axes<dp, dx, dy>, {.dx = 2, .dy = 2});
          CHECK(world.rank() == (mesh.rank(dp{}) * 2 + mesh.rank(dx{})) * 2 + mesh.rank(dy{}));
          const Mesh inside(world, axes<dp, tp, dx>, {.tp = 2, .dx = 2});
          CHECK(world.rank() == (inside.rank(dp{}) * 2 + inside.rank(dx{})) * 2 + inside.rank(tp{}));
        }) == 0);
}

TEST_CASE("bits that do not depend on the layout are refused, and different batches of one share") {
  const auto same = [](std::size_t, Model::Batch&) {};
  const auto refused = [](const ModelOptions& options, auto change, const std::string& text) {
    std::mutex mutex;
    std::string found;
    CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
            const Mesh mesh(world, axes<dp, dx>, {.dx = 2});
            auto batch = batch_of({0, 1}, UnevenPiece(rows, 2, mesh.rank(dx{})), {columns, 1, 0});
            change(std::size_t(world.rank()), batch);
            try {
              DataParallel<DomainParallel<Model, dx>> model(mesh, {}, options);
              model.train_step(batch);
            } catch (const Error& error) {
              const std::lock_guard lock(mutex);
              if (found.empty() || std::string(error.what()).find(text) != std::string::npos) found = error.what();
              throw;
            }
          }) != 0);
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
  };
  refused({.numerics = {.reproducible = true}}, same, "reproducible: dx(2) is a domain axis");
  refused(
      {}, [](std::size_t rank, Model::Batch& batch) { batch.first_sample = 3 * rank; },
      "first_sample is 0 on dx rank 0 and 3 on dx rank 1");
  refused(
      {}, [](std::size_t rank, Model::Batch& batch) { batch.choice = 1 + rank; },  // two reservoirs that drew different samples
      "batch: the choice of samples on dx rank 1 is not dx rank 0's: the 2 ranks of dx work on one share");
  refused(
      {},
      [](std::size_t rank, Model::Batch& batch) {
        batch[state].resize(samples, {channels, 4, 10 - 2 * rank});
      },
      "batch: field state has the extent 10 in dim 3 of [samples, ...] on dx rank 0 and 8 on dx rank 1: dx does not cut this "
      "dim, so its ranks have pieces of one extent there");
  // Only one rank's target has other extents; its error is not taken for one of few samples.
  refused(
      {},
      [](std::size_t rank, Model::Batch& batch) {
        batch[next].resize(samples, {channels, 5 - rank - rank, columns});
      },
      "mse([");
}
