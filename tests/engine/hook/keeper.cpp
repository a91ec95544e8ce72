// SPDX-License-Identifier: Apache-2.0
// A hook's named state is stored under the bucket's key; while a checkpoint is loaded, the hook gets the names in it.

#include <doctest/doctest.h>

#include <weft/engine/hook/keeper.hpp>

using namespace weft;

TEST_CASE("arrays and numbers have the place of their bucket before their name") {
  hook::Keeper keeper;
  CHECK_FALSE(keeper.loads("error"));
  const weft::detail::Buffer error(new float[3]{}, [](void* memory) { delete[] static_cast<float*>(memory); });
  std::int64_t steps = 4;
  keeper.within("bucket-0.");
  keeper.number("steps", steps);
  keeper.within("bucket-1.");
  keeper.array("error", error, 3, DataType::float32);
  REQUIRE(keeper.kept().size() == 2);
  CHECK(keeper.kept()[0].name == "bucket-0.steps");
  CHECK(*keeper.kept()[0].number == 4);
  CHECK(keeper.kept()[0].type == DataType::int64);
  CHECK(keeper.kept()[1].name == "bucket-1.error");
  CHECK(keeper.kept()[1].buffer == error);
  CHECK(keeper.kept()[1].elements == 3);
}

TEST_CASE("a hook gets the checkpoint's values") {
  hook::Keeper keeper([](const std::string& name) { return name == "bucket-1.error"; });
  keeper.within("bucket-0.");
  CHECK_FALSE(keeper.loads("error"));
  keeper.within("bucket-1.");
  CHECK(keeper.loads("error"));
  CHECK_FALSE(keeper.loads("right"));
}
