// SPDX-License-Identifier: Apache-2.0
// Mixture: exact shares, each sample of a dataset once before any again, the same samples in every layout and after a restart.
// Subset and WeightedSamples: the chosen samples, frequencies, and the arguments that they refuse.
// covers: weft/data/dataset.hpp weft/data/mixture.hpp weft/data/selection.hpp

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <weft/data/dataset.hpp>
#include <weft/data/loader.hpp>
#include <weft/data/mixture.hpp>
#include <weft/data/selection.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"value", float> value;
inline constexpr data::Field<"number", std::int32_t> number;
using Fields = FieldBatch<value, number>;

/// Sample i has the number first + i and the epoch as value.
struct Numbers {
  using Fields = ::Fields;
  std::size_t samples;
  int first = 0;
  std::size_t size() const { return samples; }
  void load(std::size_t i, Fields::Sample& sample, std::uint64_t epoch) const {
    sample[value][0] = float(epoch);
    sample[number][0] = std::int32_t(first + int(i));
  }
};
struct Wide {
  using Fields = ::Fields;
  std::size_t size() const { return 4; }
  void shapes(Fields::Shapes& shapes) const { shapes[value] = {3}; }
  void load(std::size_t, Fields::Sample&) const {}
};
using Mixture = data::Mixture<Fields>;
static_assert(data::Dataset<Mixture> && data::Dataset<data::Subset<Numbers>> && data::Dataset<data::WeightedSamples<Numbers>>);
static_assert(!std::is_constructible_v<Mixture::Part, Wide*, double>);

std::vector<int> numbers_of(const Fields& batch) {
  const auto all = batch[number].values();
  return {all.begin(), all.end()};
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an epoch has the exact share of each dataset, and a dataset's samples come once before any comes again") {
  const Mixture mixture({{Numbers{7}, 0.5}, {Numbers{100, 1000}, 2.0}, {Numbers{3, 5000}, 0.25}}, {.samples = 44, .seed = 5});
  CHECK(mixture.size() == 44);
  CHECK(mixture.samples_of(0) == 8);
  CHECK(mixture.samples_of(1) == 32);
  CHECK(mixture.samples_of(2) == 4);
  std::map<int, int> seen;
  std::map<std::size_t, std::vector<std::size_t>> order;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch)
    for (std::size_t i = 0; i < mixture.size(); ++i) {
      const auto place = mixture.place_of(i, epoch);
      order[place.part].push_back(place.index);
      ++seen[int(place.part)];
    }
  CHECK(seen == std::map<int, int>{{0, 400}, {1, 1600}, {2, 200}});
  const std::size_t sizes[] = {7, 100, 3};
  for (const auto& [part, indices] : order) {
    std::set<std::vector<std::size_t>> orders;
    for (std::size_t pass = 0; (pass + 1) * sizes[part] <= indices.size(); ++pass) {
      const std::vector<std::size_t> one(indices.begin() + long(pass * sizes[part]),
                                         indices.begin() + long((pass + 1) * sizes[part]));
      CHECK(std::set<std::size_t>(one.begin(), one.end()).size() == sizes[part]);
      orders.insert(one);
    }
    CHECK(orders.size() > 1);  // not the same order in every pass
  }
}

TEST_CASE("all ranks and a resumed run see the samples of one rank, and datasets count passes as epochs") {
  const auto made = [] { return Mixture({{Numbers{7}, 1}, {Numbers{12, 1000}, 1}}, {.samples = 16}); };
  const data::LoaderOptions options{.global_batch = 8, .epochs = 6};
  std::vector<std::vector<int>> alone;
  std::set<std::pair<int, float>> seen;  // sample and pass
  for (auto&& batch : data::Loader(data::Share{0, 1}, made(), options)) {
    alone.push_back(numbers_of(batch));
    for (std::size_t i = 0; i < batch.samples; ++i)
      CHECK(seen.emplace(batch[number].values()[i], batch[value].values()[i]).second);
  }
  for (const auto& [which, pass] : seen) CHECK(pass <= 48 / (which < 1000 ? 7 : 12));
  CHECK(alone.size() == 12);
  const data::Loader first(data::Share{0, 2}, made(), options), second(data::Share{1, 2}, made(), options);
  for (std::size_t step = 0; step < alone.size(); ++step) {
    std::vector<int> both = numbers_of(first.batch(step));
    const std::vector<int> more = numbers_of(second.batch(step));
    both.insert(both.end(), more.begin(), more.end());
    CHECK(both == alone[step]);
  }
  const DataIdentity identity = data::Loader(data::Share{0, 1}, made(), options).identity();
  CHECK(!identity.settings.empty());
}

