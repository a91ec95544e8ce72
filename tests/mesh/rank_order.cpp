// SPDX-License-Identifier: Apache-2.0
// Groups of ranks compared with worked examples and with an oracle that only uses coordinates.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include <weft/mesh/rank_order.hpp>

#include "support/figure.hpp"

using namespace weft;

namespace {

/// Ranks with the same coordinates on all other axes are one group. Ranks and groups are in ascending order, which is the meaning
/// of "first-in-order fastest" for both.
mesh_layout::RankGroups oracle(const std::vector<mesh_layout::RankAxis>& axes, const std::vector<std::string_view>& names) {
  std::vector<std::size_t> coordinates(axes.size(), 0);
  std::size_t world = 1;
  for (const mesh_layout::RankAxis& axis : axes) world *= axis.size;
  std::map<std::vector<std::size_t>, std::size_t> seen;
  mesh_layout::RankGroups groups;
  for (std::size_t rank = 0; rank < world; ++rank) {
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (std::find(names.begin(), names.end(), axes[i].name) == names.end()) others.push_back(coordinates[i]);
    const auto [at, fresh] = seen.emplace(others, groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(rank);
    for (std::size_t i = 0; i < axes.size() && ++coordinates[i] == axes[i].size; ++i) coordinates[i] = 0;
  }
  return groups;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : "-") + name;
  return text;
}

std::vector<std::string> all_orders() {
  std::vector<std::string> names = {"cp", "dp", "ep", "pp", "tp"}, orders;
  do orders.push_back(join(names));
  while (std::next_permutation(names.begin(), names.end()));
  return orders;
}

std::string message(auto&& f) {
  try {
    f();
  } catch (const LayoutError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("worked examples") {
  const mesh_layout::RankGrids a = mesh_layout::rank_grids(mesh_layout::RankOrder(), 16, {.tp = 2, .etp = 2, .pp = 4});
  CHECK(a.dense.groups({"tp"}) == mesh_layout::RankGroups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
  CHECK(a.dense.groups({"dp"}) == mesh_layout::RankGroups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}});
  CHECK(a.dense.groups({"pp"}) == mesh_layout::RankGroups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
  CHECK(a.dense.groups({"tp", "pp"}) == mesh_layout::RankGroups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}});
  CHECK(a.dense.groups({"pp", "tp"}) == a.dense.groups({"tp", "pp"}));

  const mesh_layout::RankGrids b =
      mesh_layout::rank_grids(mesh_layout::RankOrder("tp-cp-ep-pp-dp"), 16, {.tp = 2, .etp = 2, .pp = 4});
  CHECK(b.dense.groups({"pp"}) == mesh_layout::RankGroups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}});
  CHECK(b.dense.groups({"dp"})[0] == std::vector<std::size_t>{0, 8});
  CHECK(b.dense.groups({"dp"})[1] == std::vector<std::size_t>{1, 9});

  const mesh_layout::RankGroups c = mesh_layout::RankGrid({{"tp", 2}, {"dp", 3}, {"pp", 4}}).groups({"dp"});
  CHECK(c[0] == std::vector<std::size_t>{0, 2, 4});
  CHECK(c[7] == std::vector<std::size_t>{19, 21, 23});
}

