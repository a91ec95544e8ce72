// SPDX-License-Identifier: Apache-2.0
// covers: weft/checkpoint/kept.hpp weft/checkpoint/load.hpp weft/checkpoint/state.hpp weft/checkpoint/write_plan.hpp
// A resumed run equals an uninterrupted one, bit by bit, in the same layout: every parameter, optimizer state, loss scale and
// buffers; and every layout loads the checkpoints of all others.

#include "support/checkpoints.hpp"
#include "support/figure.hpp"

#include <atomic>
#include <cmath>
#include <cstdlib>

#include <weft/checkpoint/kept.hpp>
#include <weft/checkpoint/load.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/write_plan.hpp>

using namespace weft_test;

namespace {

const std::vector<Layout> dense = {
    {"one rank", 1, {}, 4},
    {"dp 2", 2, {}, 2},
    {"dp 4 zero 1", 4, {}, 2, "1f1b", 1},
    {"dp 4 zero 2", 4, {}, 2, "1f1b", 2},
    {"dp 4 zero 3", 4, {}, 2, "1f1b", 3},
    {"dp 8 zero 3", 8, {}, 1, "1f1b", 3},
    {"dp 4 zero 1 replicate 2", 4, {}, 2, "1f1b", 1, 2},
    {"dp 4 zero 3 replicate 2", 4, {}, 2, "1f1b", 3, 2},
    {"tp 2", 2, {.tp = 2}, 2},
    {"tp 4", 4, {.tp = 4}, 1},
    {"tp 8", 8, {.tp = 8}, 1},
    {"dp 2 tp 2 zero 2", 4, {.tp = 2}, 2, "1f1b", 2},
    {"dp 2 tp 4 zero 3", 8, {.tp = 4}, 1, "1f1b", 3},
    {"cp 2", 2, {.cp = 2}, 2},
    {"dp 2 cp 2 zero 3", 4, {.cp = 2}, 2, "1f1b", 3},
    {"cp 2 tp 2", 4, {.tp = 2, .cp = 2}, 2},
    {"pp 2 gpipe", 2, {.pp = 2}, 4, "gpipe"},
    {"pp 2 zbv", 2, {.pp = 2}, 4, "zbv"},
    {"pp 4", 4, {.pp = 4}, 4},
    {"dp 2 pp 4 interleaved zero 1", 8, {.pp = 4}, 4, "interleaved", 1},
    {"dp 2 pp 2 zb-h1 zero 2", 4, {.pp = 2}, 4, "zb-h1", 2},
    {"tp 2 pp 2 interleaved-zb", 4, {.tp = 2, .pp = 2}, 4, "interleaved-zb"},
    {"dp 2 tp 2 pp 2 dualpipev zero 3", 8, {.tp = 2, .pp = 2}, 4, "dualpipev", 3},
    {"tp 2 cp 2 pp 2", 8, {.tp = 2, .cp = 2, .pp = 2}, 4, "interleaved"},
};

/// Counts failures so far, for the figures.
struct Failures : doctest::IReporter {
  inline static std::atomic<unsigned long long> so_far{0};
  explicit Failures(const doctest::ContextOptions&) {}
  void log_assert(const doctest::AssertData& data) override { so_far += data.m_failed; }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override { ++so_far; }
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("failures", 1, Failures);

}  // namespace

TEST_CASE("gpt: a resumed run has the bits of an uninterrupted one") {
  const auto before = Failures::so_far.load();
  for (const Layout& layout : dense) check_resume<DenseRing, DenseMesh>(layout, gpt_config());
  figure(3, dense.size(), "layouts resumed, every byte of their state compared", Failures::so_far - before, "differences");
}

// 24 pairs; with WEFT_TEST_LONG=1 all 552.
TEST_CASE("gpt: every layout loads the checkpoint of another one, bit by bit") {
  std::vector<std::size_t> offsets{7};
  if (long_form())
    for (std::size_t offset = 1; offset < dense.size(); ++offset)
      if (offset != 7) offsets.push_back(offset);
  const auto before = Failures::so_far.load();
  check_reshard<DenseRing, DenseMesh>(dense, gpt_config(), offsets);
  figure(15, dense.size() * offsets.size(), "ordered pairs of layouts", Failures::so_far - before, "tensors with other bits");
}

// The next two divisions load the checkpoint of each: stages that differ go into one rank, even stages and other divisions.
TEST_CASE("gpt: stages that differ load the checkpoints of other divisions, bit by bit") {
  std::vector<Layout> divisions = {
      {"one rank", 1, {}, 4},
      {"pp 2, layers 7 1, zero 2", 4, {.pp = 2}, 4, "1f1b", 2},
      {"pp 2, even", 2, {.pp = 2}, 4},
      {"pp 4, layers 0 3 5 0", 4, {.pp = 4}, 4},
      {"pp 2, layers 1 4 3 0, interleaved, zero 3", 4, {.pp = 2}, 4, "interleaved", 3},
      {"pp 2, even chunks, zbv", 2, {.pp = 2}, 4, "zbv"},
      {"tp 2 pp 2, layers 3 1 2 2, zbv", 4, {.tp = 2, .pp = 2}, 4, "zbv"},
  };
  divisions[1].layers = {7, 1};
  divisions[3].layers = {0, 3, 5, 0};
  divisions[4].layers = {1, 4, 3, 0};
  divisions[6].layers = {3, 1, 2, 2};
  check_reshard<DenseRing, DenseMesh>(divisions, gpt_config(), {1, 2});
  for (const std::size_t differs : {4, 6}) check_resume<DenseRing, DenseMesh>(divisions[differs], gpt_config());
}

TEST_CASE("gpt: after a change of layout the next ten losses are those of the layout that wrote") {
  const std::size_t writer = 11;  // dp 2 tp 2 zero 2
  TemporaryFolder folder;
  const std::string place = (folder.path / "run").string();
  run_steps<DenseRing, DenseMesh, optim::AdamW>(dense[writer], gpt_config(), place, 0, 2, false, true);
  const auto expected =
      run_steps<DenseRing, DenseMesh, optim::AdamW>(dense[writer], gpt_config(), place, 2, 12, true, false)[0].losses;
  REQUIRE(expected.size() == 10);
  unsigned long long compared = 0, apart = 0;
  for (const std::size_t reader : {0, 4, 7, 9, 15, 17, 22, 23}) {
    INFO(dense[writer].name << " -> " << dense[reader].name);
    const auto losses =
        run_steps<DenseRing, DenseMesh, optim::AdamW>(dense[reader], gpt_config(), place, 2, 12, true, false)[0].losses;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const bool equal = std::abs(losses[i] / expected[i] - 1) <= 1e-9;
      CHECK(equal);
      ++compared, apart += !equal;
    }
  }
  figure(15, compared, "losses after a change of layout", apart, "more than 1e-9 from those without one");
}
