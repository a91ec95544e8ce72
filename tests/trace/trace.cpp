// SPDX-License-Identifier: Apache-2.0
// covers: weft/trace/loss_curve.hpp weft/trace/metrics.hpp weft/trace/progress.hpp weft/trace/table.hpp
// The output of a run for people and tools: the bar, the lines of JSON, the table, the picture.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include <weft/trace/loss_curve.hpp>
#include <weft/trace/metrics.hpp>
#include <weft/trace/progress.hpp>
#include <weft/trace/table.hpp>

#include "support/temporary_folder.hpp"

using namespace weft;

TEST_CASE("numbers for people") {
  CHECK(trace::grouped(0) == "0");
  CHECK(trace::grouped(999) == "999");
  CHECK(trace::grouped(1000) == "1,000");
  CHECK(trace::grouped(-1234567.4) == "-1,234,567");
  CHECK(trace::grouped(NAN) == "nan");
  CHECK(trace::duration(41.7) == "42 s");
  CHECK(trace::duration(83) == "1:23");
  CHECK(trace::duration(4000) == "1:06:40");
  CHECK(trace::duration(NAN) == "?");
}

TEST_CASE("a table") {
  trace::Table table({"axis", "degree", "shares"});
  table.row({"dp", "2", "the sequences"}).row({"pp", "16", "4 layers"});
  CHECK(table.text() ==
        "  axis  degree  shares\n"
        "  ----  ------  -------------\n"
        "  dp         2  the sequences\n"
        "  pp        16  4 layers\n");
}

TEST_CASE("a file whose name ends in .csv has a header, a line per step and per validation, and goes on") {
  const weft_test::TemporaryFolder folder;
  const auto file = folder.path / "metrics.csv";
  {
    trace::MetricsFile metrics(file);
    metrics.write({.step = 0, .loss = 2.5, .gradient_norm = 0.125, .learning_rate = 1e-3, .tokens_per_s = 21000, .ms = 190});
    metrics.write({.step = 1, .loss = NAN, .gradient_norm = INFINITY, .skipped = true});
  }
  {
    trace::MetricsFile metrics(file, trace::MetricsFile::Records::stay);
    metrics.write_validation(1, 2.25);
    metrics.write_validation(2, NAN);
  }
  std::ifstream in(file);
  std::stringstream all;
  all << in.rdbuf();
  CHECK(all.str() ==
        "step,loss,gradient_norm,learning_rate,tokens_per_s,ms,skipped,validation_loss\n"
        "0,2.5,0.125,0.001,21000,190,0,\n"
        "1,,,0,0,0,1,\n"
        "1,,,,,,,2.25\n"
        "2,,,,,,,\n");
}

TEST_CASE("CSV has the measurements of its first record, by axis, and a resumed run keeps the columns") {
  const weft_test::TemporaryFolder folder;
  const auto file = folder.path / "metrics.csv";
  trace::StepRecord record{.step = 0,
                           .share_of_peak = 0.5,
                           .computing_ms = 12,
                           .axes = {{"dp", 1.5, 4096}, {"tp", 0.25, 64}},
                           .memory_bytes = 16777217,
                           .memory_peak_bytes = 12345678901};
  trace::MetricsFile(file).write(record);
  {
    trace::MetricsFile metrics(file, trace::MetricsFile::Records::stay);
    record.step = 1, record.share_of_peak = NAN;
    record.axes = {{"pp", 7, 7}, {"tp", 0.75, 128}};  // an axis less, and one without a column
    record.slow = {{3, 0.21}, {5, 0.4}};
    metrics.write(record);
    metrics.write_validation(1, 2.25);
    metrics.write({.step = 2});
  }
  std::ifstream in(file);
  std::stringstream all;
  all << in.rdbuf();
  CHECK(all.str() ==
        "step,loss,gradient_norm,learning_rate,tokens_per_s,ms,skipped,validation_loss,share_of_peak,computing_ms,"
        "waiting_ms.dp,message_bytes.dp,waiting_ms.tp,message_bytes.tp,memory_bytes,memory_peak_bytes,slow_ranks\n"
        "0,0,0,0,0,0,0,,0.5,12,1.5,4096,0.25,64,16777217,12345678901,\n"
        "1,0,0,0,0,0,0,,,12,,,0.75,128,16777217,12345678901,3:0.21 5:0.4\n"
        "1,,,,,,,2.25,,,,,,,,,\n"
        "2,0,0,0,0,0,0,,0,0,,,,,0,0,\n");
}

