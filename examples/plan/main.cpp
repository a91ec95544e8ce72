// SPDX-License-Identifier: Apache-2.0
// What a layout means before anything runs:
//
//   plan groups --world 16 --tp 2 --pp 4
//   plan validate --nodes 2 --ranks-per-node 8 --tp 2 --pp 2 --layers 12 --heads 12 --global-batch 32
//   plan schedule --kind 1f1b --stages 4 --micro-batches 8 --svg 1f1b.svg
//   plan memory --model llama --layers 32 --width 4096 --heads 32 --dp 8 --tp 4 --zero 3
//   plan estimate --model llama --layers 32 --width 4096 --heads 32 --dp 8 --tp 4 --zero 1 --machine h100
//   plan choose --model llama --layers 32 --width 4096 --heads 32 --machine h100 --world 64 --global-batch 256 --memory 80GB
//
// Tables, or JSON with --json. What cannot be is refused with one line on standard error and exit code 2.
// Nothing runs: `memory`, `estimate` and `choose` rehearse the trainer's compositions, which are linked in.

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include <weft/core/error.hpp>

#include "choose.hpp"
#include "estimate.hpp"
#include "groups.hpp"
#include "memory.hpp"
#include "schedule.hpp"
#include "validate.hpp"

namespace {

/// One line whatever the text.
int refuse(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  std::fprintf(stderr, "%s\n", text.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Plan a layout before it runs", "plan");
  app.require_subcommand(1);
  plan::add_groups(app);
  plan::add_validate(app);
  plan::add_schedule(app);
  plan::add_memory(app);
  plan::add_estimate(app);
  plan::add_choose(app);
  const auto known = [&](const std::string& name) {
    for (const CLI::App* command : app.get_subcommands({}))
      if (command->get_name() == name) return true;
    return false;
  };
  try {
    if (argc < 2 || (argv[1][0] != '-' && !known(argv[1])))
      throw weft::UsageError(
          "plan: " + (argc < 2 ? std::string("no command") : "unknown command '" + std::string(argv[1]) + "'") +
          "; the commands are groups, validate, schedule, memory, estimate and choose (plan --help)");
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0)
      throw weft::UsageError(std::string("plan: cannot write to standard output: ") + std::strerror(errno));
    return 0;
  } catch (const CLI::Success& success) {
    const int code = app.exit(success);
    if (std::fflush(stdout) != 0)
      return refuse(std::string("weft: plan: cannot write to standard output: ") + std::strerror(errno));
    return code;
  } catch (const CLI::ParseError& error) {
    for (const CLI::App* command : app.get_subcommands())
      for (const CLI::Option* option : command->get_options())
        if (option->get_expected_max() == 1 && option->count() > 1)
          return refuse("weft: plan: " + option->get_name() + " is given " + std::to_string(option->count()) +
                        " times, it takes one value (--help lists the options)");
    return refuse(std::string("weft: plan: ") + error.what() + " (--help lists the options)");
  } catch (const weft::MemoryError& error) {
    return refuse(error.what()), error.exit_code();  // as the run itself would end
  } catch (const weft::Error& error) {
    return refuse(error.what());
  } catch (const std::exception& error) {
    return refuse(std::string("weft: plan: ") + error.what());
  }
}
