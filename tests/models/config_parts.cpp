// SPDX-License-Identifier: Apache-2.0
// The layers of a config that have a window.
#include <weft/models/config_parts.hpp>

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

namespace {

struct Config {
  std::size_t layers = 3;
  weft::AttentionMask mask = {};
  std::vector<bool> window_layers = {};
};

}  // namespace

TEST_CASE("a layer without a window has the rest of the mask") {
  const Config some{.mask = {.causal = true, .window = 4}, .window_layers = {true, false, true}};
  CHECK(weft::models::detail::layer_mask(some, 0).window == 4);
  CHECK(weft::models::detail::layer_mask(some, 1).window == 0);
  CHECK(weft::models::detail::layer_mask(some, 1).causal);
  const Config all{.mask = {.window = 4}};
  CHECK(weft::models::detail::layer_mask(all, 1).window == 4);
}

TEST_CASE("windows differ if some layers have one") {
  using weft::models::detail::windows_differ;
  CHECK(windows_differ(Config{.mask = {.window = 4}, .window_layers = {true, false, true}}));
  CHECK_FALSE(windows_differ(Config{.mask = {.window = 4}, .window_layers = {true, true, true}}));
  CHECK_FALSE(windows_differ(Config{.window_layers = {true, false, true}}));
}

TEST_CASE("the list has an element for each layer, or none") {
  using weft::models::detail::require_window_layers;
  CHECK_NOTHROW(require_window_layers(Config{}));
  CHECK_NOTHROW(require_window_layers(Config{.window_layers = {true, false, true}}));
  CHECK_THROWS_WITH_AS(require_window_layers(Config{.window_layers = {true}}),
                       "weft: window_layers has 1 elements, and the model has layers(3): one for each layer, or none",
                       weft::LayoutError);
}
