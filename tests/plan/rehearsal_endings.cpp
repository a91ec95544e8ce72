// SPDX-License-Identifier: Apache-2.0
// covers: weft/runtime/rehearsal_guards.hpp weft/runtime/rehearsal_report.hpp
// The ends of rehearsals and their messages: programs that poll, loop by the clock or train for long, errors of the program, its
// printed lines, and the last step's work in tables and JSON.

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <weft/data/loader.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/layouts.hpp>
#include <weft/runtime/rehearsal_guards.hpp>
#include <weft/runtime/rehearsal_report.hpp>
#include <weft/weft.hpp>

#include <doctest/doctest.h>

#include "support/temporary_folder.hpp"

using namespace weft;

namespace {

using Parallel = DataParallel<PipelineParallel<models::Gpt>>;
const models::GptConfig config{.vocabulary = 64, .layers = 4, .width = 32, .heads = 4, .sequence = 16};

Batch batch_of(std::size_t sequences) {
  Batch batch{.sequences = sequences, .length = config.sequence, .micro_batches = sequences};
  batch.tokens.assign(sequences * batch.length, 1);
  batch.targets.assign(sequences * batch.length, 2);
  return batch;
}

// Trains until `goes_on` returns false.
template <class F>
auto training(const F& goes_on) {
  return [goes_on](World& world) {
    const Mesh<dp, pp> mesh(world, {.pp = 2});
    Parallel model(mesh, config);
    optim::AdamW optimizer(model);
    for (int step = 0; goes_on(step); ++step) {
      Batch batch = batch_of(2);
      batch.first_sequence = 2 * std::size_t(mesh.rank(dp{}));
      model.train_step(batch);
      optimizer.step();
    }
    model.evaluate(batch_of(2));
  };
}

/// A program's standard output and standard error, and its exit code.
struct Ending {
  int code;
  std::string out, error;
};
template <class F>
Ending ending_of(const F& run) {
  const weft_test::TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder.path / name).string(); };
  std::fflush(stdout), std::fflush(stderr);
  const int out = ::dup(1), error = ::dup(2);
  REQUIRE(std::freopen(file("out").c_str(), "w", stdout) != nullptr);
  REQUIRE(std::freopen(file("error").c_str(), "w", stderr) != nullptr);
  const int code = run();
  std::fflush(stdout), std::fflush(stderr);
  ::dup2(out, 1), ::dup2(error, 2);
  ::close(out), ::close(error);
  const auto text = [&](const char* name) {
    std::ostringstream all;
    all << std::ifstream(file(name)).rdbuf();
    return all.str();
  };
  return {code, text("out"), text("error")};
}
template <class F>
Ending rehearsed(const char* ranks, const F& program) {
  return ending_of([&] { return runtime::run(RunOptions{.rehearse = ranks}, program); });
}

inline constexpr data::Field<"x", float> x;
inline constexpr data::Field<"y", float> y;

struct EnvironmentVariable {
  EnvironmentVariable(const char* of, const std::string& value) : name(of) { ::setenv(name, value.c_str(), 1); }
  ~EnvironmentVariable() { ::unsetenv(name); }
  const char* name;
};

std::size_t times(const std::string& text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a program that tests a request until it is done goes on") {
  for (const bool early : {false, true})
    for (const bool trace : {false, true}) {
      int asked = 0;
      rehearse({.rank = 3, .ranks = 8, .early = early, .trace = trace}, [&](World& world) {
        std::vector<double> x(10, 1.0);
        Request sum = world.communicator().all_reduce_async(x);
        while (!sum.test()) ++asked;
        CHECK(x[0] == 8);
      });
      CHECK((early && !trace ? asked == 0 : asked > 100));
    }
}

TEST_CASE("a loop that never ends is refused in one line that names the call, and ended after the steps that are wanted") {
  const auto forever = training([](int) { return true; });
  const auto started = std::chrono::steady_clock::now();
  const auto by_clock = training([&](int) { return std::chrono::steady_clock::now() - started < std::chrono::hours(1); });
  for (const auto& ending : {rehearsed("8", forever), rehearsed("8:1", by_clock)}) {
    CHECK(ending.code == 2);
    CHECK(ending.error.starts_with("weft: train_step in a rehearsal, after 1000 of them"));
    CHECK(ending.error.find("WEFT_REHEARSE_STEPS=3") != std::string::npos);
    CHECK(times(ending.error, "\n") == 1);
  }
  const EnvironmentVariable three("WEFT_REHEARSE_STEPS", "3");
  const Ending ended = rehearsed("8", forever);
  CHECK(ended.code == 0);
  CHECK(ended.out.find("steps of an optimizer                     3            3") != std::string::npos);
  for (const char* wrong : {"0", "1001", "x"}) {
    const EnvironmentVariable steps("WEFT_REHEARSE_STEPS", wrong);
    CHECK(rehearsed("8", forever).code == 2);
  }
}

