// SPDX-License-Identifier: Apache-2.0
// The parameters that a unit of a model uses: those that are made or copied while it is built, wherever it stores them and
// whichever unit made them. Layers have no list of them.
#include <weft/engine/registry.hpp>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <weft/autograd/parameter.hpp>
#include <weft/autograd/shared_layer.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Names = std::vector<std::string>;

/// A model under construction: units are built one after the other, and all are kept.
struct Building {
  DefaultDevice device;
  detail::Registry registry;
  Context<Compute<Exec, float>> context{device, {}};
  std::vector<std::shared_ptr<void>> units;

  Building() { context.construction.registry = &registry; }
  /// Builds the unit that make(context) returns; returns the names of the parameters that it uses.
  template <class Make>
  Names unit(const Make& make) {
    registry.begin_unit("unit " + std::to_string(units.size()));
    units.push_back(std::make_shared<decltype(make(context))>(make(context)));
    Names names;
    for (const ParameterState* state : registry.end_unit(units.size() - 1)) names.push_back(state->name());
    return names;
  }
  /// The final uses: each parameter with the indices of its units.
  std::map<std::string, std::vector<std::size_t>> uses() {
    std::map<std::string, std::vector<std::size_t>> all;
    for (const detail::Registered& parameter : registry.used_parameters()) {
      CHECK(all.count(parameter.state->name()) == 0);
      all[parameter.state->name()] = parameter.uses;
    }
    return all;
  }
};

Parameter<> parameter(const auto& context, const char* name) { return Parameter<>(context, name, {2}, ones); }

struct Pair {
  Parameter<> first, second;
};

}  // namespace

TEST_CASE("a unit's own parameters, by name and not in the order in which they are made; one held twice is one") {
  Building model;
  CHECK(model.unit([](const auto& context) {
    auto late = parameter(context, "late"), early = parameter(context, "early");
    return std::tuple{late, early, Pair{late, parameter(context / "pair", "second")}};
  }) == Names{"early", "late", "pair.second"});
  CHECK(model.unit([](const auto&) { return 0; }) == Names{});
  CHECK(model.uses() == std::map<std::string, std::vector<std::size_t>>{{"early", {0}}, {"late", {0}}, {"pair.second", {0}}});
}

TEST_CASE("wherever a unit keeps a handle: moved there, in containers, behind a pointer, in a function") {
  Building model;
  CHECK(model.unit([](const auto& context) {
    Parameter<> moved = parameter(context, "a.moved");
    Parameter<> assigned = parameter(context, "lost");
    assigned = parameter(context, "b.assigned");
    std::vector<Pair> grown;  // and moved from one block of memory to the next
    for (const char* index : {"0", "1", "2", "3", "4"})
      grown.push_back({parameter(context / "c" / index, "first"), parameter(context / "c" / index, "second")});
    grown.erase(grown.begin() + 1, grown.end());
    std::map<int, std::optional<Parameter<>>> mapped;
    mapped[3] = parameter(context, "d.mapped");
    mapped[4] = std::nullopt;
    auto pointer = std::make_shared<Pair>(Pair{parameter(context, "e.first"), parameter(context, "e.second")});
    std::function<const Parameter<>&()> function = [held = parameter(context, "f.function")]() -> auto& { return held; };
    return std::tuple{std::move(moved), std::move(assigned), grown, std::array{grown, grown}, mapped, pointer,
                      pointer,          std::move(function)};
  }) == Names{"a.moved", "b.assigned", "c.0.first", "c.0.second", "d.mapped", "e.first", "e.second", "f.function"});
}

TEST_CASE("a discarded parameter belongs to no unit, and its name is free again") {
  Building model;
  CHECK(model.unit([](const auto& context) {
    parameter(context, "discarded");
    return Pair{parameter(context, "table"), parameter(context, "gain")};
  }) == Names{"gain", "table"});
  CHECK(model.unit([&](const auto& context) { return parameter(context, "discarded"); }) == Names{"discarded"});
  CHECK(model.uses() == std::map<std::string, std::vector<std::size_t>>{{"discarded", {1}}, {"gain", {0}}, {"table", {0}}});
}

