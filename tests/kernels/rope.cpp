// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/rope_scaling.hpp
#include <weft/kernels/rope.hpp>
#include <weft/kernels/rope_scaling.hpp>

#include <tests/kernels/support.hpp>

using namespace kernels_test;

TEST_CASE_TEMPLATE("rope rotates halves of heads by position, and its inverse turns back", T, float, double, bfloat16) {
  DefaultDevice device;
  const std::size_t rows = 9, heads = 3, head_width = 10, half = 5, stride = heads * head_width + 4;
  const std::vector<std::int32_t> positions{0, 1, 2, 3, 4000, 5, 6, 1, 0};
  const auto x = normal<T>(rows * stride, 1);
  std::vector<T> y = x;
  std::vector<double> reference = widen(x);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t d = 0; d < half; ++d) {
        const double angle = positions[r] * std::pow(10000.0, -2.0 * double(d) / double(head_width));
        const std::size_t low = r * stride + h * head_width + d, high = low + half;
        reference[low] = double(x[low]) * std::cos(angle) - double(x[high]) * std::sin(angle);
        reference[high] = double(x[high]) * std::cos(angle) + double(x[low]) * std::sin(angle);
      }
  weft::kernels::rope<T>(device, rows, heads, head_width, x.data(), stride, y.data(), stride, positions.data(), 10000.0, false);
  check_close(y, reference);
  weft::kernels::rope<T>(device, rows, heads, head_width, y.data(), stride, y.data(), stride, positions.data(), 10000.0, true);
  check_close(y, widen(x), 2);
}

TEST_CASE("the table of angles follows a change of base and width") {
  DefaultDevice device;
  const std::vector<std::int32_t> position{3};
  for (const double base : {100.0, 10.0, 100.0})
    for (const std::size_t width : {2, 4}) {
      std::vector<double> x(width, 1.0);
      weft::kernels::rope<double>(device, 1, 1, width, x.data(), width, x.data(), width, position.data(), base, false);
      const double angle = 3 * std::pow(base, -2.0 * double(width / 2 - 1) / double(width));
      CHECK(x[width - 1] == doctest::Approx(std::cos(angle) + std::sin(angle)).epsilon(1e-14));
    }
}

// The frequencies as `transformers` 5.23 computes them in float (modeling_rope_utils.py), of heads of 16 values and base 500000.
TEST_CASE("scaled frequencies are those of transformers") {
  using weft::RopeScaling;
  DefaultDevice device;
  const std::size_t width = 16, half = 8;
  const RopeScaling linear{.type = RopeScaling::Type::linear, .factor = 4};
  const RopeScaling llama3{
      .type = RopeScaling::Type::llama3, .factor = 8, .low_frequency = 1, .high_frequency = 4, .original_sequence = 64};
  const std::vector<std::pair<RopeScaling, std::vector<double>>> cases = {
      {{}, {1, 0.193922758, 0.0376060307, 0.00729266508, 0.00141421345, 0.000274248188, 5.31829573e-05, 1.03133852e-05}},
      {linear,
       {0.25, 0.0484806895, 0.00940150768, 0.00182316627, 0.000353553361, 6.85620471e-05, 1.32957393e-05, 2.57834631e-06}},
      {llama3, {1, 0.079403013, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}}};
  for (const auto& [scaling, expected] : cases) {
    for (std::size_t d = 0; d < half; ++d)
      CHECK(weft::kernels::RopeFrequencies(500000, scaling).of_pair(d, width) == doctest::Approx(expected[d]).epsilon(1e-6));
    // The kernel and its table support them, also one after the other.
    const std::vector<std::int32_t> position{3};
    std::vector<double> x(width, 1.0);
    weft::kernels::rope<double>(device, 1, 1, width, x.data(), width, x.data(), width, position.data(), {500000, scaling}, false);
    for (std::size_t d = 0; d < half; ++d)
      CHECK(x[d] == doctest::Approx(std::cos(3 * expected[d]) - std::sin(3 * expected[d])).epsilon(1e-5));
  }
}

