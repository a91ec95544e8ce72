// SPDX-License-Identifier: Apache-2.0
// covers: weft/engine/parameter_cut.hpp
// The pieces of all ranks, computed on each rank without communication, equal those that the ranks keep.

#include <weft/engine/parameter_cut.hpp>
#include <weft/engine/parameter_pieces.hpp>

#include "support/matrix.hpp"

#include <tuple>

using namespace weft_test;

namespace {

using Places = std::vector<std::tuple<std::size_t, std::size_t, std::size_t>>;  // local, global, length
Places places_of(const weft::detail::Runs& runs) {
  Places places;
  for (const auto& run : runs) places.push_back({run.local, run.global, run.length});
  return places;
}

using ByRank = std::map<std::size_t, Places>;
struct Said {  // by one rank of a stage
  std::string name;
  std::size_t stage = 0;
  ByRank all = {};
};

struct Layout {
  std::size_t world;
  Degrees degrees;
  int stage = 0;
  std::size_t replicate = 1;
  std::string_view order = mesh_layout::RankOrder::standard;
};

template <class Composition, class Grid>
void check_pieces(const typename Composition::Config& config, const std::vector<Layout>& layouts) {
  for (const Layout& layout : layouts) {
    INFO("world " << layout.world << ", tp " << layout.degrees.tp << ", cp " << layout.degrees.cp << ", pp " << layout.degrees.pp
                  << ", ep " << layout.degrees.ep << ", etp " << layout.degrees.etp << ", stage " << layout.stage
                  << ", replicate " << layout.replicate << ", order " << std::string(layout.order));
    std::mutex mutex;
    std::map<std::string, std::map<std::size_t, ByRank>> kept;  // by name and stage
    std::vector<Said> said;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
            const Grid mesh(world, layout.degrees, mesh_layout::RankOrder(layout.order));
            Composition model(mesh, config, {.shard = {.stage = layout.stage, .replicate = layout.replicate}});
            const std::size_t rank = std::size_t(world.rank()), stage = std::size_t(mesh.rank(pp{}));
            const std::lock_guard lock(mutex);
            model.for_each_state([&](ParameterState& state) {
              if (state.kept() != 0) kept[state.name()][stage][rank] = places_of(state.runs());
              const auto pieces = weft::detail::pieces_of(state, model.grids(), rank);
              Said& here = said.emplace_back(Said{state.name(), stage});
              for (const auto& holder : pieces.holders) here.all[holder.rank] = places_of(pieces.of(holder));
            });
          }) == 0);
    REQUIRE(!said.empty());
    for (const Said& one : said) CHECK_MESSAGE(one.all == kept[one.name][one.stage], one.name);
  }
}

}  // namespace

TEST_CASE("stages of ZeRO, tp, cp, pp, heads that several ranks hold, a padded vocabulary, orders of ranks") {
  models::GptConfig config = gpt_config();
  config.vocabulary = 61;
  config.heads = 4, config.kv_heads = 2;
  check_pieces<FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<models::BasicGpt<float>>>>>,
               Mesh<dp, cp, tp, pp>>(config, {{1, {}},
                                              {2, {}, 0},
                                              {3, {}, 1},
                                              {4, {}, 3},
                                              {4, {}, 3, 2},
                                              {2, {.tp = 2}},
                                              {4, {.tp = 4}},
                                              {4, {.tp = 2}, 2},
                                              {8, {.tp = 4}, 3},
                                              {2, {.cp = 2}, 1},
                                              {8, {.tp = 2, .cp = 2}, 3},
                                              {8, {.tp = 2, .pp = 2}, 3},
                                              {8, {.tp = 2, .pp = 2}, 1, 2},
                                              {8, {.tp = 2, .pp = 2}, 3, 1, "pp-dp-cp-ep-tp"}});
}
TEST_CASE("experts over ep and etp") {
  check_pieces<FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::BasicMixtral<float>>>>>,
               ExpertMesh>(mixtral_config(), {{2, {.ep = 2}},
                                              {4, {.ep = 2}, 3},
                                              {4, {.ep = 4}, 1},
                                              {4, {.tp = 2, .ep = 2, .etp = 2}, 1},
                                              {4, {.ep = 2, .pp = 2}, 3},
                                              {8, {.tp = 2, .ep = 2}, 3}});
}
