// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/flight_recorder.hpp weft/comm/in_function.hpp weft/comm/program_function.hpp
// The flight recorder: its entries, concurrent reads by another thread, and its files.
// covers: weft/comm/flight_file.hpp weft/comm/flight_clock.hpp
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/flight_clock.hpp>
#include <weft/comm/flight_file.hpp>
#include <weft/comm/flight_recorder.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/comm/program_function.hpp>
#include <weft/comm/threads.hpp>

#include "support/temporary_folder.hpp"

using namespace weft;
using comm::FlightRecorder;

namespace {

const comm::Call reduce{.operation = comm::Operation::all_reduce, .type = DataType::float32, .count = 16};

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
std::size_t times(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

struct FlightFolder {
  weft_test::TemporaryFolder folder;
  std::filesystem::path path = folder.path / "records";
  FlightFolder() { ::setenv(comm::flight_variable, path.c_str(), 1); }
  ~FlightFolder() { ::unsetenv(comm::flight_variable); }
  std::string of(int rank) const { return content(path / ("weft_flight_" + std::to_string(rank) + ".json")); }
};

}  // namespace

TEST_CASE("the ring keeps the last calls, with their numbers among collectives and messages") {
  auto recorder = std::make_unique<FlightRecorder>();
  const int all[] = {0, 3}, other[] = {3, 4};
  const auto line_dp = recorder->open("dp", all, 0), line_pp = recorder->open("a_long_axis", other, 1);
  FlightRecorder::Line &dp = *line_dp, &pp = *line_pp;
  CHECK(recorder->text() == "nothing");
  const std::uint64_t first = recorder->begin(dp, 1, reduce);
  CHECK(recorder->text() == "all_reduce(sum) of 16 float32 on dp #1 (not complete)");
  recorder->complete(first);
  recorder->begin(pp, 1, {.operation = comm::Operation::send, .type = DataType::uint8, .root = 1, .tag = 7, .count = 5});
  CHECK(recorder->text() ==
        "send of 5 uint8 with tag 7 on a_long_axis #1 (not complete), all_reduce(sum) of 16 float32 on dp #1");
  auto records = recorder->records();
  REQUIRE(records.size() == 2);
  CHECK((records[0].end != 0 && records[0].step == 1 && records[0].peer == -1));
  CHECK((records[1].end == 0 && records[1].step == 1 && records[1].peer == 4 && records[1].line == pp.index));
  const std::size_t more = 3 * FlightRecorder::capacity + 5;
  for (std::size_t k = 0; k < more; ++k) recorder->complete(recorder->begin(dp, k + 2, reduce));
  recorder->complete(1);  // long gone
  records = recorder->records();
  REQUIRE(records.size() == FlightRecorder::capacity);
  CHECK(FlightRecorder::capacity >= 1000);
  for (std::size_t k = 0; k < records.size(); ++k) CHECK(records[k].step == more + 1 - records.size() + 1 + k);
  CHECK(times(recorder->text(), "all_reduce") == FlightRecorder::shown);
}

TEST_CASE("communicators that have ended are forgotten, but for those of which a call is kept") {
  auto recorder = std::make_unique<FlightRecorder>();
  const int all[] = {0, 1};
  const auto world = recorder->open("world", all, 0);
  for (std::uint64_t k = 1; k <= 100000; ++k) {
    const auto part = recorder->open("part", all, k);
    recorder->complete(recorder->begin(*part, 1, reduce));
  }
  CHECK(recorder->lines().size() <= 2 * (FlightRecorder::capacity + 2));
  const auto records = recorder->records();
  const auto lines = recorder->lines();
  for (const auto& record : records) {  // beyond 65,536, too
    const auto line = std::ranges::find(lines, record.line, &FlightRecorder::Line::index);
    REQUIRE(line != lines.end());
    CHECK(line->number == record.number + 1);
  }
  CHECK(recorder->text(1) == "all_reduce(sum) of 16 float32 on part #1");
  for (std::uint64_t k = 0; k < 2 * FlightRecorder::capacity; ++k) recorder->complete(recorder->begin(*world, k + 1, reduce));
  for (std::uint64_t k = 0; k < 4 * FlightRecorder::capacity; ++k) static_cast<void>(recorder->open("unused", all, k));
  CHECK(recorder->lines().size() <= 130);
}

TEST_CASE("splits leave nothing behind: memory is the same after thousands of them") {
  const auto resident_kib = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
    return 0L;
  };
  long before = 0, after = 0;
  comm::run_threads(2, [&](const Communicator& world) {
    const auto split = [&](int times) {
      for (int k = 0; k < times; ++k) {
        const Communicator part = world.split(0, world.rank(), "part");
        if (k % 16 == 0) part.barrier();
      }
    };
    split(5000);
    if (world.rank() == 0) before = resident_kib();
    split(30000);
    if (world.rank() == 0) after = resident_kib();
  });
  MESSAGE("30,000 splits: " << after - before << " KiB more");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(after - before < 4096);  // 0.5 kB a rank and split: 30,000
#endif
}