TEST_CASE("every copy in a unit is a use, by construction or assignment, kept or not; a move and a reference are none") {
  Building model;
  model.unit([](const auto& context) {
    return std::tuple{parameter(context, "a"), parameter(context, "b"), parameter(context, "c"), parameter(context, "d")};
  });
  auto& [a, b, c, d] = *static_cast<std::tuple<Parameter<>, Parameter<>, Parameter<>, Parameter<>>*>(model.units[0].get());
  const Parameter<> between = d;  // no unit is under construction
  CHECK(model.unit([&](const auto& context) {
    const std::vector<Parameter<>> discarded(7, a);
    Parameter<> assigned = parameter(context, "own");
    assigned = b;
    const Parameter<>* reached = &c;
    Parameter<> moved = std::move(d);
    d = std::move(moved);
    return std::pair{assigned, reached};
  }) == Names{"a", "b"});
  CHECK(model.unit([&](const auto&) { return 0; }) == Names{});
  CHECK(model.uses() == std::map<std::string, std::vector<std::size_t>>{{"a", {0, 1}}, {"b", {0, 1}}, {"c", {0}}, {"d", {0}}});
}

TEST_CASE("a parameter made outside of a unit belongs to the units that copy it, and to no other") {
  Building model;
  const Parameter<> both = parameter(model.context, "both"), none = parameter(model.context, "none");
  CHECK(model.unit([](const auto& context) { return parameter(context, "gain"); }) == Names{"gain"});
  CHECK(model.unit([&](const auto&) { return both; }) == Names{"both"});
  CHECK(model.unit([&](const auto&) { return both; }) == Names{"both"});
  CHECK(model.uses() == std::map<std::string, std::vector<std::size_t>>{{"both", {1, 2}}, {"gain", {0}}});
}

TEST_CASE("copies of a complete model's parameters, and of those of an abandoned one, reach no registry") {
  std::vector<Parameter<>> made;
  {
    Building abandoned;
    abandoned.unit([&](const auto& context) {
      made.push_back(parameter(context, "first"));
      return made.back();
    });
    abandoned.registry.begin_unit("the last");
    made.push_back(parameter(abandoned.context, "second"));
    CHECK(made[0].state().registry() == &abandoned.registry);
    CHECK(made[1].state().registry() == &abandoned.registry);
  }
  CHECK(made[0].state().registry() == nullptr);
  CHECK(made[1].state().registry() == nullptr);
  Building complete;
  complete.unit([&](const auto& context) {
    made.push_back(parameter(context, "third"));
    return made.back();
  });
  complete.uses();
  CHECK(made[2].state().registry() == nullptr);
}

TEST_CASE("shared by both ends and by some units between them: each of them uses it, earlier units' parameters first") {
  Building model;
  CHECK(model.unit([](const auto& context) { return parameter(context / "tokens", "weight"); }) == Names{"tokens.weight"});
  for (std::size_t block = 0; block < 4; ++block) {
    const std::string own = "blocks." + std::to_string(block) + ".gain";
    const Names used = model.unit([&](const auto& context) {
      const auto here = context / "blocks" / std::to_string(block);
      Parameter<> gain = parameter(here, "gain");
      if (block % 2 == 0) return std::vector<Pair>{{gain, gain}};
      const Pair adapter = shared_layer(context / "adapter", [](const auto& there) {
        return Pair{parameter(there, "up"), parameter(there, "down")};
      });
      return std::vector<Pair>{{gain, adapter.first}, adapter, adapter};
    });
    CHECK(used == (block % 2 == 0 ? Names{own} : Names{"adapter.down", "adapter.up", own}));
  }
  CHECK(model.unit([&](const auto& context) {
    return Pair{parameter(context, "last"), *static_cast<Parameter<>*>(model.units[0].get())};
  }) == Names{"tokens.weight", "last"});
  CHECK(model.uses() == std::map<std::string, std::vector<std::size_t>>{{"adapter.down", {2, 4}},
                                                                        {"adapter.up", {2, 4}},
                                                                        {"blocks.0.gain", {1}},
                                                                        {"blocks.1.gain", {2}},
                                                                        {"blocks.2.gain", {3}},
                                                                        {"blocks.3.gain", {4}},
                                                                        {"last", {5}},
                                                                        {"tokens.weight", {0, 5}}});
}

