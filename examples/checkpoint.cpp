// SPDX-License-Identifier: Apache-2.0
// Lists a folder of checkpoints, verifies them, and exports one file for other programs:
//
//   ./examples/run checkpoint list runs/a/checkpoints
//   ./examples/run checkpoint show runs/a/checkpoints             the newest one, or name one: .../step-00000100
//   ./examples/run checkpoint verify runs/a/checkpoints           reads every byte
//   ./examples/run checkpoint merge runs/a/checkpoints model.safetensors [--all]

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/comm/run_options.hpp>
#include <weft/runtime/ending.hpp>
#include <weft/trace/table.hpp>

namespace {

using namespace weft;
using weft::detail::shown;

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) bytes /= 1000, ++unit;
  char text[40];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}
std::uint64_t bytes_of(const checkpoint::Index& index) {
  std::uint64_t bytes = 0;
  for (const auto& file : index.files) bytes += file.bytes;
  return bytes;
}

int list(const std::string& folder) {
  trace::Table table({"step", "ranks", "tensors", "size", "checkpoint"});
  auto entries = checkpoint::list(folder);
  if (entries.empty())
    entries.push_back({0, checkpoint::find(folder)});  // the folder is a checkpoint itself, or find throws the
                                                       // reason
  bool sound = true;
  for (const auto& entry : entries) try {
      const checkpoint::Index index = checkpoint::read_index(entry.path);
      table.row({std::to_string(index.step), std::to_string(index.world), std::to_string(index.tensors.size()),
                 bytes_text(double(bytes_of(index))), entry.path});
    } catch (const checkpoint::Error& error) {
      sound = false;
      table.row({std::to_string(entry.step), "", "", "", error.what()});
    }
  std::fputs(table.text().c_str(), stdout);
  return sound ? 0 : 2;
}

int show(const std::string& folder) {
  const std::string path = checkpoint::find(folder);
  const checkpoint::Index index = checkpoint::read_index(path);
  std::printf("%s: step %llu, written by %llu ranks, seed %llu, %zu files, %s\n", path.c_str(), (unsigned long long)index.step,
              (unsigned long long)index.world, (unsigned long long)index.seed, index.files.size(),
              bytes_text(double(bytes_of(index))).c_str());
  if (index.optimizer_steps) std::printf("optimizer: %llu steps\n", (unsigned long long)*index.optimizer_steps);
  if (index.loss_scale)
    std::printf("loss scale: %g, %llu good steps in a row\n", index.loss_scale->value,
                (unsigned long long)index.loss_scale->good_steps);
  for (const auto& [name, note] : index.notes)
    if (name.starts_with("files.")) std::printf("%s: %zu bytes\n", shown(name).c_str(), note.size());
    else std::printf("%s: %s\n", shown(name).c_str(), shown(note, 1000).c_str());
  trace::Table table({"tensor", "kind", "type", "shape", "pieces"});
  for (const auto& tensor : index.tensors)
    table.row({shown(tensor.name, 256), shown(tensor.kind),
               std::string(name_of(tensor.type)) + (tensor.of == tensor.type ? "" : " of " + std::string(name_of(tensor.of))),
               checkpoint::detail::shape_text(tensor.shape), std::to_string(tensor.pieces.size())});
  std::printf("\n%s", table.text().c_str());
  return 0;
}

int verify(const std::string& folder) {
  std::string path;
  const checkpoint::Verified verified =
      checkpoint::with_newest(folder, [&](const std::string& newest) { return checkpoint::verify(path = newest); });
  std::printf("%s is whole: %zu tensors in %zu files, %s\n", path.c_str(), verified.tensors, verified.files,
              bytes_text(double(verified.bytes)).c_str());
  return 0;
}

int run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  const std::string commands = "list FOLDER, show FOLDER, verify FOLDER and merge FOLDER FILE [--all]";
  if (words.size() == 1 && command == "--help") {
    std::printf("checkpoint: the commands are %s\n", commands.c_str());
    return 0;
  }
  if (words.size() == 1 && command == "--version") return runtime::print_versions("checkpoint");
  if (words.size() == 2 && command == "list") return list(words[1]);
  if (words.size() == 2 && command == "show") return show(words[1]);
  if (words.size() == 2 && command == "verify") return verify(words[1]);
  const bool all = words.size() == 4 && words[3] == "--all";
  if (command == "merge" && (words.size() == 3 || all)) {
    std::string path;
    checkpoint::with_newest(words[1],
                            [&](const std::string& newest) { checkpoint::merge(path = newest, words[2], {.all = all}); });
    std::printf("%s: the %s of %s\n", words[2].c_str(), all ? "whole state" : "parameters", path.c_str());
    return 0;
  }
  for (const std::string& word : words)
    if (word.starts_with('-') && (word != "--all" || command != "merge"))
      throw UsageError("checkpoint: unknown option '" + shown(word) + "': the commands are " + commands);
  throw UsageError("checkpoint: the commands are " + commands);
}

}  // namespace

int main(int argc, char** argv) {
  return weft::runtime::run_alone([&] { return run({argv + 1, argv + argc}); });
}
