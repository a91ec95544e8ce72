// SPDX-License-Identifier: Apache-2.0
// covers: weft/runtime/child_processes.hpp
// A supervisor of shells: the endings after which it restarts, the number of restarts, its messages to the processes, and that
// none of them is left.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <weft/runtime/child_processes.hpp>
#include <weft/runtime/supervisor.hpp>

#include "support/temporary_folder.hpp"

using namespace weft;

namespace {

runtime::Supervision shell(const std::string& script) {
  return {.command = {"sh", "-c", script, "sh"}, .wait_s = 0.01, .longest_wait_s = 0.02, .grace_s = 20};
}
/// The lines that the starts of a script have written.
std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("a restart follows a lost process and an unknown error, and not a program's decision") {
  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "starts").string();
  for (const auto& [end, starts, code] : {std::tuple("exit 0", 1u, 0),
                                          {"exit 2", 1u, 2},
                                          {"exit 3", 1u, 3},
                                          {"exit 130", 1u, 130},
                                          {"exit 1", 3u, 1},
                                          {"kill -9 $$", 3u, 137},
                                          {"kill -SEGV $$", 3u, 139}}) {
    CAPTURE(end);
    std::filesystem::remove(file);
    runtime::Supervision what = shell("echo start $1 >> " + file + "; " + end);
    what.restarts = 2;
    what.after_restart = {"--resume"};
    std::uint64_t step = 0;
    what.saved_step = [&] { return std::optional(++step); };  // always gains
    CHECK(runtime::supervise(what) == code);
    const auto lines = lines_of(file);
    CHECK(lines.size() == starts);
    for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i] == std::string(i == 0 ? "start" : "start --resume"));
  }
}

TEST_CASE("without a new checkpoint it tries fewer ranks, and ends if there are none") {
  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "starts").string();
  runtime::Supervision what = shell("echo of $WORLD_SIZE >> " + file + "; exit 1");
  what.restarts = 9;
  what.processes = 2;
  what.saved_step = [] { return std::optional<std::uint64_t>(4); };
  what.fewer = [](runtime::Supervision& again) { return --again.processes > 0; };
  CHECK(runtime::supervise(what) == 1);
  CHECK(lines_of(file) == std::vector<std::string>{"of 2", "of 2", "of 2", "of 2", "of 1"});
  std::filesystem::remove(file);
  what.fewer = nullptr;
  CHECK(runtime::supervise(what) == 1);
  CHECK(lines_of(file).size() == 4);
}

TEST_CASE("it waits longer only before restarts that follow one which has gained nothing") {
  runtime::Supervision what = shell("exit 1");
  what.restarts = 8;
  what.wait_s = 0.05;
  what.longest_wait_s = 10;
  std::uint64_t step = 0;
  what.saved_step = [&] { return std::optional(++step); };
  const auto seconds = [&] {
    const auto begin = std::chrono::steady_clock::now();
    CHECK(runtime::supervise(what) == 1);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  CHECK(seconds() < 6);  // 0.4 s of waiting; doubled each time it would be 12.75
  what.saved_step = [] { return std::optional<std::uint64_t>(4); };
  what.fewer = [](runtime::Supervision&) { return true; };
  what.restarts = 5;
  CHECK(seconds() > 1.5);  // 0.05 + 0.1 + ... + 0.8
}

TEST_CASE("processes over TCP have a place, one port and one job, another for each start") {
  const weft_test::TemporaryFolder folder;
  runtime::Supervision what =
      shell("echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR \"$WEFT_JOB\" $WEFT_STORE_PORT >> " +
            (folder.path / "$RANK").string() + "; echo $MASTER_PORT >> " + (folder.path / "ports").string() + "; exit 1");
  ::setenv("WEFT_STORE_PORT", "1", 1);
  what.processes = 3;
  what.restarts = 1;
  CHECK(runtime::supervise(what) == 1);
  ::unsetenv("WEFT_STORE_PORT");
  const std::string job = "supervised by " + std::to_string(::getpid());
  for (const std::string rank : {"0", "1", "2"})
    CHECK(lines_of((folder.path / rank).string()) ==
          std::vector<std::string>{rank + " " + rank + " 3 127.0.0.1 " + job + ", start 0",
                                   rank + " " + rank + " 3 127.0.0.1 " + job + ", start 1"});
  const auto ports = lines_of((folder.path / "ports").string());
  CHECK(ports.size() == 6);
  CHECK((ports[0] == ports[1] && ports[1] == ports[2] && ports[3] == ports[5]));
}

TEST_CASE("remaining processes of a start are killed, also those outside its process group and those that ignore signals") {
  const weft_test::TemporaryFolder folder;
  const std::string file = (folder.path / "left").string();
  runtime::Supervision what =
      shell("trap '' TERM INT HUP; (setsid sh -c 'echo $$ >> " + file + "; sleep 600') & sleep 600 & echo $! >> " + file +
            "; while [ $(wc -l < " + file + ") -lt 2 ]; do sleep 0.01; done; kill -9 $$");
  what.restarts = 0;
  CHECK(runtime::supervise(what) == 137);
  const auto left = lines_of(file);
  CHECK(left.size() == 2);
  for (const std::string& pid : left) CHECK(::kill(pid_t(std::stoi(pid)), 0) == -1);
  // One rank is lost; the other one neither notices it nor ends.
  what = shell("[ $RANK = 0 ] && exit 7; sleep 600");
  what.grace_s = 0.2;
  what.processes = 2;
  what.restarts = 0;
  CHECK(runtime::supervise(what) == 7);
}

TEST_CASE("a program that cannot be started, and a command line without some options") {
  CHECK(runtime::supervise({}) == 2);
  CHECK(runtime::supervise({.command = {"/no/such/launcher"}}) == 2);
  std::vector<std::string> words{"train", "--a", "1", "--restarts", "3", "--b=2", "--launch=x y", "--restarts-not", "--c"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  std::vector<std::string> left = runtime::this_program(int(argv.size()), argv.data(), {"--restarts", "--launch"});
  CHECK(left.size() == 6);
  CHECK(std::filesystem::exists(left[0]));
  left.erase(left.begin());
  CHECK(left == std::vector<std::string>{"--a", "1", "--b=2", "--restarts-not", "--c"});
}
