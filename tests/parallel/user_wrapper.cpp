// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/policies.hpp weft/parallel/policy_check.hpp
// User-defined wrappers over user-defined axes, compared with one rank: alone and combined with weft's wrappers, in every
// position.
#include <doctest/doctest.h>

#include <weft/parallel/policies.hpp>
#include <weft/parallel/policy_check.hpp>
#include <weft/parallel/user_wrapper.hpp>
#include <weft/weft.hpp>

#include "support/parity.hpp"

using namespace weft;
using namespace weft_test;

namespace {

// As in docs/guide.md.
struct replica : weft::UserDataAxis<0> {
  static constexpr std::string_view name = "replica";
};

struct SumReplicas : weft::UserPolicy<replica, weft::Nesting::data> {
  void gradients_ready(Unit& unit) override {
    for (weft::ParameterState* state : unit.parameters)
      if (state->take_unreduced(replica{})) state->gradient_span([&](auto gradient) { comm().all_reduce(gradient); });
  }
};
template <class M>
using ReplicaParallel = weft::UserWrapper<SumReplicas, M>;

/// Ranks that compute the same results, and compare them.
struct twin : UserAxis<1> {
  static constexpr std::string_view name = "twin";
};
struct CompareTwins : UserPolicy<twin, Nesting::tensor> {
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters) {
      CHECK(!state->take_unreduced(twin{}));
      state->gradient_span([&](auto gradient) {
        std::vector<double> most(gradient.begin(), gradient.end()), least = most;
        comm().all_reduce(most, Reduction::max);
        comm().all_reduce(least, Reduction::min);
        if (most != least) throw Error("twins differ in " + state->name());
      });
    }
  }
};
template <class M>
using TwinParallel = UserWrapper<CompareTwins, M>;

constexpr double tolerance = 1e-10;

template <class Composition, class Axes>
void check(Axes, int ranks, const Degrees& degrees, const typename Composition::Config& config, const Reference& reference,
           const ModelOptions& options = {}, std::size_t micro_batches = 1) {
  CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
          const Mesh mesh(world, Axes(), degrees);
          const data::Share share = data::share_of(mesh);
          const Difference found = compare<Composition>(mesh, share.rank, share.size, micro_batches, config, reference, options);
          INFO(mesh.text() << ": " << found.worst);
          CHECK(found.compared > 0);
          CHECK(found.largest() <= tolerance);
        }) == 0);
}

using Gpt = models::BasicGpt<double>;

}  // namespace

TEST_CASE("a data axis of a user's own equals one rank, alone and beside weft's") {
  const auto config = gpt_config();
  const Reference reference = reference_of<Gpt>(config);
  check<ReplicaParallel<Gpt>>(axes<replica>, 2, {.user = {{replica{}, 2}}}, config, reference);
  check<ReplicaParallel<Gpt>>(axes<replica>, 1, {}, config, reference, {}, 4);
  using Deep = DataParallel<ReplicaParallel<TensorParallel<PipelineParallel<Gpt>>>>;
  check<Deep>(axes<dp, replica, tp, pp>, 8, {.tp = 2, .user = {{replica{}, 2}}}, config, reference);
  check<Deep>(axes<dp, replica, tp, pp>, 8, {.tp = 2, .dp = 1, .pp = 2, .user = {{replica{}, 2}}}, config, reference, {}, 2);
  for (const bool each : {false, true})  // the wrapper has its turn after the last micro-batch, or after each
    check<FullyShardedDataParallel<ReplicaParallel<Gpt>>>(axes<replica, dp>, 4, {.user = {{replica{}, 2}}}, config, reference,
                                                          {.shard = {.reduce_each_micro_batch = each}}, 2);
  check<ReplicaParallel<ContextParallel<Gpt>>>(axes<replica, cp>, 4, {.cp = 2, .user = {{replica{}, 2}}}, config, reference);
}

TEST_CASE("beside an axis whose ranks compute the same") {
  const auto config = gpt_config();
  const Reference reference = reference_of<Gpt>(config);
  check<ReplicaParallel<SequenceParallel<TwinParallel<PipelineParallel<Gpt>>>>>(
      axes<replica, tp, twin, pp>, 8, {.tp = 2, .user = {{replica{}, 2}, {twin{}, 2}}}, config, reference);
}

TEST_CASE("experts lie on their own mesh beside it") {
  const models::MixtralConfig config{.vocabulary = batch_vocabulary,
                                     .layers = 2,
                                     .width = 32,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .intermediate = 24,
                                     .sequence = batch_length,
                                     .experts = 4,
                                     .top_k = 2};
  using Mixtral = models::BasicMixtral<double>;
  const Reference reference = reference_of<Mixtral>(config);
  check<DataParallel<ReplicaParallel<ExpertParallel<Mixtral>>>>(axes<dp, replica, ep, etp, edp>, 4,
                                                                {.ep = 2, .user = {{replica{}, 2}}}, config, reference);
}

namespace {

// Does nothing.
struct Idle : UserPolicy<replica, Nesting::data> {};
// Claims to sum, but does not.
struct Forgetful : UserPolicy<replica, Nesting::data> {
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters) (void)state->take_unreduced(replica{});
  }
};

