// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/region.hpp weft/comm/rank_times.hpp weft/comm/step_use.hpp
// WEFT_TRACE: which steps are recorded, how events nest, and the files of a run that ends and of one that fails.
#include <doctest/doctest.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <Kokkos_Core.hpp>

#include <weft/comm/rank_times.hpp>
#include <weft/comm/step_use.hpp>
#include <weft/data/batches.hpp>
#include <weft/device/region.hpp>
#include <weft/models/gpt.hpp>
#include <weft/nn/embedding.hpp>
#include <weft/nn/norm.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/rehearse.hpp>
#include <weft/runtime/run.hpp>
#include <weft/runtime/step_trace.hpp>

#include "support/batches.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;

namespace {

struct Environment {
  explicit Environment(const std::string& value) { ::setenv("WEFT_TRACE", value.c_str(), 1); }
  ~Environment() { ::unsetenv("WEFT_TRACE"); }
};

nlohmann::json events_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in)["traceEvents"];
}

struct Event {
  std::string name, category;
  double begin, end;
};

std::vector<Event> of_rank(const nlohmann::json& all, int rank) {
  std::vector<Event> found;
  for (const auto& e : all)
    if (e["ph"] == "X" && e["pid"] == rank)
      found.push_back({e["name"], e["cat"], double(e["ts"]), double(e["ts"]) + double(e["dur"])});
  return found;
}

// A text for training, in the folder.
std::string corpus(const weft_test::TemporaryFolder& folder) {
  const std::string path = folder.path / "corpus.txt";
  std::ofstream out(path);
  for (int i = 0; i < 2000; ++i) out << i * i << ' ';
  return path;
}

int train_on(World& world, const std::string& text, int tp_degree, int pp_degree, int steps, bool fails = false) {
  Mesh<dp, tp, pp> mesh(world, {.tp = std::size_t(tp_degree), .pp = std::size_t(pp_degree)});
  DataParallel<TensorParallel<PipelineParallel<models::Gpt>>> model(mesh, {.layers = 2, .width = 16, .heads = 2, .sequence = 8});
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  int step = 0;
  for (auto&& batch : data::Batches(mesh, text, {.sequence = 8, .global_batch = 8, .micro_batch = 2})) {
    model.train_step(batch);
    if (fails && step == 2) throw std::runtime_error("on purpose");
    optimizer.step();
    if (++step == steps) break;
  }
  return step;
}

int train(const std::string& text, int ranks, int tp_degree, int pp_degree, int steps, bool fails = false) {
  return run<comm::Threads>(RunOptions{.ranks = ranks},
                            [=](World& world) { train_on(world, text, tp_degree, pp_degree, steps, fails); });
}

// A block that computes for a given time of its thread's clock, which other programs on the machine do not change.
thread_local double block_s = 0;
double processor_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}
struct TimedBlock : Module<TimedBlock> {
  explicit TimedBlock(const auto& context) : norm(context / "norm", 4) {}
  auto forward(const auto& x) const {
    for (const double end = processor_s() + block_s; processor_s() < end;) continue;
    return norm(x);
  }
  LayerNorm norm;
};
struct TimedModel {
  struct Config {};
  using scalar = float;
  using Front = Embedding;
  using Block = TimedBlock;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config&) { return 1; }
  static std::size_t vocabulary(const Config&) { return weft_test::batch_vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", vocabulary(config), 4);
  }
  static Block make_block(const auto& context, const Config&, std::size_t) { return Block(context / "block"); }
  static Back make_back(const auto& context, const Config&, Front* front) {
    return Back(LayerNorm(context / "norm", 4), front->table);
  }
};

}  // namespace

TEST_CASE("a Kokkos tool is not replaced") {  // the first case, as weft's own callbacks may be set again
  Kokkos::Tools::Experimental::set_push_region_callback([](const char*) {});
  CHECK_THROWS_AS(runtime::detail::observe_for_traces(), UsageError);
  Kokkos::Tools::Experimental::set_push_region_callback(nullptr);
}

