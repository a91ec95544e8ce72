// SPDX-License-Identifier: Apache-2.0
// Patterns of parameter names, and the error for a pattern without matches.

#include <weft/engine/name_pattern.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include <weft/weft.hpp>

using namespace weft;

TEST_CASE("a pattern matches whole names; * matches any characters, ? one") {
  using weft::detail::matches;
  CHECK(matches("a.b", "a.b"));
  CHECK(!matches("a.b", "a.b.c"));
  CHECK(!matches("b", "a.b"));
  CHECK(matches("*", ""));
  CHECK(matches("*.bias", "blocks.0.mlp.bias"));
  CHECK(!matches("*.bias", "blocks.0.mlp.bias2"));
  CHECK(matches("blocks.?.mlp.*", "blocks.7.mlp.in.weight"));
  CHECK(!matches("blocks.?.mlp.*", "blocks.17.mlp.in.weight"));
  CHECK(matches("*a*a", "banana"));
  CHECK(!matches("*a*b", "banana"));
  CHECK(matches("b**a", "ba"));
  CHECK(!matches("", "a"));
  CHECK(!matches("?", ""));
}

TEST_CASE("names near a pattern come in the order of their distance") {
  const std::vector<std::string> names{"front.table", "blocks.0.norm.weight", "blocks.0.norm.bias", "back.norm.bias"};
  CHECK(weft::detail::names_near("blocks.0.nrom.bias", names, 2) ==
        std::vector<std::string>{"blocks.0.norm.bias", "blocks.0.norm.weight"});
  CHECK(weft::detail::names_near("*tabel", names, 1) == std::vector<std::string>{"front.table"});
  CHECK(weft::detail::names_near("x", {}, 3).empty());
}

TEST_CASE("a pattern that names no parameter of any rank is refused on every rank, as are patterns that differ") {
  for (const bool differ : {false, true}) {
    std::vector<std::string> texts(2);
    runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
      Mesh<dp> mesh(world);
      const int rank = world.rank();
      const std::vector<std::string> names{rank == 0 ? "here.bias" : "there.bias"};  // as pipeline stages have other names
      const std::vector<std::string_view> found{"here.*", "there.*"}, lost{"*.bais", differ && rank == 1 ? "here.*" : "*"};
      weft::detail::require_matches(mesh.communicator(), names, found, "freeze");
      try {
        weft::detail::require_matches(mesh.communicator(), names, lost, "freeze");
      } catch (const UsageError& error) {
        texts[std::size_t(rank)] = error.what();
      }
    });
    for (const std::string& text : texts)
      if (differ) CHECK(text == "weft: freeze: rank 1 gives other patterns than rank 0: all ranks call it with the same ones");
      else CHECK(text.find("weft: freeze: \"*.bais\" names none of the 1 parameters of the model; near it are ") == 0);
  }
}