TEST_CASE("the layouts of a program are listed, the fastest first") {
  const auto twice = training([](int step) { return step < 2; });
  const EnvironmentVariable layouts("WEFT_REHEARSE_LAYOUTS", "2");
  const Ending nameless = rehearsed("4", twice);
  CHECK(nameless.code == 2);
  CHECK(nameless.error.starts_with("weft: WEFT_REHEARSE_LAYOUTS: layouts are compared by their time: name a machine"));
  const EnvironmentVariable machine("WEFT_MACHINE", "h100");
  const Ending ending = rehearsed("4", twice);
  CHECK(ending.code == 0);
  CHECK_MESSAGE(ending.out.find("layouts of 4 ranks on h100: 9 in all") != std::string::npos, ending.out);  // pp 1; 2 and 4
  CHECK(times(ending.out, " GB ") == 2);
  {
    const EnvironmentVariable path("WEFT_REHEARSE_JSON", "-");
    const nlohmann::json json = nlohmann::json::parse(rehearsed("4", twice).out);
    CHECK(json["machine"] == "h100");
    CHECK(json["ranks"] == 4);
    CHECK(json["all"] == 9);
    CHECK(json["layouts"].size() + json["refused"].get<std::size_t>() == 9);  // all that fit, not only those of the table
    CHECK(json["layouts"].size() > 2);
    const auto& best = json["layouts"][0];
    CHECK(ending.out.find("\n  " + best["layout"].get<std::string>() + " ") != std::string::npos);
    CHECK(best["samples_per_second"].get<double>() >= json["layouts"][1]["samples_per_second"].get<double>());
    CHECK(best["memory_bytes"].get<double>() > 0);
    for (const auto& layout : json["layouts"]) {
      CHECK(layout["degrees"]["dp"].get<int>() * layout["degrees"]["pp"].get<int>() == 4);
      CHECK(layout.contains("schedule") == (layout["layout"].get<std::string>().find(", Z") != std::string::npos ||
                                            layout["layout"].get<std::string>().find(", GPipe") != std::string::npos));
    }
  }
  const EnvironmentVariable memory("WEFT_REHEARSE_MEMORY", "1kB");
  const Ending full = rehearsed("4", twice);
  CHECK(full.code != 0);
  CHECK_MESSAGE(full.error.find("layouts of 4 ranks fits 1.0 kB: the smallest needs") != std::string::npos, full.error);
}