// As above, of YaRN, dynamic and longrope, whose numbers depend on the length of the sequence.
TEST_CASE("scaled frequencies of long sequences are those of transformers") {
  using weft::RopeScaling;
  using Type = RopeScaling::Type;
  const RopeScaling yarn{.type = Type::yarn, .factor = 4, .low_frequency = 1, .high_frequency = 32, .original_sequence = 4096};
  RopeScaling part = yarn, dynamic{.type = Type::dynamic, .factor = 4, .original_sequence = 64};
  part.low_frequency = 2, part.high_frequency = 16, part.whole_pairs = false;
  const RopeScaling longrope{.type = Type::longrope,
                             .factor = 4,
                             .original_sequence = 64,
                             .short_factors = {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7},
                             .long_factors = {1, 2, 3, 4, 5, 6, 7, 8}};
  struct Case {
    RopeScaling scaling;
    std::size_t sequence;
    double magnitude;
    std::vector<double> expected;
  };
  for (const Case& one : std::vector<Case>{
           {yarn,
            100,
            1.138629436111989,
            {1, 0.193922758, 0.028204523, 0.0036463323, 0.000353553361, 6.85620471e-05, 1.32957393e-05, 2.57834631e-06}},
           {part,
            100,
            1.138629436111989,
            {1, 0.193922758, 0.0376060307, 0.00410060259, 0.000353553361, 6.85620471e-05, 1.32957393e-05, 2.57834631e-06}},
           {dynamic,
            100,
            1,
            {1, 0.163871169, 0.0268537607, 0.00440055691, 0.000721124408, 0.000118171512, 1.9364903e-05, 3.17334934e-06}},
           {dynamic,
            60,
            1,
            {1, 0.193922758, 0.0376060307, 0.00729266508, 0.00141421345, 0.000274248188, 5.31829573e-05, 1.03133852e-05}},
           {longrope,
            64,
            1.1547005383792517,
            {1, 0.176293403, 0.0313383564, 0.00560974237, 0.00101015251, 0.000182832111, 3.32393465e-05, 6.0666971e-06}},
           {longrope,
            65,
            1.1547005383792517,
            {1, 0.0969613791, 0.0125353429, 0.00182316627, 0.000282842695, 4.57080278e-05, 7.5975654e-06, 1.28917316e-06}}}) {
    const weft::kernels::RopeFrequencies frequencies(500000, one.scaling, one.sequence);
    CHECK(frequencies.magnitude == doctest::Approx(one.magnitude).epsilon(1e-12));
    for (std::size_t d = 0; d < 8; ++d) CHECK(frequencies.of_pair(d, 16) == doctest::Approx(one.expected[d]).epsilon(1e-6));
    // There and back is the magnitude's square.
    DefaultDevice device;
    const std::vector<std::int32_t> position{5};
    std::vector<double> x(16, 1.0);
    for (const bool inverse : {false, true})
      weft::kernels::rope<double>(device, 1, 1, 16, x.data(), 16, x.data(), 16, position.data(), frequencies, inverse);
    for (const double value : x) CHECK(value == doctest::Approx(one.magnitude * one.magnitude).epsilon(1e-12));
  }
  const auto refused = [](const RopeScaling& wrong, std::size_t width, const char* text) {
    CHECK_THROWS_WITH_AS(wrong.check(width), doctest::Contains(text), weft::LayoutError);
  };
  CHECK_NOTHROW(longrope.check(16));
  refused(longrope, 14, "scaling longrope has 8 factors, and a head of width 14 has 7 pairs (128 at most)");
  refused({.type = Type::longrope, .original_sequence = 1}, 16, "scaling longrope needs original_sequence >= 2");
  refused({.type = Type::yarn, .low_frequency = 4}, 16, "scaling yarn needs original_sequence >= 1 and 0 < low_frequency");
  refused({.type = Type::yarn, .attention_factor = -1}, 16, "the attention factor of their scaling must be a finite number");
  refused(dynamic, 2, "scaling dynamic needs original_sequence >= 1 and a head width of 4 or more");
  RopeScaling wrong = longrope;
  wrong.long_factors[3] = 0;
  refused(wrong, 16, "a factor of scaling longrope must be a finite number above 0");
}

TEST_CASE("a scaling that gives no frequencies is refused") {
  using weft::RopeScaling;
  CHECK_NOTHROW(RopeScaling{.factor = 0}.check());  // not in use
  CHECK_THROWS_WITH_AS((RopeScaling{.type = RopeScaling::Type::linear, .factor = 0}.check()),
                       "weft: rotary positions: the factor of their scaling must be a finite number above 0", weft::LayoutError);
  for (const RopeScaling& wrong : {RopeScaling{.type = RopeScaling::Type::llama3, .low_frequency = 4},
                                   RopeScaling{.type = RopeScaling::Type::llama3, .low_frequency = 0},
                                   RopeScaling{.type = RopeScaling::Type::llama3, .original_sequence = 0}})
    CHECK_THROWS_WITH_AS(
        wrong.check(),
        "weft: rotary positions: scaling llama3 needs original_sequence >= 1 and 0 < low_frequency < high_frequency",
        weft::LayoutError);
}