TEST_CASE("each unit that uses a shared layer uses all of it") {
  Building model;
  const auto make = [](const auto& here) { return Pair{parameter(here, "first"), parameter(here, "second")}; };
  CHECK(model.unit([&](const auto& context) { return parameter(context, "own"); }) == Names{"own"});
  CHECK(model.unit([&](const auto& context) { return shared_layer(context / "shared", make).second; }) ==
        Names{"shared.first", "shared.second"});
  CHECK(model.unit([&](const auto&) { return 0; }) == Names{});
  CHECK(model.unit([&](const auto& context) { return shared_layer(context / "shared", make); }) ==
        Names{"shared.first", "shared.second"});
  CHECK(model.uses() ==
        std::map<std::string, std::vector<std::size_t>>{{"own", {0}}, {"shared.first", {1, 3}}, {"shared.second", {1, 3}}});
}

TEST_CASE("a layer that two units reach through one pointer belongs to the first: the second has no copy") {
  Building model;
  std::shared_ptr<Pair> both;
  CHECK(model.unit([&](const auto& context) {
    return both = std::make_shared<Pair>(Pair{parameter(context, "first"), parameter(context, "second")});
  }) == Names{"first", "second"});
  CHECK(model.unit([&](const auto&) { return both; }) == Names{});
  CHECK(model.unit([&](const auto&) { return Pair(*both); }) == Names{"first", "second"});
}

TEST_CASE("two parameters of one name are refused with the units that made them") {
  const auto refusal = [](std::size_t before) {
    Building model;
    for (std::size_t unit = 0; unit < before; ++unit) model.unit([](const auto& context) { return parameter(context, "gain"); });
    return model.unit([](const auto& context) { return Pair{parameter(context, "gain"), parameter(context, "gain")}; });
  };
  CHECK_THROWS_WITH_AS(refusal(0), doctest::Contains("two parameters named gain, made by unit 0, twice: a name is one parameter"),
                       UsageError);
  CHECK_THROWS_WITH_AS(
      refusal(2), doctest::Contains("two parameters named gain, made by unit 0 and unit 1: a name is one parameter"), UsageError);
}

TEST_CASE("the print of a model depends on names, shapes and initial values, and not on the order of making") {
  const auto print = [](const char* name, std::size_t size, const InitialValues& initial, bool other_first) {
    Building model;
    model.unit([&](const auto& context) {
      std::vector<Parameter<>> made;
      const auto other = [&] { made.push_back(parameter(context, "other")); };
      if (other_first) other();
      made.emplace_back(context, name, Shape{size}, initial);
      if (!other_first) other();
      return made;
    });
    return model.registry.print();
  };
  const auto expected = print("gain", 3, ones, false);
  CHECK(print("gain", 3, ones, true) == expected);
  CHECK(print("gains", 3, ones, false) != expected);
  CHECK(print("gain", 4, ones, false) != expected);
  CHECK(print("gain", 3, zeros, false) != expected);
}

TEST_CASE("a parameter that only other ranks make in a unit is the model's, by name, and belongs to no unit here") {
  Building model;
  CHECK(model.unit([](const auto& context) {
    detail::parameter_elsewhere(context, "b", {3, 5});
    Pair made{parameter(context, "c"), parameter(context, "a")};
    return made;
  }) == Names{"a", "c"});
  CHECK(model.unit([](const auto& context) { return parameter(context, "0"); }) == Names{"0"});
  const std::vector<detail::Registered> all = model.registry.used_parameters();
  Names names;
  for (const detail::Registered& one : all) names.push_back(one.state->name());
  CHECK(names == Names{"a", "b", "c", "0"});
  CHECK(all[1].elsewhere);
  CHECK(all[1].uses.empty());
  CHECK(all[1].state->global() == Shape{3, 5});
}
