// SPDX-License-Identifier: Apache-2.0
// Parameters with copies on several ranks are compared after the first step and then regularly. A write on only one rank is found
// and named over each axis, at each stage of ZeRO, in the stored type; correct programs pass.

#include <weft/parallel/same_parameters.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

template <class T>
using Everything = FullyShardedDataParallel<SequenceParallel<models::BasicGpt<T>>>;

// Adds to one element of the first parameter with this end of its name of which this rank keeps elements; by default one that tp
// does not shard.
template <class M>
void spoil(M& model, const std::string& end) {
  bool done = false;
  model.for_each_state([&](ParameterState& state) {
    if (done || state.kept() == 0 || (end.empty() && (state.sharded() & axis_bit<tp>)) || state.name().size() < end.size() ||
        state.name().compare(state.name().size() - end.size(), end.size(), end) != 0)
      return;
    done = true;
    detail::dispatch_real(state.kept_type(), [&](auto zero) {
      using T = decltype(zero);
      T& last = static_cast<T*>(state.value().get())[state.kept() - 1];
      last = T(accumulate_t<T>(last) + accumulate_t<T>(0.25));
    });
  });
  CHECK(done);
}

struct Case {
  int ranks;
  Degrees degrees;
  int zero;
  std::size_t replicate;
  const char* parameter;
  int spoiled;                     // this rank of the world writes
  std::vector<std::string> found;  // texts that the messages of a rank and its peers must contain; empty: no error
};

template <class M>
void run_case(const Case& one, const models::GptConfig& config, bool by_step) {
  std::vector<std::string> said(static_cast<std::size_t>(one.ranks));
  runtime::run(runtime::RunOptions{.ranks = one.ranks}, [&](World& world) {
    Mesh<dp, tp> mesh(world, one.degrees);
    ModelOptions options;
    options.shard.stage = one.zero;
    options.shard.replicate = one.replicate;
    options.numerics.compare_every = 2;
    M model(mesh, config, options);
    optim::Sgd optimizer(model, {.learning_rate = 0.1});
    const auto step = [&](std::uint64_t number) {
      model.train_step(make_batch(number, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), 1));
      optimizer.step();
    };
    step(0);
    model.require_equal_parameters();
    if (world.rank() == one.spoiled) spoil(model, one.parameter);
    try {
      if (by_step) step(1);
      else model.require_equal_parameters();
    } catch (const CommunicationError&) {  // another axis' ranks found it and left
    } catch (const Error& error) {
      said[std::size_t(world.rank())] = error.what();
      throw;
    }
  });
  std::string text;  // an error on one rank ends the others
  for (const std::string& of_rank : said)
    if (text.empty()) text = of_rank;
  INFO(one.parameter << ", ZeRO stage " << one.zero << ": " << text);
  CHECK(text.empty() == one.found.empty());
  for (const std::string& part : one.found) CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a write on one rank is found") {
  models::GptConfig config = gpt_config();
  config.layers = 2;
  const std::vector<Case> cases = {
      {2,
       {},
       0,
       1,
       "wte.weight",
       1,
       {"parameters differ: ", " on dp rank 1 (hash ", ") differs from that on dp rank 0 (hash ",
        " parameters compared over dp(2) differ, which must be equal"}},
      {4, {}, 0, 1, "", 2, {" on dp rank 2 (hash ", "differs from that on dp rank 0"}},
      {2, {.tp = 2}, 0, 1, "", 1, {" on tp rank 1 (hash ", "; 1 of ", "parameters compared over tp(2) differ"}},
      {4, {.tp = 4}, 0, 1, "", 3, {" on tp rank 3 (hash "}},
      {4, {.tp = 2}, 3, 1, "", 1, {"on tp rank 1 (hash "}},
      {2, {}, 3, 1, "wte.weight", 1, {}},  // its own piece, without copies on other ranks
      {2, {}, 1, 1, "wte.weight", 1, {}},
      {4, {}, 1, 2, "", 3, {" on dp rank 3 (hash ", "differs from that on dp rank 1"}},
      {4, {}, 2, 2, "", 0, {" on dp rank 2 (hash ", "differs from that on dp rank 0"}},
      {4, {}, 3, 2, "", 2, {" on dp rank 2 (hash ", "differs from that on dp rank 0"}},
  };
  for (const Case& one : cases) {
    run_case<Everything<float>>(one, config, true);
    run_case<Everything<bfloat16>>(one, config, false);  // before the master copies of stages 0 to 2 write over it
  }
}

