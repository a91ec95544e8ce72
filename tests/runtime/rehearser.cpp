// SPDX-License-Identifier: Apache-2.0
// A program that includes no rehearsals: with weft::compiled it is rehearsed, header-only it refuses to be.
#include <weft/runtime/rehearser.hpp>

#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

std::string refusal(const RunOptions& options) {
  try {
    runtime::detail::refuse_rehearsal(options);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a rehearsal is requested by an option, an argument or a variable") {
  CHECK(refusal({}) == "");
  const std::string text =
      "weft: --rehearse, WEFT_REHEARSE: this program was compiled without rehearsals: include weft/runtime/rehearse.hpp in it, "
      "or "
      "link weft::compiled";
  CHECK(refusal({.rehearse = "4"}) == text);
  std::string name = "program", argument = "--rehearse=4", word = "--rehearsed";
  char* arguments[] = {name.data(), argument.data()};
  CHECK(refusal({.argc = 2, .argv = arguments}) == text);
  arguments[1] = word.data();
  CHECK(refusal({.argc = 2, .argv = arguments}) == "");
  setenv("WEFT_REHEARSE", "4", 1);
  CHECK(refusal({}) == text);
  unsetenv("WEFT_REHEARSE");
}

TEST_CASE("the library has the rehearsals of a program that includes none") {
  int ranks = 0;
  const int code = run<comm::Threads>(RunOptions{.rehearse = "4"}, [&](World& world) { ranks = world.size(); });
#ifdef WEFT_COMPILED
  CHECK(code == 0);
  CHECK(ranks == 4);
#else
  CHECK(code == 2);
  CHECK(ranks == 0);
#endif
}