TEST_CASE("models that are trained in turn have one step, with the optimizers of all") {
  using Single = SingleDevice<models::Gpt>;
  const auto two = [](int steps, auto step, bool trace = false) {
    return rehearse({.ranks = 2, .trace = trace, .steps = steps}, [&](World& world) {
      Single one(world.device(), config), other(world.device(), config);
      optim::AdamW of_one(one), of_other(other);
      for (int i = 0; i < 10; ++i) {
        step(one, of_one, other, of_other);
        one.evaluate(batch_of(1));  // outside the step
      }
    });
  };
  const auto together = [](Single& one, optim::AdamW& of_one, Single& other, optim::AdamW& of_other) {
    one.train_step(batch_of(2)), other.train_step(batch_of(2));
    of_one.step(), of_other.step();
  };
  const auto in_turn = [](Single& one, optim::AdamW& of_one, Single& other, optim::AdamW& of_other) {
    one.train_step(batch_of(2)), of_one.step();
    other.train_step(batch_of(2)), of_other.step();
  };
  const auto first_twice = [](Single& one, optim::AdamW& of_one, Single& other, optim::AdamW& of_other) {
    other.train_step(batch_of(2)), of_other.step();
    for (int i = 0; i < 2; ++i) one.train_step(batch_of(2)), of_one.step();
  };
  // As with a generator and its critic: each phase also begins a step of the other model.
  const auto with_steps_that_are_discarded = [](Single& one, optim::AdamW& of_one, Single& other, optim::AdamW& of_other) {
    one.train_step(batch_of(2)), of_one.step();
    one.loss(batch_of(1)), other.train_step(batch_of(2));
    of_other.step();
    one.discard_gradients();
  };
  const Rehearsal alone = rehearse({.trace = true}, [](World& world) {
    Single one(world.device(), config);
    optim::AdamW optimizer(one);
    for (int i = 0; i < 10; ++i) one.train_step(batch_of(2)), optimizer.step();
  });
  const auto check = [&](const Rehearsal& notes, double models) {
    CHECK(notes.last_step.product_flops == models * alone.last_step.product_flops);
    CHECK(notes.last_step.of("optimizer").launches == models * alone.last_step.of("optimizer").launches);
    CHECK(notes.last_step.launches == models * alone.last_step.launches);
    if (!notes.trace) return;
    const double more = double(notes.trace->size()) - models * double(alone.trace->size());
    CHECK(more >= 0);
    CHECK(more < models);  // the second model's inputs arrive while the trace is recorded
    CHECK(notes.trace->rows == alone.trace->rows);
  };
  for (const bool trace : {false, true}) {
    check(two(0, together, trace), 2);
    check(two(0, in_turn, trace), 2);
    check(two(0, first_twice, trace), 1);
    check(two(3, together, trace), 2);
    check(two(3, in_turn, trace), 2);
    for (const int steps : {0, 3}) {
      const Rehearsal notes = two(steps, with_steps_that_are_discarded, trace);
      CHECK(notes.steps == (steps == 0 ? 20 : 6));
      CHECK(notes.last_step.of("optimizer").launches == 2 * alone.last_step.of("optimizer").launches);
      CHECK(notes.last_step.product_flops > 2 * alone.last_step.product_flops);
      CHECK(notes.last_step.product_flops < 3 * alone.last_step.product_flops);
      if (!trace) continue;
      CHECK(notes.trace->size() > 2 * alone.trace->size());
      CHECK(notes.trace->size() < 3 * alone.trace->size());
      CHECK(notes.trace->rows == alone.trace->rows);
    }
  }
  CHECK(two(0, together).steps == 20);
  CHECK(two(2, together).steps == 4);
  CHECK(two(2, in_turn).steps == 4);
}

TEST_CASE("messages without end are refused in one line that names the call") {
  const Ending ended = rehearsed("8", [](World& world) {
    for (std::vector<double> x(1);;) world.communicator().all_reduce(x);
  });
  CHECK(ended.code == 2);
  CHECK(ended.error.starts_with("weft: all_reduce on 'world' in a rehearsal, after 1000000 messages in a row: "));
  CHECK(times(ended.error, "\n") == 1);
}

TEST_CASE("a loop whose end depends on values read from the device is refused in one line") {
  const Ending ended = rehearsed("8", [](World& world) {
    const Tensor<float, DefaultDevice::execution_space> x(world.device(), {4});
    while (copy_to_host(x)[0] < 1) kernels::scale<float>(world.device(), 4, 2.f, x.data(), x.data());
  });
  CHECK(ended.code == 2);
  CHECK(ended.error.starts_with("weft: a tensor is copied to or from the host in a rehearsal, 1000000 times without"));
  CHECK(times(ended.error, "\n") == 1);
}

TEST_CASE("a user's thread that would have to end is refused in one line") {
  const EnvironmentVariable three("WEFT_REHEARSE_STEPS", "3");
  const auto in_a_thread = [](World& world) { std::thread([&] { training([](int) { return true; })(world); }).join(); };
  const Ending ended = ending_of([&] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(runtime::run(RunOptions{.rehearse = "8:0"}, in_a_thread));
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  });
  CHECK(ended.code == 2);
  CHECK(
      ended.error.starts_with("weft: WEFT_REHEARSE_STEPS ends the program where it begins one step more, which another thread"));
  CHECK(times(ended.error, "\n") == 1);
}