TEST_CASE("a record is one line of JSON, with null for numbers that are not finite") {
  const auto json = nlohmann::json::parse(
      trace::to_json({.step = 3, .loss = 2.5, .gradient_norm = 0.1, .learning_rate = 1e-3, .tokens_per_s = 21000, .ms = 190}));
  CHECK(json.size() == 6);
  CHECK(json["step"] == 3);
  CHECK(json["loss"] == 2.5);
  CHECK(json["gradient_norm"] == doctest::Approx(0.1));
  CHECK(json["learning_rate"] == doctest::Approx(1e-3));
  CHECK(json["tokens_per_s"] == 21000);
  CHECK(json["ms"] == 190);
  const auto bad = nlohmann::json::parse(trace::to_json({.loss = NAN, .gradient_norm = INFINITY, .skipped = true}));
  CHECK(bad["loss"].is_null());
  CHECK(bad["gradient_norm"].is_null());
  CHECK(bad["skipped"] == true);
  const auto full = nlohmann::json::parse(trace::to_json({.step = 4,
                                                          .share_of_peak = 0.5,
                                                          .computing_ms = 12,
                                                          .axes = {{"dp", 1.5, 4096}, {"tp", 0.25, 64}},
                                                          .memory_bytes = 100,
                                                          .memory_peak_bytes = 300,
                                                          .slow = {{3, 0.21}}}));
  CHECK(full["share_of_peak"] == 0.5);
  CHECK(full["computing_ms"] == 12);
  CHECK(full["waiting_ms"] == nlohmann::json({{"dp", 1.5}, {"tp", 0.25}}));
  CHECK(full["message_bytes"] == nlohmann::json({{"dp", 4096}, {"tp", 64}}));
  CHECK(full["memory_bytes"] == 100);
  CHECK(full["memory_peak_bytes"] == 300);
  CHECK(full["slow_ranks"] == nlohmann::json::array({{{"rank", 3}, {"slower", 0.21}}}));
}

TEST_CASE("the metrics file") {
  const weft_test::TemporaryFolder own;
  const std::filesystem::path folder = own.path;
  {
    trace::MetricsFile metrics(folder / "metrics.jsonl");
    metrics.write({.step = 0});
    metrics.write({.step = 1});
    std::ifstream in(folder / "metrics.jsonl");  // lines are there before the file is closed
    int lines = 0;
    for (std::string line; std::getline(in, line); ++lines) CHECK(nlohmann::json::parse(line)["step"] == lines);
    CHECK(lines == 2);
    metrics.write_validation(1, 2.25);
    metrics.write_validation(2, NAN);
    metrics.write_validation(3, 2, {{"a.txt", 1.5}, {"b.txt", 2.5}});
  }
  std::ifstream in(folder / "metrics.jsonl");
  std::string line;
  std::getline(in, line), std::getline(in, line), std::getline(in, line);
  CHECK(line == "{\"step\": 1, \"validation_loss\": 2.25}");
  std::getline(in, line);
  CHECK(line == "{\"step\": 2, \"validation_loss\": null}");
  std::getline(in, line);
  CHECK(line == "{\"step\": 3, \"validation_loss\": 2, \"validation_losses\": {\"a.txt\": 1.5, \"b.txt\": 2.5}}");
  const std::string nowhere = (folder / "no" / "metrics.jsonl").string();
  CHECK_THROWS_WITH_AS(trace::MetricsFile{nowhere}, ("weft: cannot write '" + nowhere + "': No such file or directory").c_str(),
                       UsageError);
}

