// SPDX-License-Identifier: Apache-2.0
// Every layout rule: divisible layouts are accepted with the right numbers, others are refused with a message that names the
// problem.

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <weft/mesh/layout.hpp>

#include "support/figure.hpp"

using namespace weft;

namespace {

std::string message(const mesh_layout::Layout& layout) {
  try {
    mesh_layout::resolve(layout);
  } catch (const LayoutError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("numbers that follow from a layout") {
  const mesh_layout::ResolvedLayout r = mesh_layout::resolve({.nodes = 2,
                                                              .ranks_per_node = 8,
                                                              .tp = 2,
                                                              .cp = 2,
                                                              .pp = 2,
                                                              .ep = 4,
                                                              .etp = 1,
                                                              .vpp = 3,
                                                              .sequence_parallel = true,
                                                              .overlap_p2p = true,
                                                              .global_batch = 32,
                                                              .micro_batch = 2,
                                                              .layers = 12,
                                                              .heads = 8,
                                                              .kv_heads = 2});
  CHECK(r.world == 16);
  CHECK(r.dp == 2);
  CHECK(r.edp == 2);
  CHECK(r.micro_batches == 8);
  CHECK(r.stage_layers == std::vector<std::size_t>(6, 2));
  CHECK(r.kv_replicas == 1);
  CHECK(mesh_layout::resolve({.world = 8, .tp = 4, .heads = 8, .kv_heads = 2}).kv_replicas == 2);
  CHECK(mesh_layout::resolve({.world = 8, .tp = 4}).edp == 2);  // etp defaults to tp
  CHECK(mesh_layout::resolve({.world = 8, .dp = 8}).micro_batches == 1);
  CHECK(mesh_layout::resolve({.world = 4, .pp = 2, .vpp = 2, .global_batch = 6, .whole_groups = false}).micro_batches == 3);
}

TEST_CASE("each broken rule has its own text") {
  const struct {
    mesh_layout::Layout layout;
    const char* text;
  } cases[] = {
      {{}, "weft: the layout gives neither the world nor the ranks of a node"},
      {{.nodes = 0, .ranks_per_node = 8}, "weft: nodes(0): must be at least 1"},
      {{.ranks_per_node = -8}, "weft: ranks per node(-8): must be at least 1"},
      {{.nodes = 3, .world = 8}, "weft: world(8) % nodes(3) != 0: every node has as many ranks; nodes can be 1, 2, 4 or 8"},
      {{.nodes = 2, .ranks_per_node = 8, .world = 12}, "weft: nodes(2) * ranks per node(8) = 16 != world(12)"},
      {{.world = 8, .tp = 0}, "weft: tp(0): must be at least 1"},
      {{.world = 8, .cp = -1}, "weft: cp(-1): must be at least 1"},
      {{.world = 8, .pp = 0}, "weft: pp(0): must be at least 1"},
      {{.world = 8, .ep = 0}, "weft: ep(0): must be at least 1"},
      {{.world = 8, .etp = 0}, "weft: etp(0): must be at least 1"},
      {{.world = 8, .dp = 0}, "weft: dp(0): must be at least 1"},
      {{.world = 8, .edp = -2}, "weft: edp(-2): must be at least 1"},
      {{.world = 8, .vpp = 0}, "weft: vpp(0): must be at least 1"},
      {{.world = 8, .tp = 3},
       "weft: world(8) % (tp(3) * pp(1) * cp(1)) != 0: dp is what they leave of the world; tp * pp * cp can be 1, 2, 4 or 8"},
      {{.world = 8, .tp = 2, .ep = 3},
       "weft: world(8) % (etp(2) * pp(1) * ep(3)) != 0: edp is what they leave of the world; etp * pp * ep can be 1, 2, 4 or 8"},
      {{.world = 8, .tp = 2, .dp = 2}, "weft: dp(2) * tp(2) * pp(1) * cp(1) != world(8): dp can be 4"},
      {{.world = 8, .dp = 3, .global_batch = 4}, "weft: dp(3) * tp(1) * pp(1) * cp(1) != world(8): dp can be 8"},
      {{.world = 8, .tp = 2, .global_batch = 6},
       "weft: global batch(6) % dp(4) != 0: every dp rank takes as many sequences; global batch can be 4 or 8"},
      {{.world = 2, .global_batch = 2, .micro_batch = 4},
       "weft: global batch(2) % micro-batch(4) != 0: a step is whole micro-batches; global batch can be 8"},
      {{.world = 2, .global_batch = 12, .micro_batch = 4},
       "weft: global batch(12) % (micro-batch(4) * dp(2)) != 0: every dp rank takes whole micro-batches; global batch can be 8 "
       "or 16"},
      {{.world = 2, .global_batch = 0}, "weft: global batch(0): must be at least 1"},
      {{.world = 2, .micro_batch = 0}, "weft: micro-batch(0): must be at least 1"},
      {{.world = 4, .pp = 2, .vpp = 2, .global_batch = 6, .layers = 8},
       "weft: micro-batches(3) % pp(2) != 0: with vpp(2) interleaved stages a rank works on groups of pp micro-batches; micro-"
       "batches can be 2 or 4 (global batch / (micro-batch * dp))"},
      {{.world = 8, .heads = 6, .kv_heads = 4},
       "weft: heads(6) % kv heads(4) != 0: every key and value head serves as many heads; kv heads can be 1, 2, 3 or 6"},
      {{.world = 8, .tp = 4, .heads = 6}, "weft: heads(6) % tp(4) != 0: a rank holds whole heads; tp can be 1, 2, 3 or 6"},
      {{.world = 8, .tp = 4, .heads = 12, .kv_heads = 3}, "weft: kv heads(3) against tp(4): "},
      {{.world = 8, .kv_heads = 3}, "weft: kv heads(3): heads are not given"},
      {{.world = 8, .heads = 0}, "weft: heads(0): must be at least 1"},
      {{.world = 8, .ep = 4, .experts = 6}, "weft: experts(6) % ep(4) != 0: a rank holds whole experts; ep can be 1, 2, 3 or 6"},
      {{.world = 8, .ep = 2, .etp = 2, .experts = 4, .intermediate = 9},
       "weft: intermediate(9) % etp(2) != 0: an expert is cut evenly; etp can be 1, 3 or 9"},
      {{.world = 8, .layers = 0}, "weft: layers(0): must be at least 1"},
      {{.world = 8, .pp = 8, .layers = 4},
       "weft: layers(4) < pp(8) * vpp(1): a stage holds at least one layer; pp * vpp can be at most 4"},
      {{.world = 8, .vpp = 8, .layers = 4},
       "weft: layers(4) < pp(1) * vpp(8): a stage holds at least one layer; pp * vpp can be at most 4"},
      {{.world = 8, .pp = 2, .layers = 6, .stage_layers = {3, 4}},
       "weft: layers of the stages (3, 4): up to stage 1 they are more than the model's 6 layers"},
      {{.world = 8, .sequence_parallel = true}, "weft: sequence parallelism with tp(1): "},
      {{.world = 8, .pp = 2, .overlap_p2p = true}, "weft: overlapped point-to-point with vpp(1): "},
      {{.nodes = std::int64_t(1) << 40, .ranks_per_node = std::int64_t(1) << 40},
       "weft: nodes(1099511627776) * ranks per node(1099511627776): the world overflows"},
      {{.world = 8, .tp = INT64_MAX, .pp = INT64_MAX}, "weft: world(8) % (tp(9223372036854775807) * pp(9223372036854775807)"},
      {{.world = INT64_MAX, .micro_batch = INT64_MAX}, "weft: micro-batch(9223372036854775807) * dp(9223372036854775807): "},
  };
  for (const auto& c : cases) {
    INFO(c.text);
    const std::string text = message(c.layout);
    CHECK(text.substr(0, std::string(c.text).size()) == c.text);
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("every layout of up to 64 ranks: degrees that divide are accepted, others are refused with the axis") {
  std::size_t accepted = 0, refused = 0, wrong = 0;
  // By hand, WEFT_TEST_RUNS=N tests all degrees up to N.
  const std::int64_t all = weft_test::rounds(0);
  const auto degrees = [all](std::vector<std::int64_t> some) {
    if (all == 0) return some;
    some.resize(std::size_t(all));
    std::iota(some.begin(), some.end(), 1);
    return some;
  };
  for (std::int64_t world = 1; world <= 64; ++world)
    for (const std::int64_t tp : degrees({1, 2, 3, 4, 8}))
      for (const std::int64_t cp : degrees({1, 2, 3}))
        for (const std::int64_t pp : degrees({1, 2, 4, 5}))
          for (const std::int64_t ep : degrees({1, 2, 3, 8}))
            for (const std::int64_t etp : degrees({1, 2, 5})) {
              const std::string text = message({.world = world, .tp = tp, .cp = cp, .pp = pp, .ep = ep, .etp = etp});
              const auto group = [&](const char* a, std::int64_t x, const char* c, std::int64_t z) {
                return "world(" + std::to_string(world) + ") % (" + a + "(" + std::to_string(x) + ") * pp(" + std::to_string(pp) +
                       ") * " + c + "(" + std::to_string(z) + ")) != 0: ";
              };
              std::string expected;
              if (world % (tp * pp * cp) != 0) expected = group("tp", tp, "cp", cp) + "dp is";
              else if (world % (etp * pp * ep) != 0) expected = group("etp", etp, "ep", ep) + "edp is";
              wrong += expected.empty() ? !text.empty() : !contains(text, expected);
              ++(expected.empty() ? accepted : refused);
            }
  CHECK(wrong == 0);
  CHECK(accepted > 500);
  CHECK(refused > 10000);
  weft_test::figure(10, accepted + refused, "layouts of worlds up to 64", wrong,
                    "taken that do not divide, or refused without the axis");
}

TEST_CASE("batches, layers and heads: every small combination") {
  std::size_t wrong = 0;
  for (std::int64_t dp = 1; dp <= 6; ++dp)
    for (std::int64_t micro = 1; micro <= 6; ++micro)
      for (std::int64_t global = 1; global <= 40; ++global) {
        const mesh_layout::Layout layout = {.world = dp, .global_batch = global, .micro_batch = micro};
        if (global % (dp * micro) == 0) wrong += mesh_layout::resolve(layout).micro_batches != std::size_t(global / (dp * micro));
        else wrong += !contains(message(layout), "global batch(" + std::to_string(global) + ") % ");
      }
  for (std::int64_t pp = 1; pp <= 6; ++pp)
    for (std::int64_t vpp = 1; vpp <= 6; ++vpp)
      for (std::int64_t layers = 1; layers <= 24; ++layers) {
        const std::string text = message({.world = pp, .pp = pp, .vpp = vpp, .global_batch = 60, .layers = layers});
        wrong += text.empty() != (layers >= pp * vpp);
        if (!text.empty()) wrong += !contains(text, "layers(" + std::to_string(layers) + ")");
      }
  for (std::int64_t tp = 1; tp <= 12; ++tp)
    for (std::int64_t heads = 1; heads <= 24; ++heads)
      for (std::int64_t kv = 1; kv <= 24; ++kv) {
        const std::string text = message({.world = tp, .tp = tp, .heads = heads, .kv_heads = kv});
        wrong += text.empty() != (heads % kv == 0 && heads % tp == 0 && (kv % tp == 0 || tp % kv == 0));
        if (!text.empty()) wrong += !contains(text, "heads(");
      }
  CHECK(wrong == 0);
}