TEST_CASE("a program that reads its arguments itself takes weft's out of them first") {
  const auto taken = [](std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    int argc = int(argv.size());
    argv.push_back(nullptr);
    const RunOptions options = take_run_options(argc, argv.data());
    CHECK(argv[std::size_t(argc)] == nullptr);
    CHECK(options.argc == argc);
    std::string text;
    for (int i = 0; i < argc; ++i) text += argv[std::size_t(i)] + std::string(" ");
    const auto add = [&](const char* value) { text += std::string("|") + (value == nullptr ? "-" : value); };
    add(options.rehearse), add(options.ranks_per_node), add(options.machine);
    return text;
  };
  CHECK(taken({"p"}) == "p |-|-|-");
  CHECK(taken({"p", "--tp", "2", "--rehearse", "8:1", "--x"}) == "p --tp 2 --x |8:1|-|-");
  CHECK(taken({"p", "--machine=h100", "--rehearse=8", "--ranks-per-node", "4"}) == "p |8|4|h100");
  CHECK(taken({"p", "--rehearsed", "--machines=2"}) == "p --rehearsed --machines=2 |-|-|-");
  CHECK(taken({"p", "--tp", "--rehearse"}) == "p --tp ||-|-");
  const auto ended = [](const RunOptions& options) {
    return ending_of([&] { return runtime::run(options, training([](int step) { return step < 2; })); });
  };
  CHECK(ended({.rehearse = ""}).error.find("--rehearse needs a value") != std::string::npos);
  CHECK(ended({.machine = "h100"}).error.starts_with("weft: --machine without --rehearse N or WEFT_REHEARSE: "));
  CHECK(ended({.ranks_per_node = "4"}).error.starts_with("weft: --ranks-per-node without --rehearse N or WEFT_REHEARSE: "));
  const Ending all = ended({.rehearse = "8", .ranks_per_node = "4", .machine = "a100"});
  CHECK(all.code == 0);
  CHECK(all.out.find("pp 2 (over 2 nodes)") != std::string::npos);
  CHECK(all.out.find("estimate of a step of 8 ranks on a100") != std::string::npos);
}

TEST_CASE("of a launcher's processes the first rehearses for all") {
  const auto ending = [](const char* name, const char* number, const char* job = "1") {
    const EnvironmentVariable process(name, number), torchrun("TORCHELASTIC_RUN_ID", job);
    return rehearsed("8", training([](int step) { return step < 2; }));
  };
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    CHECK(ending(name, "0").out.starts_with("rehearsal of the ranks that differ, of 8\n"));
    const Ending other = ending(name, "3");
    CHECK(other.code == 0);
    CHECK(other.out.empty());
  }
  CHECK(!ending("RANK", "3", "").out.empty());  // a value of the user
}

TEST_CASE("a custom training loop is a step of training, from its first call to the optimizer's step") {
  for (const bool stack_in_a_wrapper : {false, true}) {
    const auto loop = [&](int steps) {
      return [=](World& world) {
        const auto train = [&](auto& model) {
          optim::AdamW optimizer(model);
          for (int step = 0; step != steps; ++step) {
            for (int part = 0; part < 2; ++part) model.loss(batch_of(1)).backward();
            optimizer.step();
          }
        };
        if (stack_in_a_wrapper) {
          const Mesh<dp> mesh(world, Degrees{});
          DataParallel<models::Gpt> model(mesh, config);
          train(model);
        } else {
          SingleDevice<models::Gpt> model(world.device(), config);
          train(model);
        }
      };
    };
    const Rehearsal notes = rehearse({.ranks = 1, .trace = true}, loop(3));
    CHECK(notes.steps == 3);
    CHECK(notes.last_step.product_flops == doctest::Approx(notes.product_flops / 3));
    CHECK(notes.trace->rows > 0);
    CHECK(rehearse({.ranks = 1, .steps = 2}, loop(1 << 30)).steps == 2);
    const Ending ended = rehearsed("1", loop(-1));
    CHECK(ended.code == 2);
    CHECK(ended.error.starts_with("weft: train_step in a rehearsal, after 1000 of them"));
  }
}

TEST_CASE("a loop that trains nothing and never ends is refused in one line that names the call") {
  const auto check = [](auto call) {
    const Ending ended = rehearsed("2", [&](World& world) {
      SingleDevice<models::Gpt> model(world.device(), config);
      for (;;) call(model);
    });
    CHECK(ended.code == 2);
    CHECK(ended.error.starts_with("weft: a model is called in a rehearsal, 10000 times without an optimizer's step: "));
    CHECK(times(ended.error, "\n") == 1);
  };
  check([](auto& model) { model.evaluate(batch_of(1)); });
  check([](auto& model) { model.next_logits(std::vector<std::int32_t>{1, 2}); });
  check([](auto& model) { model.forward(batch_of(1)); });
}