TEST_CASE("dense and expert grids fold over the same ranks") {
  const mesh_layout::RankGrids g =
      mesh_layout::rank_grids(mesh_layout::RankOrder(), 16, {.tp = 2, .cp = 2, .ep = 4, .etp = 1, .pp = 2});
  CHECK(g.dense.axes() == std::vector<mesh_layout::RankAxis>{{"tp", 2}, {"cp", 2}, {"dp", 2}, {"pp", 2}});
  CHECK(g.expert.axes() == std::vector<mesh_layout::RankAxis>{{"etp", 1}, {"ep", 4}, {"edp", 2}, {"pp", 2}});
  CHECK(g.expert.groups({"ep"})[0] == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(g.expert.groups({"edp"})[0] == std::vector<std::size_t>{0, 4});
  CHECK(g.dense.groups({"pp"}) == g.expert.groups({"pp"}));
}

TEST_CASE("all 120 orders and all factorizations of worlds up to 128 agree with the oracle") {
  std::map<std::string, std::vector<mesh_layout::RankAxis>>
      grids;  // orders that differ only in the place of an absent axis are one grid
  for (const std::string& text : all_orders()) {
    const mesh_layout::RankOrder order(text);
    for (const bool expert : {false, true}) {
      const std::vector<mesh_layout::RankAxis> sizes =
          expert ? std::vector<mesh_layout::RankAxis>{{"etp", 2}, {"ep", 3}, {"edp", 5}, {"pp", 7}}
                 : std::vector<mesh_layout::RankAxis>{{"tp", 2}, {"cp", 3}, {"dp", 5}, {"pp", 7}};
      const mesh_layout::RankGrid grid = order.grid(sizes);
      std::vector<std::string> names;
      for (const mesh_layout::RankAxis& axis : grid.axes()) names.emplace_back(axis.name);
      grids.emplace(join(names), grid.axes());
      std::size_t at = 0;  // the names of the order, one after the other
      for (const mesh_layout::RankAxis& axis : grid.axes()) {
        const std::string name = axis.name == "etp" ? "tp" : axis.name == "edp" ? "dp" : std::string(axis.name);
        const std::size_t found = text.find(name);
        CHECK(found >= at);
        at = found;
      }
    }
  }
  REQUIRE(grids.size() == 48);
  std::size_t checked = 0, wrong = 0;
  for (std::size_t world = 1; world <= 128; ++world)
    for (std::size_t a = 1; a <= world; ++a)
      for (std::size_t b = 1; world % a == 0 && b <= world / a; ++b)
        for (std::size_t c = 1; world / a % b == 0 && c <= world / a / b; ++c) {
          if (world / a / b % c != 0) continue;
          std::size_t k = checked;
          for (const auto& [text, names] : grids) {
            std::vector<mesh_layout::RankAxis> axes = names;
            const std::array<std::size_t, 4> sizes = {a, b, c, world / a / b / c};
            for (std::size_t i = 0; i < 4; ++i) axes[i].size = sizes[i];
            const mesh_layout::RankGrid grid(axes);
            // every set of axes: one set per grid and factorization, all of them for small worlds
            for (unsigned set = world <= 24 ? 0 : k % 16; set < 16; set += world <= 24 ? 1 : 16, ++checked) {
              std::vector<std::string_view> members;
              for (unsigned i = 0; i < 4; ++i)
                if (set >> i & 1) members.push_back(axes[i].name);
              wrong += grid.groups(members) != oracle(axes, members);
            }
            ++k;
          }
        }
  CHECK(wrong == 0);
  CHECK(checked > 9000);
  weft_test::figure(11, checked, "partitions of worlds up to 128 compared with the oracle", wrong, "differ");
}

TEST_CASE("the pipelines of both meshes are the same ranks, or the layout is refused") {
  std::size_t refused = 0, equal = 0;
  for (const std::string& text : all_orders())
    for (std::size_t tp : {1, 2, 4})
      for (std::size_t etp : {1, 2})
        for (std::size_t cp : {1, 2})
          for (std::size_t ep : {1, 2, 4})
            for (std::size_t pp : {1, 2, 4}) {
              try {
                const mesh_layout::RankGrids g = mesh_layout::rank_grids(mesh_layout::RankOrder(text), 32,
                                                                         {.tp = tp, .cp = cp, .ep = ep, .etp = etp, .pp = pp});
                CHECK(g.dense.groups({"pp"}) == g.expert.groups({"pp"}));
                if (pp > 1 && !text.ends_with("pp")) CHECK(32 / (tp * cp * pp) == 32 / (etp * ep * pp));
                ++equal;
              } catch (const LayoutError& error) {
                CHECK(pp > 1);
                CHECK_FALSE(text.ends_with("pp"));
                CHECK(contains(error.what(), "rank order '" + text + "' with pp(" + std::to_string(pp)));
                ++refused;
              }
            }
  CHECK(refused > 100);
  CHECK(equal > 100);
}

TEST_CASE("orders that cannot be") {
  CHECK(message([] { mesh_layout::RankOrder("tp-xx-dp"); }) ==
        "weft: rank order 'tp-xx-dp': unknown axis 'xx'; the axes are tp, cp, ep, dp and pp");
  CHECK(contains(message([] { mesh_layout::RankOrder(""); }), "unknown axis ''"));
  CHECK(contains(message([] { mesh_layout::RankOrder("tp-"); }), "unknown axis ''"));
  CHECK(contains(message([] { mesh_layout::RankOrder("TP"); }), "unknown axis 'TP'"));
  CHECK(contains(message([] { mesh_layout::RankOrder("tp-dp-tp"); }), "axis 'tp' comes twice"));
  CHECK(contains(message([] { mesh_layout::rank_grids(mesh_layout::RankOrder("tp-dp"), 8, {.pp = 2}); }),
                 "does not say where pp(2) goes: add 'pp' to it"));
  CHECK(contains(message([] { mesh_layout::rank_grids(mesh_layout::RankOrder("cp-dp-pp-ep"), 8, {.tp = 1, .etp = 2}); }),
                 "where etp(2) goes: add 'tp'"));
  CHECK(mesh_layout::rank_grids(mesh_layout::RankOrder("tp-dp"), 8, {.tp = 2}).dense.groups({"dp"}) ==
        mesh_layout::RankGroups{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(contains(message([] { mesh_layout::RankGrid({{"tp", 2}}).groups({"ep"}); }), "no axis 'ep' among the axes tp(2)"));
}

TEST_CASE("worlds that do not divide") {
  CHECK(message([] { mesh_layout::rank_grids(mesh_layout::RankOrder(), 8, {.tp = 3}); }) ==
        "weft: world(8) % (tp(3) * pp(1) * cp(1)) != 0: dp is what they leave of the world; tp * pp * cp can be 1, 2, 4 or 8");
  CHECK(contains(message([] { mesh_layout::rank_grids(mesh_layout::RankOrder(), 8, {.ep = 3}); }),
                 "world(8) % (etp(1) * pp(1) * ep(3)) != 0: edp"));
  CHECK(contains(message([] { mesh_layout::rank_grids(mesh_layout::RankOrder(), 8, {.tp = 2, .dp = 2}); }),
                 "dp(2) * tp(2) * pp(1) * cp(1) != world(8): dp can be 4"));
  CHECK(contains(message([] { mesh_layout::rank_grids(mesh_layout::RankOrder(), 8, {.tp = 0}); }),
                 "tp(0): a degree is at least 1"));
  CHECK(contains(message([] { mesh_layout::rank_grids(mesh_layout::RankOrder(), 0, {}); }), "world(0)"));
  const std::size_t huge = std::size_t(1) << 40;
  CHECK(contains(message([=] { mesh_layout::rank_grids(mesh_layout::RankOrder(), 8, {.tp = huge, .cp = huge}); }),
                 "world(8) % (tp(1099511627776)"));
}