TEST_CASE("errors between ranks name the function of the program in which each rank is") {
  using comm::InFunction;
  using comm::ProgramFunction;
  CHECK_THROWS_WITH(comm::run_threads(2,
                                      [](const Communicator& world) {
                                        std::vector<float> x(16), all(32);
                                        const InFunction mark(world, world.rank() == 0 ? ProgramFunction::checkpoint_save
                                                                                       : ProgramFunction::train_step);
                                        const InFunction inner(world, ProgramFunction::evaluate);  // the program called the outer
                                        if (world.rank() == 0) world.all_gather(x, all);
                                        else world.all_reduce(x);
                                      }),
                    doctest::Contains("(rank 0 in checkpoint::save, rank 1 in train_step)"));
  CHECK_THROWS_WITH(comm::run_threads(2,
                                      [](const Communicator& world) {
                                        const InFunction mark(world, ProgramFunction::evaluate);
                                        if (world.rank() == 0) world.barrier();
                                      }),
                    doctest::Contains("rank 0 in evaluate waits"));
  CHECK_NOTHROW(comm::run_threads(2, [](const Communicator& world) {  // a mark is no part of the call
    if (world.rank() == 0) {
      const InFunction mark(world, ProgramFunction::evaluate);
      return world.barrier();
    }
    world.barrier();
  }));
}

TEST_CASE("another thread reads whole calls, or none") {
  auto recorder = std::make_unique<FlightRecorder>();
  const int all[] = {0, 1};
  const auto opened = recorder->open("dp", all, 0);
  FlightRecorder::Line& line = *opened;
  std::atomic<bool> stop{false};
  std::size_t torn = 0, read = 0;
  std::thread reader([&] {
    while (!stop.load())
      for (const auto& record : recorder->records()) {
        ++read;
        torn += record.count != record.sequence || record.step != record.sequence || record.number + 1 != record.sequence;
      }
  });
  comm::Call call = reduce;
  for (std::uint64_t k = 1; k < 300000 || read == 0; ++k) {
    call.count = k;
    recorder->complete(recorder->begin(line, k, call));
  }
  stop = true;
  reader.join();
  CHECK(torn == 0);
  CHECK(read > 0);
}

TEST_CASE("an error writes one file a rank, and none without a folder") {
  const auto fails = [](const Communicator& world) {
    const Communicator pair = world.split(world.rank() % 2, world.rank(), "tp");
    std::vector<float> x(16);
    for (int k = 0; k < 20; ++k) world.all_reduce(x);
    pair.all_reduce(x);
    world.barrier();
    if (world.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others are in their last call
      throw Error("a \"quoted\"\nline");
    }
    world.barrier();
  };
  CHECK_THROWS(comm::run_threads(4, fails));  // no folder: nowhere
  CHECK(comm::write_flights("nobody is there") == 0);
  const FlightFolder folder;
  CHECK_THROWS(comm::run_threads(4, fails));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string text = folder.of(rank);
    CHECK(text.find("\"rank\": " + std::to_string(rank) + ", \"world_size\": 4, \"backend\": \"threads\"") != std::string::npos);
    CHECK(text.find("\"name\": \"tp[" + std::string(rank % 2 == 0 ? "0,2" : "1,3") + "].1\"") != std::string::npos);
    CHECK(times(text, "weft:all_reduce") == 21);
    CHECK(times(text, "\"state\": \"started\"") == (rank == 2 ? 0 : 1));
    CHECK(times(text, "duration_ms") >= 21);
    struct ::stat status {};
    const auto path = folder.path / ("weft_flight_" + std::to_string(rank) + ".json");
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
  }
  CHECK(folder.of(2).find("\"reason\": \"weft: a \\\"quoted\\\"?line\"") != std::string::npos);
  CHECK(folder.of(1).find("rank 2 has failed") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 4);  // nothing half-written stays
}

TEST_CASE("a name of a rank's file that is no regular file is refused before the run, and never replaced") {
  FlightFolder folder;
  std::filesystem::create_directory(folder.path);
  CHECK_NOTHROW(comm::detail::require_flight_folder());
  const std::string fifo = (folder.path / "weft_flight_1.json").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(comm::detail::require_flight_folder(),
                       ("weft: WEFT_FLIGHT_DIR: cannot write '" + fifo + "': it is a FIFO, a regular file is needed").c_str(),
                       UsageError);
  CHECK_FALSE(comm::detail::write_flight_file(folder.path.string(), 1, "{}"));
  CHECK(comm::detail::write_flight_file(folder.path.string(), 0, "{}"));
  CHECK(std::filesystem::is_fifo(fifo));
  CHECK(folder.of(0) == "{}");
}

TEST_CASE("an unusable folder leaves the error unchanged") {
  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "file").string();
  std::ofstream(file) << "here";
  ::setenv(comm::flight_variable, (file + "/below").c_str(), 1);
  CHECK_THROWS_WITH(comm::run_threads(2,
                                      [](const Communicator& world) {
                                        if (world.rank() == 0) throw Error("the first error");
                                        world.barrier();
                                      }),
                    "weft: the first error");
  ::unsetenv(comm::flight_variable);
}