TEST_CASE("the variable: a folder, and the steps") {
  const weft_test::TemporaryFolder folder;
  const std::string place = folder.path / "new";
  auto all = runtime::TraceOptions::parse(place);
  CHECK(all.folder == place);
  CHECK(all.first == 0);
  CHECK(all.last == ~std::uint64_t{0});
  CHECK(std::filesystem::is_directory(place));
  auto one = runtime::TraceOptions::parse(place + ":7");
  CHECK(one.folder == place);
  CHECK(one.first == 7);
  CHECK(one.last == 7);
  auto some = runtime::TraceOptions::parse(place + ":2-40");
  CHECK(some.first == 2);
  CHECK(some.last == 40);
  CHECK(runtime::TraceOptions::parse(place + ":2-4x").folder == place + ":2-4x");
  for (const std::string& wrong : {std::string(), std::string(":3"), place + ":5-2", place + ":", place + ":4-", place + ":-4"})
    CHECK_THROWS_AS(runtime::TraceOptions::parse(wrong), UsageError);
  std::ofstream(place + "/trace.json") << "{}";
  CHECK_THROWS_WITH_AS(runtime::TraceOptions::parse(place),
                       ("weft: environment variable WEFT_TRACE is '" + place.substr(0, 80) +
                        "': the folder holds a trace (trace.json): name another folder, or remove it")
                           .c_str(),
                       UsageError);
  std::ofstream(folder.path / "file") << "x";
  CHECK_THROWS_AS(runtime::TraceOptions::parse((folder.path / "file").string()), UsageError);
}

