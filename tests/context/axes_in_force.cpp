// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/step_batch.hpp weft/pipeline/model_facts.hpp weft/pipeline/stages_of.hpp
// covers: weft/pipeline/model_builder.hpp weft/pipeline/typed_unit.hpp
// The engine's view of a context and of a model: the axes of each without their types, and the facts of each kind of model.

#include <weft/context/axes_in_force.hpp>
#include <weft/pipeline/model_batch.hpp>
#include <weft/pipeline/model_builder.hpp>
#include <weft/pipeline/model_facts.hpp>
#include <weft/pipeline/stages_of.hpp>
#include <weft/pipeline/step_batch.hpp>
#include <weft/pipeline/typed_unit.hpp>

#include <doctest/doctest.h>

#include "support/field_models.hpp"

using namespace weft_test;

namespace {
using Exec = DefaultDevice::execution_space;
struct replica : UserDataAxis<0> {
  static constexpr std::string_view name = "replica";
};

std::vector<std::string> names_of(const detail::AxesInForce& axes) {
  std::vector<std::string> names;
  axes.for_each([&](const detail::AxesInForce::One& axis) { names.emplace_back(axis.name); });
  return names;
}

template <class F>
void on_ranks(int ranks, const F& f) {
  CHECK(run<comm::Threads>(RunOptions{.ranks = ranks}, f) == 0);
}

// A Stages has no template on a model or a context: one class for all models.
static_assert(std::is_base_of_v<detail::Stages, detail::StagesOf<models::Gpt>>);
static_assert(std::is_base_of_v<detail::Stages, detail::StagesOf<models::Llama>>);
}  // namespace

TEST_CASE("axes in force: degrees and ranks of those that are there, 1 and 0 of the others") {
  on_ranks(4, [](World& world) {
    const Mesh<dp, tp, replica> mesh(world, {.tp = 2, .user = {{replica{}, 2}}});
    const Context<Compute<Exec, float>, Bind<replica>, Bind<dp>, Bind<tp>> context(
        world.device(), detail::Environment(), {mesh.comm(replica{})}, {mesh.comm(dp{})}, {mesh.comm(tp{})});
    const detail::AxesInForce axes(context);
    CHECK(names_of(axes) == std::vector<std::string>{"replica", "dp", "tp"});
    CHECK(axes.has(tp{}));
    CHECK_FALSE(axes.has(pp{}));
    CHECK(axes.size(tp{}) == 2);
    CHECK(axes.size(dp{}) == 1);
    CHECK(axes.size(pp{}) == 1);
    CHECK(axes.rank(tp{}) == std::size_t(mesh.rank(tp{})));
    CHECK(axes.rank(replica{}) == std::size_t(mesh.rank(replica{})));
    CHECK(axes.rank(cp{}) == 0);
    CHECK(axes.comm(pp{}).size() == 1);  // this rank alone
    int sum = 1;
    axes.comm(tp{}).all_reduce(std::span(&sum, 1));
    CHECK(sum == 2);
    // The data axes are dp and the user's own.
    int ranks = 1, communicators = 0;
    axes.for_each_data_axis([&](const Communicator& data) {
      ++communicators;
      data.all_reduce(std::span(&ranks, 1));
    });
    CHECK(communicators == 2);
    CHECK(ranks == 2);
  });
}

TEST_CASE("axes of the expert mesh are in force and place no tensor of the dense mesh") {
  on_ranks(2, [](World& world) {
    const Mesh<dp, ep, etp, edp> mesh(world, {.ep = 2});
    const Context<Compute<Exec, float>, Bind<dp>, Bind<ep, detail::ExpertMeshAxis>> context(world.device(), detail::Environment(),
                                                                                            {mesh.comm(dp{})}, {mesh.comm(ep{})});
    const detail::AxesInForce axes(context);
    CHECK(names_of(axes) == std::vector<std::string>{"dp"});
    CHECK(axes.size(ep{}) == 2);
    CHECK(axes.has(ep{}));
    CHECK_FALSE(axes.has(etp{}));
  });
}

TEST_CASE("facts of a recipe and of a Module, and the axes of their losses") {
  on_ranks(2, [](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    const Context<Compute<Exec, float>, Bind<dp>, Bind<tp>> context(world.device(), detail::Environment(), {mesh.comm(dp{})},
                                                                    {mesh.comm(tp{})});
    const detail::ModelFacts recipe = detail::facts_of<models::Gpt>(context);
    CHECK(recipe.recipe);
    CHECK(recipe.module == nullptr);
    CHECK_FALSE(recipe.one_unit);
    CHECK(recipe.scalar_bytes == 4);
    REQUIRE(recipe.loss.summed.size() == 1);  // each data rank has a term
    CHECK(recipe.loss.summed[0].axis() == "dp");
    REQUIRE(recipe.loss.same.size() == 1);
    CHECK(recipe.loss.same[0].axis() == "tp");
    // Ranks with other bits on an axis on which the loss is whole are refused.
    const std::vector<double> losses{1.5 + double(world.rank())};
    CHECK_THROWS_AS(recipe.loss.require_same(losses), UsageError);
    CHECK_NOTHROW(recipe.loss.require_same(std::vector<double>{1.5}));

    const detail::ModelFacts module = detail::facts_of<MlpModule>(context);
    CHECK_FALSE(module.recipe);
    CHECK(module.module == &detail::layer_kind<MlpModule>);
    CHECK(module.one_unit);
  });
}
