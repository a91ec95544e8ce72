// SPDX-License-Identifier: Apache-2.0
// Save and load of a GPT's training state (parameters and AdamW's moments, ZeRO stage 1) on thread ranks, compared with plain
// writes and reads of the same bytes by the same ranks. Writes end with fsync; before reads the files' pages are dropped from the
// cache. Each round runs all four in turn. The medians are the result; the fastest rounds show an otherwise idle computer.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/core/output_file.hpp>
#include <weft/runtime/ending.hpp>
#include <weft/weft.hpp>

using namespace weft;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using Model = FullyShardedDataParallel<models::Gpt>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

/// Seconds of f on the slowest rank.
template <class F>
double timed(const Communicator& ranks, F&& f) {
  ranks.barrier();
  const auto started = Clock::now();
  f();
  ranks.barrier();
  return std::chrono::duration<double>(Clock::now() - started).count();
}

void drop_from_cache(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

void write_plainly(const std::string& path, const std::vector<char>& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (std::size_t at = 0; at < bytes.size();) {
    const auto put = ::write(file, bytes.data() + at, std::min<std::size_t>(1 << 20, bytes.size() - at));
    if (put <= 0) throw Error("the benchmark cannot write " + path);
    at += std::size_t(put);
  }
  ::fsync(file);
  ::close(file);
}
void read_plainly(const std::string& path, std::vector<char>& bytes) {
  const int file = ::open(path.c_str(), O_RDONLY);
  for (std::size_t at = 0; at < bytes.size();) {
    const auto got = ::pread(file, bytes.data() + at, std::min<std::size_t>(1 << 20, bytes.size() - at), ::off_t(at));
    if (got <= 0) throw Error("the benchmark cannot read " + path);
    at += std::size_t(got);
  }
  ::close(file);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t ranks = 2, width = 512, layers = 8, rounds = 5;
  std::string folder = "checkpoint-bench", output;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--folder") folder = argv[i + 1];
    else if (name == "--output") output = argv[i + 1];
    else if (std::size_t* number = name == "--ranks"    ? &ranks
                                   : name == "--width"  ? &width
                                   : name == "--layers" ? &layers
                                   : name == "--rounds" ? &rounds
                                                        : nullptr)
      *number = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::vector<double> writes, saves, reads, news, loads, stalls, steps;
  double bytes = 0;
  const int code = run<comm::Threads>(RunOptions{.ranks = int(ranks), .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp> mesh(world);
    const models::GptConfig config{.vocabulary = 256, .layers = layers, .width = width, .heads = 8, .sequence = 64};
    Model model(mesh, config, {.shard = {.stage = 1}});
    optim::AdamW optimizer(model);
    const bool first = world.rank() == 0;
    Batch batch;
    batch.sequences = 4;
    batch.length = 64;
    batch.first_sequence = batch.sequences * std::size_t(world.rank());
    for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
      batch.tokens.push_back(std::int32_t(i * 7 % 256));
      batch.targets.push_back(std::int32_t(i * 11 % 256));
    }
    const auto step = [&] {
      model.train_step(batch);
      optimizer.step();
    };
    step();
    if (first) fs::remove_all(folder), fs::create_directories(folder);
    world.communicator().barrier();
    checkpoint::save(folder, model, optimizer, 0);
    const std::string mine = checkpoint::find(folder) + "/" + checkpoint::detail::rank_file(world.rank()),
                      plain = folder + "/plain-" + std::to_string(world.rank());
    std::vector<char> part(fs::file_size(mine), 'x');
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = char(i * 2654435761u >> 13);
    std::vector<std::uint64_t> sizes{part.size()};
    world.communicator().all_reduce(sizes);
    checkpoint::Saver saver(folder, {.keep = 1});
    for (std::size_t round = 0; round < rounds; ++round) {
      ::unlink(plain.c_str());
      const double write = timed(world.communicator(), [&] { write_plainly(plain, part); }),
                   save =
                       timed(world.communicator(), [&] { checkpoint::save(folder, model, optimizer, round + 1, {.keep = 1}); });
      if (first)
        for (const auto& entry : fs::recursive_directory_iterator(folder))
          if (entry.is_regular_file()) drop_from_cache(entry.path());
      const double read = timed(world.communicator(), [&] { read_plainly(plain, part); });
      if (first) drop_from_cache(folder + "/plain-0");
      const double fresh = timed(world.communicator(),
                                 [&] {
                                   std::vector<char> memory(part.size());  // as in every loader, its pages are not mapped yet
                                   read_plainly(plain, memory);
                                 }),
                   load = timed(world.communicator(), [&] { checkpoint::load(folder, model, optimizer); });
      const double plain_step = timed(world.communicator(), step);
      saver.save(model, optimizer, 1000 + round);
      std::vector<double> stall{saver.stall_s()};
      world.communicator().all_reduce(stall, Reduction::max);
      saver.finish();
      if (!first) continue;
      news.push_back(fresh);
      bytes = double(sizes[0]);
      writes.push_back(write), saves.push_back(save), reads.push_back(read), loads.push_back(load);
      stalls.push_back(stall[0]), steps.push_back(plain_step);
      std::fprintf(stderr, "round %zu: write %.3f s, save %.3f s, read %.3f s, load %.3f s\n", round, write, save, read, load);
    }
    world.communicator().barrier();
    if (first) fs::remove_all(folder);
  });
  if (code != 0) return code;
  const double write = median(writes), save = median(saves), read = median(reads), load = median(loads), stall = median(stalls),
               a_step = median(steps);
  std::printf("%zu ranks, %.0f MB of state\n", ranks, bytes / 1e6);
  std::printf("  %-28s %8.0f MB/s\n  %-28s %8.0f MB/s   %3.0f %%\n", "plain writes, fsync", bytes / write / 1e6, "save",
              bytes / save / 1e6, 100 * write / save);
  std::printf("  %-28s %8.0f MB/s\n  %-28s %8.0f MB/s   %3.0f %%\n", "plain reads", bytes / read / 1e6, "load",
              bytes / load / 1e6, 100 * read / load);
  std::printf("  %-28s %8.0f MB/s   %3.0f %% of it is the load\n", "plain reads to new memory", bytes / median(news) / 1e6,
              100 * median(news) / load);
  std::printf("  the fastest round of each: a save at %.0f %% of plain writes, a load at %.0f %% of plain reads\n",
              100 * least(writes) / least(saves), 100 * least(reads) / least(loads));
  std::printf("  %-28s %8.1f ms\n  %-28s %8.1f ms   %3.0f %%\n", "a training step", 1e3 * a_step, "stall of an asynchronous save",
              1e3 * stall, 100 * stall / a_step);
  if (!output.empty()) {
    const nlohmann::json result = {{"ranks", ranks},  {"bytes", bytes},    {"write_s", writes},
                                   {"save_s", saves}, {"read_s", reads},   {"read_to_new_memory_s", news},
                                   {"load_s", loads}, {"stall_s", stalls}, {"step_s", steps}};
    return weft::runtime::run_alone([&] {
      weft::detail::write_output("checkpoint: --output", output, result.dump(2) + "\n");
      return 0;
    });
  }
}