template <class F>
std::string text_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
template <class Composition, class Axes>
std::string refusal(Axes, int ranks, const Degrees& degrees, const ModelOptions& options = {}) {
  std::string text;
  (void)runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    const std::string mine = text_of([&] {
      const Mesh mesh(world, Axes(), degrees);
      Composition model(mesh, gpt_config(), options);
      const data::Share share = data::share_of(mesh);
      model.train_step(make_batch(0, share.rank, share.size, 1));
    });
    if (world.rank() == 0) text = mine;
  });
  return text;
}

}  // namespace

TEST_CASE("mistakes are named") {
  CHECK(refusal<UserWrapper<Idle, Gpt>>(axes<replica>, 2, {.user = {{replica{}, 2}}})
            .find("is still unreduced over replica after the step: no wrapper sums it") != std::string::npos);
  CHECK(refusal<DataParallel<UserWrapper<Idle, Gpt>>>(axes<dp, replica>, 2, {.user = {{replica{}, 2}}})
            .find("is to be summed over dp while it is unreduced over replica: no wrapper sums it") != std::string::npos);
  CHECK(refusal<ReplicaParallel<Gpt>>(axes<replica>, 2, {.user = {{replica{}, 3}}}) ==
        "weft: replica(3) != world(2): this mesh has no axis dp to take what is left");
  CHECK(refusal<ReplicaParallel<Gpt>>(axes<replica>, 2, {.user = {{replica{}, 2}}}, {.numerics = {.reproducible = true}}) ==
        "weft: reproducible: replica(2) is a data axis of a user's own, and the order of sums is known over dp alone: use dp in "
        "its place, or leave reproducible out");
}

namespace {

/// Samples sharded over a user-defined axis, so that gradients are sums over it.
struct SumTwins : UserPolicy<twin, Nesting::tensor> {
  void gradients_ready(Unit& unit) override {
    for (ParameterState* state : unit.parameters)
      if (state->take_unreduced(twin{})) state->gradient_span([&](auto gradient) { comm().all_reduce(gradient); });
  }
};
inline constexpr data::Field<"x", double> cut_field;
struct Cut : Module<Cut> {
  using scalar = double;
  struct Config {};
  using Batch = FieldBatch<cut_field>;
  Parameter<> w;
  Cut(const auto& context, const Config&) : w(context, "w", {3, 4}, normal(0.5)) {}
  auto loss(const auto& batch) const {
    auto x = to<Shard<twin, 0>>(batch[cut_field]);
    return sum_losses(sum<1>(square(to<Invariant<twin>>(matmul(x, w)))));
  }
};

}  // namespace

TEST_CASE("reproducible is refused for gradients that are sums over an axis of a user's own, and only for these") {
  for (const bool reproducible : {false, true})
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            const ModelOptions options{.numerics = {.reproducible = reproducible}};
            Cut::Batch batch{.samples = 4};
            auto values = batch[cut_field].resize(4, {4});
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1 * double(i);
            SingleDevice<Cut> one(world.device(), {});
            one.train_step(batch);
            const Mesh mesh(world, axes<twin>, {.user = {{twin{}, 2}}});
            UserWrapper<SumTwins, Cut> model(mesh, {}, options);
            const std::string text = text_of([&] { model.train_step(batch); });
            if (reproducible) {
              CHECK_MESSAGE(
                  text.starts_with("weft: reproducible: the gradient of w is a sum over twin(2), an axis of a user's own"), text);
            } else {
              CHECK(text == "");
              const auto found = model.gradient("w"), expected = one.gradient("w");
              for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-12));
            }
          }) == 0);
  CHECK(refusal<TwinParallel<Gpt>>(axes<twin>, 2, {.user = {{twin{}, 2}}}, {.numerics = {.reproducible = true}}) == "");
}

TEST_CASE("a sum that is taken and not made is another gradient") {
  const auto config = gpt_config();
  const Reference reference = reference_of<Gpt>(config);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          const Mesh mesh(world, axes<replica>, {.user = {{replica{}, 2}}});
          CHECK(compare<UserWrapper<Forgetful, Gpt>>(mesh, std::size_t(mesh.rank(replica{})), 2, 1, config, reference,
                                                     {.numerics = {.compare_every = 0}})
                    .gradient > 0.01);
        }) == 0);
}

TEST_CASE("ranks lie after dp, and before pp") {
  CHECK(runtime::run(runtime::RunOptions{.ranks = 8}, [&](World& world) {
          const Mesh mesh(world, axes<pp, replica, dp>, {.pp = 2, .user = {{replica{}, 2}}});
          CHECK(mesh.text() == "dp(2) * replica(2) * pp(2)");
          CHECK(mesh.rank(replica{}) == world.rank() / 2 % 2);
          CHECK(mesh.size(dp{}, replica{}) == 4);
          CHECK_THROWS_WITH_AS((Mesh<dp>(world, Degrees{.user = {{replica{}, 2}}})),
                               "weft: replica(2): this mesh has no axis replica, its axes are dp", LayoutError);
        }) == 0);
}