TEST_CASE("a loader that has fewer than three batches has no more in a rehearsal") {
  struct Squares {
    using Fields = FieldBatch<x, y>;
    std::size_t size() const { return 64; }
    void load(std::size_t, Fields::Sample&) const {}
  };
  for (const std::uint64_t first : {0, 1, 2, 7}) {
    std::vector<std::uint64_t> steps;
    rehearse({.ranks = 2}, [&](World& world) {
      const Mesh<dp> mesh(world, Degrees{});
      for (auto&& batch : data::Loader(mesh, Squares{}, {.global_batch = 32, .first_step = first})) steps.push_back(batch.step);
    });
    CHECK(steps.size() == (first < 2 ? 2 - first : 0));
    if (!steps.empty()) CHECK(steps.front() == first);
  }
}

TEST_CASE("ranges of weft's own batches end after three steps, or after those that are wanted") {
  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "text.txt").string();
  std::ofstream(file) << std::string(5000, 'x');
  struct Squares {
    using Fields = FieldBatch<x, y>;
    std::size_t size() const { return 1000; }
    void load(std::size_t, Fields::Sample&) const {}
  };
  for (const int wanted : {0, 2, 5}) {
    int batches = 0, squares = 0, real = 0;
    const auto program = [&](World& world) {
      const Mesh<dp, pp> mesh(world, {.pp = 2});
      for (auto&& batch : data::Batches(mesh, file, {.sequence = 16, .global_batch = 8, .steps = 100}))
        batches += batch.length == 16;
      for (auto&& batch : data::Loader(mesh, Squares{}, {.global_batch = 8, .epochs = 2})) squares += batch.samples == 2;
      for (auto&& batch : data::Batches(mesh, file, {.sequence = 16, .global_batch = 8, .steps = 1})) real += batch.length == 16;
    };
    rehearse({.ranks = 8, .steps = wanted}, program);
    CHECK(batches == (wanted == 0 ? 3 : wanted));
    CHECK(squares == (wanted == 0 ? 3 : wanted));
    CHECK(real == 1);
  }
}

TEST_CASE("a program's errors mention the rehearsal; errors of layouts are unchanged") {
  const Ending own = rehearsed("4", [](World&) { throw Error("the table has changed"); });
  CHECK(own.code == 1);
  CHECK(own.error ==
        "weft: the table has changed; this was a rehearsal, of rank 0, in which tensors read as zeros and other ranks have this "
        "rank's values\n");
  const Ending foreign = rehearsed("4", [](World&) { throw std::runtime_error("no convergence"); });
  CHECK(foreign.code == 1);
  CHECK(foreign.error.starts_with("no convergence; this was a rehearsal"));
  const Ending layout = rehearsed("4", [](World& world) { (void)Mesh<dp, tp>(world, {.tp = 3}); });
  CHECK(layout.code == 2);
  CHECK(layout.error.find("rehearsal") == std::string::npos);
}

TEST_CASE("a program that makes its World itself is refused if a rehearsal is wanted, which run gives it") {
  const EnvironmentVariable wanted("WEFT_REHEARSE", "8:5");
  std::string text;
  const Communicator ranks(std::make_shared<comm::SelfGroup>("world", "mpi"));
  try {
    World world(ranks);
  } catch (const UsageError& error) {
    text = error.what();
  }
  CHECK(text.starts_with("weft: World: WEFT_REHEARSE is set, and a World that a program makes itself is a real one: "));
  const Ending ending = ending_of([] { return runtime::run(RunOptions(), training([](int step) { return step < 2; })); });
  CHECK(ending.code == 0);
  CHECK(ending.out.starts_with("rehearsal of rank 5 of 8\n"));
  CHECK(World(Communicator()).size() == 1);  // a world of one process; `--machine this` measures on it, outside the rehearsal
  const EnvironmentVariable none("WEFT_REHEARSE", "");
  CHECK(World(ranks).size() == 1);
}

TEST_CASE("the program's output is printed once, however many ranks and peaks are rehearsed") {
  const auto twice = training([](int step) { return step < 2; });
  const auto talking = [&](World& world) {
    std::printf("a line of the program\n");
    std::cout << "another line\n";
    twice(world);
  };
  const EnvironmentVariable machine("WEFT_MACHINE", "h100");
  std::ios::sync_with_stdio(false);
  const Ending ending = rehearsed("8", talking);
  std::ios::sync_with_stdio(true);
  CHECK(ending.code == 0);
  CHECK(times(ending.out, "a line of the program") == 1);
  CHECK(times(ending.out, "another line\n") == 1);
  CHECK(ending.out.substr(0, 35).find("a line of the program\n") != std::string::npos);
  CHECK(ending.out.substr(35).starts_with("rehearsal of the ranks that differ, of 8\n"));
  CHECK(times(ending.out, "estimate of a step of 8 ranks on h100") == 1);
}

