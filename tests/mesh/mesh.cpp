// SPDX-License-Identifier: Apache-2.0
// covers: weft/mesh/axis.hpp weft/mesh/world.hpp
// Meshes over thread ranks: sizes, places and members of every communicator against the groups of the rank order.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <weft/mesh/axis.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/mesh/world.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

/// Runs f on this many thread ranks. A throwing rank fails the run, so results are collected and compared outside.
int on_ranks(int ranks, auto f) { return weft::run<comm::Threads>({.ranks = ranks, .deadline_s = 20, .threads_per_rank = 1}, f); }

/// The members of the communicator, by asking them.
std::vector<std::size_t> members(const World& world, const Communicator& comm) {
  std::vector<int> mine = {world.rank()}, all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(mine, all);
  return {all.begin(), all.end()};
}

bool is_group(const mesh_layout::RankGroups& groups, const std::vector<std::size_t>& ranks) {
  return std::find(groups.begin(), groups.end(), ranks) != groups.end();
}

std::string refusal(int ranks, auto make) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](World& world) {
    try {
      make(world);
    } catch (const LayoutError& error) {
      texts[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  for (const auto& text : texts) CHECK(text == texts[0]);  // the same on every rank
  return texts[0];
}

template <class M, class... B>
concept CanComm = requires(const M& mesh) {
  mesh.comm(B{}...);
};

}  // namespace

static_assert(CanComm<Mesh<dp, tp>, tp> && CanComm<Mesh<dp, tp>, dp, tp> && !CanComm<Mesh<dp, tp>, pp> &&
              !CanComm<Mesh<dp, tp>, tp, pp>);
static_assert(!CanComm<Mesh<dp, ep, edp>, dp, ep>, "dense and expert axes have no common communicator");
static_assert(CanComm<Mesh<dp, ep, edp, pp>, ep, edp, pp>);
static_assert(Mesh<dp, tp>::has(tp{}) && !Mesh<dp, tp>::has(cp{}));

TEST_CASE("dense meshes on 1, 2, 4 and 8 ranks") {
  for (const int ranks : {1, 2, 4, 8})
    for (const std::size_t t : {1, 2, 4})
      for (const std::size_t p : {1, 2, 4})
        for (const char* order : {"tp-cp-ep-dp-pp", "pp-dp-tp", "dp-tp-pp"}) {
          if (std::size_t(ranks) % (t * p) != 0) continue;
          const mesh_layout::RankGrids grids =
              mesh_layout::rank_grids(mesh_layout::RankOrder(order), std::size_t(ranks), {.tp = t, .etp = t, .pp = p});
          std::atomic<int> wrong = 0;
          const int code = on_ranks(ranks, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, {.tp = t, .pp = p}, mesh_layout::RankOrder(order));
            wrong += mesh.size(tp{}) != int(t) || mesh.size(pp{}) != int(p) || mesh.size(dp{}) != int(ranks / int(t * p));
            wrong += mesh.size(tp{}, pp{}) != int(t * p) || mesh.size() != 1 || mesh.rank() != 0;
            wrong += mesh.comm(tp{}).rank() != mesh.rank(tp{}) || mesh.comm(tp{}).size() != mesh.size(tp{});
            wrong += mesh.comm(dp{}).axis() != "dp" || mesh.comm(pp{}).axis() != "pp";
            wrong += !is_group(grids.dense.groups({"tp"}), members(world, mesh.comm(tp{})));
            wrong += !is_group(grids.dense.groups({"dp"}), members(world, mesh.comm(dp{})));
            wrong += !is_group(grids.dense.groups({"pp"}), members(world, mesh.comm(pp{})));
            wrong += !is_group(grids.dense.groups({"dp", "tp"}), members(world, mesh.comm(dp{}, tp{})));
            wrong += &mesh.comm(dp{}, tp{}) != &mesh.comm(tp{}, dp{});  // made once
            wrong += !is_group(grids.dense.groups({"tp", "pp"}), members(world, mesh.comm(pp{}, tp{})));
            wrong += !is_group(grids.dense.groups({"tp", "pp", "dp"}), members(world, mesh.comm(pp{}, tp{}, dp{})));
          });
          CHECK(code == 0);
          CHECK(wrong == 0);
        }
}

TEST_CASE("a dense and an expert mesh over one world") {
  const mesh_layout::RankGrids grids =
      mesh_layout::rank_grids(mesh_layout::RankOrder(), 8, {.tp = 2, .cp = 2, .ep = 2, .etp = 1, .pp = 2});
  std::atomic<int> wrong = 0;
  const int code = on_ranks(8, [&](World& world) {
    Mesh mesh(world, axes<dp, cp, tp, pp, ep, etp, edp>, {.tp = 2, .cp = 2, .ep = 2, .pp = 2});
    wrong += mesh.size(dp{}) != 1 || mesh.size(edp{}) != 2 || mesh.size(ep{}) != 2 || mesh.size(etp{}) != 1;
    wrong += !is_group(grids.expert.groups({"ep"}), members(world, mesh.comm(ep{})));
    wrong += !is_group(grids.expert.groups({"edp"}), members(world, mesh.comm(edp{})));
    wrong += !is_group(grids.expert.groups({"ep", "edp"}), members(world, mesh.comm(edp{}, ep{})));
    wrong += !is_group(grids.dense.groups({"cp", "dp"}), members(world, mesh.comm(dp{}, cp{})));
    wrong += !is_group(grids.dense.groups({"pp"}), members(world, mesh.comm(pp{})));
    wrong += !is_group(grids.expert.groups({"pp"}), members(world, mesh.comm(pp{})));
    wrong += mesh.text() != "tp(2) * cp(2) * dp(1) * pp(2) * etp(1) * ep(2) * edp(2)";
    Mesh<ep, edp> expert(world, {.ep = 4});  // only experts
    wrong += expert.size(edp{}) != 2 || expert.comm(ep{}).size() != 4;
  });
  CHECK(code == 0);
  CHECK(wrong == 0);
}