TEST_CASE("the trace of all ranks: steps in the range, events that nest, memory by category") {
  const weft_test::TemporaryFolder folder;
  const Environment variable((folder.path / "t").string() + ":1-8");
  REQUIRE(train(corpus(folder), 4, 2, 2, 10) == 0);
  const auto all = events_of(folder.path / "t/trace.json");
  for (int rank = 0; rank < 4; ++rank) {
    const auto events = of_rank(all, rank);
    std::map<std::string, int> count;
    for (const Event& e : events) ++count[e.name];
    for (int step = 1; step <= 8; ++step) CHECK(count["step " + std::to_string(step)] == 1);
    CHECK(count.count("step 0") + count.count("step 9") == 0);
    CHECK(count["optimizer step"] == 8);
    for (int micro = 0; micro < 4; ++micro) {
      CHECK(count["forward " + std::to_string(micro)] == 8);
      CHECK(count["backward " + std::to_string(micro)] == 8);
    }
    CHECK(count["product"] > 0);
    CHECK(count["all_reduce tp"] > 0);
    std::vector<Event> open;  // events end before those around them
    std::vector<Event> sorted = events;
    std::sort(sorted.begin(), sorted.end(),
              [](const Event& a, const Event& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
    for (const Event& e : sorted) {
      while (!open.empty() && open.back().end <= e.begin) open.pop_back();
      if (!open.empty()) CHECK(e.end <= open.back().end + 1e-3);
      open.push_back(e);
    }
    double best = 0;  // the largest share of a step inside of named events: other programs may interrupt a rank between them
    for (int step = 1; step <= 8; ++step) {
      const std::string name = "step " + std::to_string(step);
      const Event whole = *std::find_if(events.begin(), events.end(), [&](const Event& e) { return e.name == name; });
      double covered = 0, last = whole.begin;
      for (const Event& e : sorted) {
        if (e.name == name || e.begin < whole.begin || e.end > whole.end) continue;
        covered += std::max(0.0, e.end - std::max(last, e.begin));
        last = std::max(last, e.end);
      }
      best = std::max(best, covered / (whole.end - whole.begin));
    }
    CHECK(best >= 0.95);
  }
  std::set<int> counted;
  for (const auto& e : all)
    if (e["ph"] == "C") {
      counted.insert(int(e["pid"]));
      CHECK(e["args"].size() == 5);
      CHECK(double(e["args"]["parameters"]) > 0);
    }
  CHECK(counted.size() == 4);
}

TEST_CASE("messages have the bytes of a rehearsal, and each arrow has two ends, inside of events of two ranks") {
  const weft_test::TemporaryFolder folder;
  const std::string text = corpus(folder);
  {
    const Environment variable((folder.path / "t").string() + ":2");
    REQUIRE(train(text, 4, 2, 2, 4) == 0);
  }
  const auto all = events_of(folder.path / "t/trace.json");
  for (int rank = 0; rank < 4; rank += 2) {  // a rank of each stage
    double last = 0;                         // a rehearsed step ends with the optimizer's, a traced one where the next one begins
    for (const Event& e : of_rank(all, rank))
      if (e.name == "optimizer step") last = e.end;
    std::map<std::pair<std::string, std::string>, std::pair<double, int>> found;  // bytes and calls by axis and operation
    for (const auto& e : all)
      if (e["ph"] == "X" && e["pid"] == rank && e.contains("args") && double(e["ts"]) < last) {
        std::string name = e["name"];
        if (name.starts_with("start ")) name.erase(0, 6);
        auto& [bytes, calls] = found[{name.substr(name.find(' ') + 1), name.substr(0, name.find(' '))}];
        bytes += double(e["args"]["bytes"]);
        ++calls;
      }
    const Rehearsal notes = rehearse({.rank = rank, .ranks = 4}, [&](World& world) { train_on(world, text, 2, 2, 4); });
    int compared = 0;
    for (const auto& messages : notes.last_step.messages)
      if (messages.axis == "tp" || messages.axis == "pp") {
        CAPTURE(messages.axis);
        CAPTURE(std::string(messages.operation));
        const auto& [bytes, calls] = found[{messages.axis, std::string(messages.operation)}];
        CHECK(bytes == messages.bytes);
        CHECK(calls == int(messages.calls));
        ++compared;
      }
    CHECK(compared >= 3);
  }
  std::map<int, std::vector<const nlohmann::json*>> begins, ends;
  int sends = 0, flows = 0;
  for (const auto& e : all) {
    if (e["ph"] == "s") begins[e["id"]].push_back(&e);
    if (e["ph"] == "f") ends[e["id"]].push_back(&e);
    if (e["ph"] == "X") sends += std::string(e["name"]).ends_with("send pp");
  }
  CHECK(begins.size() == ends.size());
  CHECK(sends > 0);
  for (const auto& [id, from] : begins) {
    REQUIRE(from.size() == 1);
    REQUIRE(ends[id].size() == 1);
    const nlohmann::json &begin = *from[0], &end = *ends[id][0];
    CHECK(begin["pid"] != end["pid"]);
    CHECK(double(begin["ts"]) <= double(end["ts"]));
    flows += begin["name"] == "message";
    for (const auto* point : {&begin, &end}) {
      const auto events = of_rank(all, (*point)["pid"]);
      CHECK(std::any_of(events.begin(), events.end(), [&](const Event& e) {
        return e.begin <= double((*point)["ts"]) && double((*point)["ts"]) <= e.end && e.category == "region";
      }));
    }
  }
  CHECK(flows == sends);
}

TEST_CASE("a program that fails leaves a file of each rank") {
  const weft_test::TemporaryFolder folder;
  const Environment variable(folder.path.string());
  CHECK(train(corpus(folder), 2, 1, 1, 9, true) == 1);
  for (int rank = 0; rank < 2; ++rank) {
    const auto all = events_of(folder.path / ("rank-" + std::to_string(rank) + ".json"));
    std::set<std::string> names;
    for (const Event& e : of_rank(all, rank)) names.insert(e.name);
    CHECK(names.count("step 0") == 1);
    CHECK(names.count("step 1") == 1);
  }
  CHECK_FALSE(std::filesystem::exists(folder.path / "trace.json"));
  CHECK(train(corpus(folder), 2, 1, 1, 9, true) == 1);  // as under a supervisor: the next attempt replaces them
}

TEST_CASE("a rank that computes half as long again is named within 20 steps, on every rank, and no other is") {
  std::atomic<int> named{0}, wrong{0};
  CHECK(run<comm::Threads>(RunOptions{.ranks = 4, .threads_per_rank = 1}, [&](World& world) {
          block_s = world.rank() == 1 ? 0.15 : 0.1;
          Mesh<dp> mesh(world);
          DataParallel<TimedModel> model(mesh, {});
          optim::AdamW optimizer(model, {.learning_rate = 1e-3});
          bool found = false;
          for (std::uint64_t step = 0; step < 20; ++step) {
            model.train_step(weft_test::make_batch(step, std::size_t(world.rank()), 4, 1));
            optimizer.step();
            for (const comm::Straggler& slow : optimizer.slow_ranks()) {
              found |= slow.rank == 1;
              if (slow.rank != 1 || slow.slower < 0.3 || slow.slower > 0.7 || slow.others != 3) ++wrong;
            }
          }
          named += found;
          const comm::StepUse use = comm::use_of(world.communicator());
          if (use.computing_s < 0.09 || use.computing_s > 10) ++wrong;
          const auto dp_use = std::find_if(use.axes.begin(), use.axes.end(), [](const auto& axis) { return axis.axis == "dp"; });
          if (dp_use == use.axes.end() || dp_use->calls == 0 || dp_use->bytes == 0) ++wrong;
        }) == 0);
  CHECK(named == 4);
  CHECK(wrong == 0);
}

TEST_CASE("a region of the program itself") {
  const weft_test::TemporaryFolder folder;
  bool named = false;
  const auto program = [&](World&) {
    const trace::Region step([] { return std::string("step 0"); });
    const trace::Region mine([&] {
      named = true;
      return std::string("my solver");
    });
  };
  {
    const Environment variable(folder.path.string());
    REQUIRE(run<comm::Threads>(RunOptions{.ranks = 1}, program) == 0);
  }
  CHECK(named);
  const auto events = of_rank(events_of(folder.path / "trace.json"), 0);
  CHECK(
      std::any_of(events.begin(), events.end(), [](const Event& e) { return e.name == "my solver" && e.category == "region"; }));
}