TEST_CASE("key-value heads that several ranks hold") {
  models::GptConfig config = gpt_config();
  config.layers = 2;
  config.kv_heads = 2;
  run_case<Everything<float>>({4, {.tp = 4}, 0, 1, "c_attn.bias", 3, {"on tp rank 3 (hash ", "differs from that on tp rank 2"}},
                              config, true);
  run_case<Everything<float>>({4, {.tp = 4}, 3, 1, "c_attn.bias", 1, {"on tp rank 1 (hash ", "differs from that on tp rank 0"}},
                              config, false);
}

TEST_CASE("ranks that summed nothing") {
  struct Forgets {
    Request start(hook::Bucket&, const Communicator&) { return Request(); }
  };
  class Silent final : public hook::Factory {  // without the check of the first step
    std::unique_ptr<hook::AnyHook> make(DefaultDevice& device) const override {
      return std::make_unique<hook::detail::Holds<Forgets>>(device);
    }
  };
  for (const std::uint64_t every : {100, 0}) {
    const int code = runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
      Mesh<dp, tp> mesh(world);
      ModelOptions options;
      options.shard.stage = 0;
      options.data.hook = std::make_shared<const Silent>();
      options.numerics.compare_every = every;
      Everything<float> model(mesh, gpt_config(), options);
      optim::Sgd optimizer(model, {.learning_rate = 0.1});
      model.train_step(make_batch(0, std::size_t(world.rank()), 2, 1));
      if (every == 0) {
        optimizer.step();
        CHECK_THROWS_AS(model.require_equal_parameters(), Error);
      } else {
        CHECK_THROWS_AS(optimizer.step(), Error);
      }
    });
    CHECK(code == 0);
  }
}

TEST_CASE("one rank has nothing to compare, and hashes see every bit") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<float>> model(device, gpt_config());
  model.require_equal_parameters();
  std::vector<std::uint32_t> words(300000);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::uint32_t(i * 2654435761u);
  const auto hash = [&](std::size_t count) { return detail::hash_elements(device, words.data(), count, 4); };
  const std::uint64_t before = hash(words.size());
  CHECK(hash(words.size()) == before);
  CHECK(hash(words.size() - 1) != before);
  for (const std::size_t i : {std::size_t(0), std::size_t(15), std::size_t(65536), words.size() - 1}) {
    for (int bit = 0; bit < 32; ++bit) {
      words[i] ^= 1u << bit;
      CHECK(hash(words.size()) != before);
      words[(i + 16) % words.size()] ^= 1u << bit;  // signs of two numbers in one lane
      CHECK(hash(words.size()) != before);
      words[(i + 16) % words.size()] ^= 1u << bit;
      words[i] ^= 1u << bit;
    }
  }
  // A device's way, in lanes.
  const auto lanes = [&](std::size_t count) {
    std::vector<std::uint64_t> all(64);
    detail::hash_lanes(device, count, words.data(), all.size(), all.data());
    return all;
  };
  const auto of_lanes = lanes(1000);
  for (const std::size_t i : {0, 64, 999}) {
    words[i] ^= 1u << 31;
    CHECK(lanes(1000) != of_lanes);
    words[i] ^= 1u << 31;
  }
  CHECK(lanes(999) != of_lanes);
  CHECK(lanes(1000) == of_lanes);
  std::swap(words[0], words[65536]);
  CHECK(hash(words.size()) != before);
}