TEST_CASE("sub-meshes share the communicators") {
  std::atomic<int> wrong = 0;
  const int code = on_ranks(8, [&](World& world) {
    const Mesh mesh(world, axes<dp, tp, pp>, {.tp = 2, .pp = 2});
    const Mesh<dp, tp> stage = mesh.sub(axes<dp, tp>);
    const auto same = mesh[axes<tp>];
    static_assert(std::is_same_v<decltype(same), const Mesh<tp>>);
    static_assert(!CanComm<Mesh<tp>, dp>);
    wrong += &same.comm(tp{}) != &mesh.comm(tp{}) || &stage.comm(dp{}, tp{}) != &mesh.comm(dp{}, tp{});
    wrong += mesh.communicator().size() != 8 || stage.communicator().size() != 4 || same.communicator().size() != 2;
    wrong += stage.size(dp{}, tp{}) != 4 || stage.text() != "tp(2) * dp(2)";
  });
  CHECK(code == 0);
  CHECK(wrong == 0);
}

TEST_CASE("grids place the ranks of a mesh's communicator along its axes") {
  std::atomic<int> wrong = 0;
  const int code = on_ranks(8, [&](World& world) {
    const Mesh<dp, tp, pp, ep, etp, edp> whole(world, {.tp = 2, .ep = 2, .pp = 2}, mesh_layout::RankOrder("pp-tp-ep-dp-cp"));
    const Mesh<dp, tp> part = whole.sub(axes<dp, tp>);
    const auto check = [&](const auto& mesh, const mesh_layout::RankGrid& grid, std::size_t ranks, auto... lines) {
      const std::size_t rank = std::size_t(mesh.communicator().rank());
      wrong += grid.size() != ranks || grid.axes().size() != sizeof...(lines);
      ((wrong += grid.place(rank, {lines.name}).member != std::size_t(mesh.rank(lines))), ...);
    };
    check(whole, whole.grids().dense, 8, dp{}, tp{}, pp{});
    check(whole, whole.grids().expert, 8, ep{}, etp{}, edp{}, pp{});
    check(part, part.grids().dense, 4, dp{}, tp{});
    wrong += !part.grids().expert.axes().empty();
  });
  CHECK(code == 0);
  CHECK(wrong == 0);
}

TEST_CASE("impossible degrees are refused before any communication, with the whole product, the same on every rank") {
  CHECK(refusal(8, [](World& w) { Mesh<dp, tp>(w, {.tp = 3}); }) ==
        "weft: world(8) % (tp(3)) != 0: dp is what they leave of the world; tp can be 1, 2, 4 or 8");
  CHECK(refusal(8, [](World& w) { Mesh<dp, tp>(w, {.tp = 3, .dp = 2}); }) ==
        "weft: dp(2) * tp(3) != world(8): their product must divide the world");
  CHECK(refusal(8, [](World& w) { Mesh<dp, tp>(w, {.tp = 2, .dp = 2}); }) == "weft: dp(2) * tp(2) != world(8): dp can be 4");
  CHECK(refusal(4, [](World& w) { Mesh<dp>(w, {.dp = 2}); }) == "weft: dp(2) != world(4): dp can be 4");
  CHECK(refusal(8, [](World& w) { Mesh<tp, pp>(w, {.tp = 2, .pp = 2}); }) ==
        "weft: tp(2) * pp(2) != world(8): this mesh has no axis dp to take what is left");
  CHECK(refusal(2, [](World& w) { Mesh<>{w}; }) == "weft: 1 != world(2): this mesh has no axis dp to take what is left");
  CHECK(refusal(8, [](World& w) { Mesh<dp, tp>(w, {.pp = 2}); }) == "weft: pp(2): this mesh has no axis pp, its axes are dp-tp");
  CHECK(refusal(2, [](World& w) { Mesh<dp, tp>(w, {.tp = 0}); }) == "weft: tp(0): a degree is at least 1");
  CHECK(refusal(2, [](World& w) { Mesh<dp, tp>(w, {.tp = 2}, mesh_layout::RankOrder("dp-pp")); }) ==
        "weft: rank order 'dp-pp' does not say where tp(2) goes: add 'tp' to it");
  CHECK(refusal(8, [](World& w) {
          Mesh<dp, pp, ep, edp>(w, {.ep = 2, .pp = 2}, mesh_layout::RankOrder("tp-cp-ep-pp-dp"));
        }).find("dp(4) != edp(2)") != std::string::npos);
}