TEST_CASE("progress on a terminal is one line, drawn over itself, and the program's lines are on the other stream") {
  std::ostringstream out, terminal;
  {
    trace::Progress progress({.steps = 4, .flops_per_token = 1e7, .peak_flops = 1e11, .bar = true, .width = 100}, out, terminal);
    progress.start();
    CHECK(terminal.str().find("step 0/4") != std::string::npos);
    terminal.str("");
    progress.update({.step = 0, .loss = 5.5, .tokens_per_s = 5000, .ms = 500});
    CHECK(terminal.str() == "\rstep 1/4  [======..................]  loss 5.5000  5,000 tokens/s  50 % of peak  2 s left\033[K");
    terminal.str("");
    progress.print("hello %d %s", 7, "worlds");
    CHECK(terminal.str().substr(0, 13) == "\r\033[Kstep 1/4 ");
    CHECK(out.str() == "hello 7 worlds\n");
    progress.update({.step = 3, .loss = 2.0, .tokens_per_s = 5000, .ms = 500, .skipped = true});
    CHECK(terminal.str().find("(skipped)") != std::string::npos);
  }
  const std::string drawn = terminal.str();
  CHECK(drawn.back() == '\n');
  CHECK(std::count(drawn.begin(), drawn.end(), '\n') == 1);
  CHECK(out.str() == "hello 7 worlds\n");
}

TEST_CASE("progress off a terminal is plain lines, few of them, or nothing") {
  for (const bool lines : {true, false}) {
    std::ostringstream out, terminal;
    trace::Progress progress({.steps = 100, .unit = "images", .lines = lines, .line_every_s = 1000}, out, terminal);
    progress.start();
    for (std::uint64_t step = 0; step < 100; ++step) progress.update({.step = step, .loss = 1, .tokens_per_s = 10, .ms = 1});
    progress.finish();
    const std::string text = out.str();
    CHECK(std::count(text.begin(), text.end(), '\n') == (lines ? 3 : 0));  // the start, the first step, the last
    CHECK(text.find('\r') == std::string::npos);
    CHECK((text.find("step 100/100  loss 1.0000  10 images/s") != std::string::npos) == lines);
    CHECK(terminal.str().empty());
  }
}

TEST_CASE("progress of another rank prints nothing, and a step takes its time from the clock") {
  std::ostringstream out, terminal;
  trace::Progress silent({.steps = 2, .notes = false}, out, terminal);
  silent.print("%s", "nothing");
  silent.step(0, 1, 100);
  CHECK(out.str().empty());
  CHECK(terminal.str().empty());
  trace::Progress timed({.steps = 2, .lines = true}, out, terminal);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  timed.step(0, 1.5, 1);  // a token in at least 20 ms
  const std::string text = out.str();
  const double rate = std::stod(text.substr(text.find("1.5000") + 6));
  CHECK(text.find("step 1/2  loss 1.5000") == 0);
  CHECK(rate <= 50);
}

TEST_CASE("ticks are round") {
  CHECK(trace::detail::ticks(0, 500, 5) == std::vector<double>{0, 100, 200, 300, 400, 500});
  CHECK(trace::detail::ticks(1.9, 5.6, 4) == std::vector<double>{2, 3, 4, 5});
}

TEST_CASE("the loss curve") {
  trace::LossCurve curve;
  for (int step = 0; step < 300; ++step) curve.training.push_back({double(step), 1.5 + 4 * std::exp(-step / 60.0)});
  curve.training.push_back({300, NAN});
  curve.validation = {{100, 2.4}, {200, 1.8}, {299, 1.7}};
  const std::string svg = curve.svg("a < b & c");
  CHECK(svg.rfind("<svg xmlns=", 0) == 0);
  CHECK(svg.find("</svg>") != std::string::npos);
  CHECK(svg.find("a &lt; b &amp; c") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("validation, at the end 1.700") != std::string::npos);
  CHECK(trace::LossCurve{}.svg("").find("</svg>") != std::string::npos);  // a run that ended before its first step
}