TEST_CASE("another weight, order, choice or seed is another identity, also inside of a dataset") {
  const auto of = [](const auto& dataset) { return data::detail::identity_of(dataset).settings; };
  const auto mixed = [](double a, double b, double c) {
    return Mixture({{Numbers{5}, a}, {Numbers{6}, b}, {Numbers{5}, c}}, {.samples = 40, .seed = 7});
  };
  CHECK(of(mixed(3, 2, 1)) == of(mixed(3, 2, 1)));
  CHECK(of(mixed(3, 2, 1)) != of(mixed(4, 2, 1)));
  CHECK(of(mixed(3, 2, 1)) != of(mixed(2, 3, 1)));
  CHECK(of(mixed(2, 2, 1)) != of(mixed(2, 1, 1)));
  const auto outer = [&](Mixture inner) { return Mixture({{std::move(inner), 0.5}, {Numbers{9}, 1}}, {.samples = 20}); };
  CHECK(of(outer(mixed(3, 2, 1))) != of(outer(mixed(4, 2, 1))));
  CHECK(of(outer(mixed(3, 2, 1))) != of(outer(Mixture({{Numbers{5}, 3}, {Numbers{6}, 2}, {Numbers{5}, 1}}, {.samples = 41}))));
  using Indices = std::vector<std::size_t>;
  const auto half = [] { return data::Subset(Numbers{5}, Indices{0, 2}); };
  CHECK(of(Mixture({{half(), 1}, {half(), 1}})) != of(Mixture({{half(), 1}, {Numbers{5}, 1}})));
  const auto one = [](double weight) { return Mixture({{Numbers{5}, weight}}, {.samples = 20}); };
  CHECK(of(Mixture({{one(3), 2}, {Numbers{5}, 1}}, {.samples = 20})) !=
        of(Mixture({{Numbers{5}, 3}, {one(2), 1}}, {.samples = 20})));
  const auto twice = [](Indices inner, Indices chosen) { return data::Subset(data::Subset(Numbers{10}, inner), chosen); };
  CHECK(of(twice({1, 2, 3}, {0, 1})) != of(twice({4, 5, 6}, {0, 1})));
  CHECK(of(twice({0, 1}, {0, 1})) != of(data::Subset(Numbers{10}, Indices{0, 1})));
  const auto drawn = [](std::vector<double> weights) {
    return data::WeightedSamples(data::WeightedSamples(Numbers{2}, weights), {1, 1});
  };
  CHECK(of(drawn({1, 2})) != of(drawn({1, 3})));
}

TEST_CASE("weights are kept to the largest remainder, also where they are extreme") {
  for (std::size_t samples = 3; samples < 200; ++samples) {
    const Mixture mixture({{Numbers{5}, 1}, {Numbers{5}, 1}, {Numbers{5}, 1}}, {.samples = samples});
    CHECK(mixture.samples_of(0) + mixture.samples_of(1) + mixture.samples_of(2) == samples);
    CHECK(mixture.samples_of(0) - mixture.samples_of(2) <= 1);
  }
  const Mixture all({{Numbers{5}, 1}, {Numbers{5000}, 1000}});  // as many samples as both have
  CHECK(all.size() == 5005);
  CHECK(all.samples_of(0) + all.samples_of(1) == 5005);
}

TEST_CASE("mixtures that mean nothing are refused") {
  using Parts = std::vector<Mixture::Part>;
  CHECK(refusal([] { (void)Mixture(Parts()); }) == "weft: Mixture: there are no datasets");
  CHECK(refusal([] { (void)Mixture({{Numbers{0}, 1}}); }) == "weft: Mixture: dataset 0 has no samples");
  for (const double wrong : {0.0, -1.0, std::nan(""), double(INFINITY)})
    CHECK(refusal([&] {
            (void)Mixture({{Numbers{3}, 1}, {Numbers{3}, wrong}});
          }).starts_with("weft: Mixture: the weight of dataset 1 is "));
  CHECK(
      refusal([] {
        (void)Mixture({{Numbers{3}, 1}, {Numbers{3}, 1e-6}}, {.samples = 100});
      }) ==
      "weft: Mixture: an epoch of 100 samples has none of dataset 1 with the share 0.000001: leave it out, or take more samples "
      "(MixtureOptions)");
  CHECK(refusal([] {
          (void)Mixture({{Numbers{3}, 1}, {Wide(), 1}});
        }) == "weft: Mixture: a sample of field 'value' is [3] in dataset 1 and [] in dataset 0");
}

TEST_CASE("a subset has the chosen samples in their order") {
  const data::Subset subset(Numbers{10, 100}, {9, 2, 2});
  CHECK(subset.size() == 3);
  const data::Loader loader(data::Share{0, 1}, subset, {.global_batch = 3, .shuffle = false});
  CHECK(numbers_of(loader.batch(0)) == std::vector<int>{109, 102, 102});
  CHECK(refusal([] { (void)data::Subset(Numbers{10}, {3, 10}); }) == "weft: Subset: index 10 of a dataset with 10 samples");
}

TEST_CASE("weighted samples come as often as their weights ask, and those of weight 0 never") {
  const std::vector<double> weights = {1, 0, 3, 0.5, 0, 5.5, 0};
  const data::WeightedSamples drawn(Numbers{7}, weights, {.samples = 1000, .seed = 3});
  std::vector<double> counts(7);
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch)
    for (std::size_t i = 0; i < drawn.size(); ++i) ++counts[drawn.index_of(i, epoch)];
  for (std::size_t k = 0; k < 7; ++k) {
    const double share = weights[k] / 10, expected = 1e5 * share, deviation = std::sqrt(1e5 * share * (1 - share));
    CHECK(std::abs(counts[k] - expected) <= 4 * deviation);
  }
  CHECK(drawn.index_of(5, 0) == data::WeightedSamples(Numbers{7}, weights, {.seed = 3}).index_of(5, 0));
  CHECK(refusal([] { (void)data::WeightedSamples(Numbers{2}, {1}); }) == "weft: WeightedSamples: 1 weights for 2 samples");
  CHECK(refusal([] {
          (void)data::WeightedSamples(Numbers{2}, {1, -1});
        }).starts_with("weft: WeightedSamples: the weight of sample 1 is -1.0"));
  CHECK(refusal([] {
          (void)data::WeightedSamples(Numbers{2}, {0, 0});
        }) == "weft: WeightedSamples: the sum of all weights is 0.000000");
}