TEST_CASE("tables show the last step's work, JSON that of the program, too") {
  const auto program = [](int steps) { return training([=](int step) { return step < steps; }); };
  const Rehearsal one = rehearse({.rank = 4, .ranks = 8}, program(1)), four = rehearse({.rank = 4, .ranks = 8}, program(4));
  CHECK(four.last_step.product_flops == one.last_step.product_flops);
  CHECK(four.product_flops == one.product_flops + 3 * one.last_step.product_flops);  // each with one evaluation
  CHECK(four.last_step.of("pp", "recv").calls == 4);                                 // of each micro-batch what it is, and it
  CHECK(four.last_step.of("pp", "send").calls == 4);
  CHECK(four.last_step.of("optimizer").launches > 0);
  CHECK(four.last_step.launches < four.launches / 4);
  const nlohmann::json json = nlohmann::json::parse(runtime::json_of(four));
  CHECK(json["product_flops"].get<double>() == four.product_flops);
  CHECK(json["last_step"]["product_flops"].get<double>() == four.last_step.product_flops);
  CHECK(json["last_step"]["messages"].size() == four.last_step.messages.size());
  CHECK(runtime::table_of(four).find("in its last step\n") != std::string::npos);
  const Rehearsal none =
      rehearse({}, [](World& world) { SingleDevice<models::Gpt>(world.device(), config).evaluate(batch_of(1)); });
  CHECK(none.last_step.launches == 0);
  CHECK(runtime::table_of(none).find("in the whole program (no optimizer took a step)\n") != std::string::npos);
  // The work of an earlier state is subtracted; kinds without work since then are omitted.
  RehearsedWork before, after;
  before.sent("dp", "all_reduce", 8);
  after = before;
  CHECK(after.since(before).messages.empty());
  after.sent("dp", "all_reduce", 4);
  after.sent("tp", "all_gather", 2);
  const RehearsedWork since = after.since(before);
  CHECK(since.messages.size() == 2);
  CHECK(since.of("dp", "all_reduce").calls == 1);
  CHECK(since.of("dp", "all_reduce").bytes == 4);
}

TEST_CASE("JSON in place of the table, and of one rank both peaks") {
  const EnvironmentVariable path("WEFT_REHEARSE_JSON", "-");
  const auto program = training([](int step) { return step < 2; });
  const nlohmann::json one = nlohmann::json::parse(rehearsed("8:5", program).out),
                       early = nlohmann::json::parse(rehearsed("8:5:early", program).out),
                       all = nlohmann::json::parse(rehearsed("8", program).out);
  CHECK(one["least_peak_bytes"] == early["peak_bytes"]);
  CHECK(one["least_peak_bytes"] < one["peak_bytes"]);
  CHECK(!early.contains("least_peak_bytes"));
  CHECK(all.size() == 2);
  CHECK(all[1]["rank"] == 4);
}

TEST_CASE("the machine may be an argument, and JSON has its estimate") {
  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "all.json").string();
  const EnvironmentVariable path("WEFT_REHEARSE_JSON", file);
  const auto program = training([](int step) { return step < 2; });
  const auto with = [&](std::string option) {
    std::string name = "program", rehearse = "--rehearse=8";
    char* words[] = {name.data(), rehearse.data(), option.data()};
    return ending_of([&] { return runtime::run(3, words, program); });
  };
  const Ending ending = with("--machine=a100");
  CHECK(ending.code == 0);
  CHECK(ending.out.find("estimate of a step of 8 ranks on a100\n") != std::string::npos);
  CHECK(ending.out.find("other kernels") != std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(std::ifstream(file));
  CHECK(json["stages"].size() == 2);
  CHECK(json["stages"][1]["stage"] == 1);
  CHECK(json["estimate"]["machine"] == "a100");
  CHECK(json["estimate"]["seconds"].get<double>() > 0);
  double kinds = 0;
  const nlohmann::json &stage = json["estimate"]["stages"][0], &by_kind = json["estimate"]["kernels"][0];
  for (const auto& [kind, seconds] : by_kind.items()) kinds += seconds.get<double>();
  CHECK(by_kind["norm"].get<double>() > 0);
  CHECK(kinds == doctest::Approx(stage["other kernels"].get<double>()).epsilon(1e-12));  // host copies among them
  CHECK(with("--machine=").code == 2);
  CHECK(with("--machine=tpu").code == 2);
  CHECK(with("--machines=tpu").code == 0);
}
