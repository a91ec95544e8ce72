// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/schedule/csv.hpp weft/pipeline/schedule/visualise.hpp
// Schedules by name, from files and as pictures.

#include <doctest/doctest.h>

#include <string>

#include <weft/pipeline/schedule/csv.hpp>
#include <weft/pipeline/schedule/named.hpp>
#include <weft/pipeline/schedule/visualise.hpp>

using namespace weft::schedule;

namespace {

bool same(const Table& a, const Table& b) {
  return a.ranks == b.ranks && a.chunks == b.chunks && a.micro_batches == b.micro_batches && a.orders == b.orders &&
         a.stage_of == b.stage_of;
}

std::string refusal(const char* csv) {
  try {
    from_csv(csv, "own.csv");
  } catch (const weft::Error& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a name gives the table of its type") {
  CHECK(same(named_table("gpipe", 4, 6), table<GPipe>(4, 6)));
  CHECK(same(named_table("1f1b", 4, 6), table<OneForwardOneBackward>(4, 6)));
  CHECK(same(named_table("interleaved", 4, 6), table<Interleaved<2>>(4, 6)));
  CHECK(same(named_table("interleaved", 2, 5, 3), table<Interleaved<3>>(2, 5)));
  CHECK(same(named_table("interleaved-zb", 4, 6, 2), table<InterleavedZeroBubble<2>>(4, 6)));
  CHECK(same(named_table("zb-h1", 4, 6, 1), table<ZeroBubbleH1>(4, 6)));
  CHECK(same(named_table("zbv", 4, 6), table<Zbv>(4, 6)));
  CHECK(same(named_table("dualpipev", 3, 6), table<DualPipeV>(3, 6)));
}

TEST_CASE("a file gives back the table that it was written from") {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zbv", "dualpipev"}) {
    const Table table = named_table(name, 3, 7), again = from_csv(to_csv(table));
    INFO(name);
    CHECK(to_csv(again) == to_csv(table));
    CHECK(again.stage_of.size() == 3);
    CHECK(prove(again).makespan == prove(table).makespan);
  }
  CHECK(from_csv(" 0F0 , , 0B0\r\n\r\n\"1F0\",1B0").orders[1] == Order{{Op::F, 0, 0}, {Op::B, 0, 0}});  // spaces, idle cells
}

TEST_CASE("files that are no schedule") {
  CHECK(refusal("0F0,0X0") ==
        "weft: own.csv, line 1: '0X0' is no action; an action is a stage, one of F B I W, and a micro-batch, such as 0F3, a pair "
        "is (0F3;3B1)");
  CHECK(refusal("0F0\n(0F0)").find("line 2: '(0F0)'") != std::string::npos);
  CHECK(refusal("0F99999999999999999999").find("is no action") != std::string::npos);
  std::string lines, cells;
  for (int line = 0; line < 4097; ++line) lines += "0F0,0B0\n";
  CHECK(refusal(lines.c_str()) == "weft: own.csv, line 4097: a schedule has a line for each rank, at most 4096");
  for (int cell = 0; cell < (1 << 18) + 1; ++cell) cells += "0F0,";
  CHECK(refusal(cells.c_str()) == "weft: own.csv, line 1: a schedule has at most 262144 actions");
  CHECK(refusal("0F0\n4096F0") == "weft: own.csv, line 2: stage 4096: a schedule has at most 4096 stages, from 0");
  CHECK(refusal("0F-1").find("is no action") != std::string::npos);
  CHECK(refusal("").find("is not complete") != std::string::npos);
  CHECK(refusal("0F0").find("own.csv (1 ranks, 1 stages a rank, 1 micro-batches) is not complete") != std::string::npos);
  CHECK(refusal("0F0,0B0\n0F0,0B0").find("is not complete") != std::string::npos);
  CHECK(refusal("0F1048576,0B1048576").find("is not complete") != std::string::npos);  // a huge hole
  CHECK(refusal("0B0,0F0").find("is out of order") != std::string::npos);
  CHECK(refusal("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0").find("deadlocks") != std::string::npos);
  CHECK(refusal("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1").find("crosses messages") != std::string::npos);
}

TEST_CASE("pictures hold every action") {
  const Table table = named_table("dualpipev", 2, 4);
  const Timeline timeline = simulate(table);
  const std::string svg = to_svg(table, timeline), trace = to_trace(table, timeline);
  for (int rank = 0; rank < 2; ++rank)
    for (const Action& action : table.orders[std::size_t(rank)]) {
      CHECK(svg.find("<title>" + to_string(table, rank, action) + " ") != std::string::npos);
      CHECK(trace.find("\"name\": \"" + to_string(table, rank, action) + "\"") != std::string::npos);
    }
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
}
