// SPDX-License-Identifier: Apache-2.0
// Texts of JsonWriter, and that a JSON parser reads the same values back.
#include <weft/core/json_writer.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using weft::detail::JsonWriter;

TEST_CASE("objects, arrays and lines") {
  JsonWriter json;
  json.object().member("rank", 0).member("axis", "dp").key("sizes").array().value(2u).value(-4).end();
  json.key("none").object().end().key("nothing").array().end().key("null").null().member("yes", true).key("raw").json("[1]");
  CHECK(json.end().text() ==
        R"({"rank": 0, "axis": "dp", "sizes": [2, -4], "none": {}, "nothing": [], "null": null, "yes": true, "raw": [1]})");
  JsonWriter lines;
  lines.array().line().value(1).line().object().member("a", 1).end();
  CHECK(lines.line().end().text() == "[\n1,\n{\"a\": 1}\n]");
}

TEST_CASE("a parser reads the same values") {
  std::mt19937_64 random(7);
  for (int k = 0; k < 2000; ++k) {
    std::string text;
    for (std::size_t i = random() % 12; i > 0; --i) text += char(random());
    double number = 0;
    const std::uint64_t bits = random();
    static_assert(sizeof number == sizeof bits);
    std::memcpy(&number, &bits, sizeof number);
    JsonWriter json;
    json.object().member(text, text).member("number", number).member("bits", bits).member("signed", std::int64_t(bits)).end();
    const nlohmann::json read = nlohmann::json::parse(json.text());
    CHECK(read["bits"] == bits);
    CHECK(read["signed"] == std::int64_t(bits));
    if (std::isfinite(number)) CHECK(read["number"].get<double>() == number);
    else CHECK(read["number"].is_null());
  }
  CHECK(nlohmann::json::parse(JsonWriter().value("a \"quote\", a \\, é and \x01\xff").text()) == "a \"quote\", a \\, é and ??");
  CHECK(JsonWriter(9).value(1.0 / 3).text() == "0.333333333");
  CHECK(JsonWriter().value(std::numeric_limits<double>::infinity()).text() == "null");
}
