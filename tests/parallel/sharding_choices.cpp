// SPDX-License-Identifier: Apache-2.0
// Options of FullyShardedDataParallel: those that must not change a bit (offload to host memory and to a file, neighbours that
// keep gathered values, copies of shards in a reproducible run), those that round (reduction in bfloat16, 8-bit gathers) within
// their bounds, the memory of each, and the state after a disk failure.

#include "support/parity.hpp"

#include <csignal>

#include <sys/resource.h>

#include <weft/engine/parameter_values.hpp>
#include <weft/kernels/quantise.hpp>

using namespace weft_test;

namespace {

template <class Model>
using Chosen = FullyShardedDataParallel<Model>;

const models::GptConfig config{.vocabulary = 64, .layers = 4, .width = 64, .heads = 4, .sequence = batch_length};

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::pair<std::string, std::size_t>, double> weights;
  std::size_t kept = 0, peak = 0;  // bytes of the arena between steps, and the most in a step
  bool same(const Trained& other) const { return losses == other.losses && norms == other.norms && weights == other.weights; }
};

template <class M>
void keep_weights(M& model, Trained& trained) {
  model.for_each_state([&](ParameterState& state) {
    const detail::Buffer value = detail::value_of(model.device(), state);
    detail::dispatch_real(state.type(), [&](auto zero) {
      using T = decltype(zero);
      for (const auto& run : state.runs())
        for (std::size_t i = 0; i < run.length; ++i)
          trained.weights[{state.name(), run.global + i}] =
              double(accumulate_t<T>(static_cast<const T*>(value.get())[run.local + i]));
    });
  });
}

template <class M>
Trained train(const ModelOptions& options, int ranks = 2, std::size_t micro_batches = 2, int steps = 4, double clip = 0.5) {
  Trained trained;
  std::mutex mutex;
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp> mesh(world);
    M model(mesh, config, options);
    optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = clip});
    const auto& use = world.device().arena().use();
    std::size_t kept = 0, peak = 0;
    for (int step = 0; step < steps; ++step) {
      world.device().arena().reset_peak();
      const double loss = model.train_step(make_batch(step, world.rank(), world.size(), micro_batches));
      const double norm = optimizer.step().gradient_norm;
      kept = use.current;
      peak = use.peak;
      if (world.rank() != 0) continue;
      trained.losses.push_back(loss);
      trained.norms.push_back(norm);
    }
    std::lock_guard lock(mutex);
    trained.kept = std::max(trained.kept, kept);
    trained.peak = std::max(trained.peak, peak);
    keep_weights(model, trained);
  });
  CHECK(code == 0);
  return trained;
}

std::string scratch(const char* name) {
  return std::string(P_tmpdir) + "/weft-offload-" + name + "-" + std::to_string(::getpid());
}

template <class Model>
void check_offload() {
  for (const int stage : {0, 1, 2, 3}) {
    const Trained device = train<Chosen<Model>>({.shard = {.stage = stage}});
    const Trained host = train<Chosen<Model>>({.shard = {.stage = stage, .offload = Offload::host()}});
    const Trained file = train<Chosen<Model>>({.shard = {.stage = stage, .offload = Offload::file(scratch("bits"))}});
    INFO("stage " << stage << ", kept bytes " << device.kept << ", host " << host.kept << ", file " << file.kept << "; peaks "
                  << device.peak << ", " << host.peak << ", " << file.peak);
    CHECK(host.same(device));
    CHECK(file.same(device));
    CHECK(host.kept == file.kept);
    // AdamW's two moments and the master copy leave the device. In stage 3 the parameters do, too; there only the master copy is
    // kept.
    const double per = stage == 3 || std::is_same_v<typename Model::scalar, bfloat16> ? 12 : 8;
    const double share = double(device.weights.size()) / (stage == 0 ? 1 : 2);
    CHECK(double(device.kept - host.kept) > 0.97 * per * share);
    CHECK(host.peak < device.peak);
  }
}

using Float = models::BasicGpt<float>;

template <class F>
std::string error_of(F&& f) {
  std::string text;
  runtime::run(runtime::RunOptions{.ranks = 1}, [&](World& world) {
    Mesh<dp> mesh(world);
    try {
      f(mesh);
    } catch (const Error& error) {
      text = error.what();
    }
  });
  return text;
}

}  // namespace

TEST_CASE("offload changes no bit and takes the state off the device, in float") { check_offload<Float>(); }
TEST_CASE("offload changes no bit and takes the state off the device, in bfloat16") {
  check_offload<models::BasicGpt<bfloat16>>();
}

TEST_CASE("a file that cannot be is refused before anything is made") {
  const auto refused = [](const std::string& path) {
    return error_of(
        [&](Mesh<dp>& mesh) { Chosen<Float>(mesh, config, {.shard = {.stage = 3, .offload = Offload::file(path)}}); });
  };
  CHECK(refused("/nonexistent/state") == "weft: offload: file '/nonexistent/state.0' cannot be made: No such file or directory");
  const std::string path = scratch("there");
  std::fclose(std::fopen((path + ".0").c_str(), "w"));
  CHECK(refused(path) == "weft: offload: file '" + path + ".0' cannot be made: File exists");
  std::remove((path + ".0").c_str());
  CHECK(runtime::run(runtime::RunOptions{.ranks = 1}, [&](World& world) {
          Mesh<dp> mesh(world);
          Chosen<Float>(mesh, config, {.shard = {.stage = 3, .offload = Offload::file("/nonexistent/state")}});
        }) == 2);
}

TEST_CASE("a full disk: nothing is made, and in the middle of training nothing changes") {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto limit = [&](rlim_t bytes) {
    const rlimit smaller{bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &smaller);
  };
  limit(100000);
  const std::string text = error_of([&](Mesh<dp>& mesh) {
    Chosen<Float> model(mesh, config, {.shard = {.stage = 3, .offload = Offload::file(scratch("full"))}});
    optim::AdamW optimizer(model);
  });
  limit(before.rlim_cur);
  CHECK(text.find("' has no room for ") != std::string::npos);
  for (const int stage : {1, 3}) {
    const Trained expected = train<Chosen<Float>>({.shard = {.stage = stage}});
    Trained trained;
    std::mutex mutex;
    int failures = 0;
    const int code = runtime::run(runtime::RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
      Mesh<dp> mesh(world);
      Chosen<Float> model(mesh, config, {.shard = {.stage = stage, .offload = Offload::file(scratch("step"))}});
      optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 0.5});
      for (int step = 0; step < 4; ++step) {
        const double loss = model.train_step(make_batch(step, world.rank(), 2, 2));
        for (const std::size_t room : {0, 60000, 200000}) {  // fails early and late in the step
          world.communicator().barrier();
          if (world.rank() == 0) limit(room);
          world.communicator().barrier();
          try {
            optimizer.step();
          } catch (const StorageError& error) {
            std::lock_guard lock(mutex);
            failures += std::string(error.what()).ends_with("; parameters and optimizer state are unchanged");
          }
          world.communicator().barrier();
          if (world.rank() == 0) limit(before.rlim_cur);
          world.communicator().barrier();
        }
        const double norm = optimizer.step().gradient_norm;
        if (world.rank() == 0) trained.losses.push_back(loss), trained.norms.push_back(norm);
      }
      std::lock_guard lock(mutex);
      keep_weights(model, trained);
    });
    limit(before.rlim_cur);
    CHECK(code == 0);
    CHECK(failures == 2 * 4 * 3);
    CHECK(trained.same(expected));
  }
}

TEST_CASE("neighbours that keep gathered values change no bit") {
  const Trained plain = train<Chosen<Float>>({.shard = {.stage = 3}}, 4);
  for (const std::size_t neighbours : {1, 2, 4})
    CHECK(train<Chosen<Float>>({.shard = {.stage = 3, .secondary = neighbours}}, 4).same(plain));
  CHECK(train<FullyShardedDataParallel<Float, zero::Stage3, SecondaryShards<2>, HybridSharding<2>>>({}, 4).same(
      train<Chosen<Float>>({.shard = {.stage = 3, .replicate = 2}}, 4)));
}

TEST_CASE("copies of shards: memory of the smaller group, and the bits of one group in a reproducible run") {
  for (const int stage : {1, 2, 3}) {
    const Trained two = train<Chosen<Float>>({.shard = {.stage = stage}}, 2),
                  four = train<Chosen<Float>>({.shard = {.stage = stage, .replicate = 2}}, 4);
    CHECK(double(four.kept) == doctest::Approx(double(two.kept)).epsilon(0.01));
    CHECK(four.weights.size() == two.weights.size());
    const Trained expected = train<Chosen<Float>>({.shard = {.stage = 0}, .numerics = {.reproducible = true}}, 1, 8);
    CHECK(train<Chosen<Float>>({.shard = {.stage = stage, .replicate = 2}, .numerics = {.reproducible = true}}, 4, 2)
              .same(expected));
    CHECK(train<Chosen<Float>>({.shard = {.stage = stage, .replicate = 2}, .numerics = {.reproducible = true}}, 2, 4)
              .same(expected));
  }
}

TEST_CASE("gradients reduced in bfloat16") {
  const Trained plain = train<Chosen<Float>>({.shard = {.stage = 0}});
  const Trained narrow = train<Chosen<Float>>({.shard = {.stage = 0}, .numerics = {.reduce = DataType::bfloat16}}, 2, 2, 4, 0);
  CHECK(narrow.weights != train<Chosen<Float>>({.shard = {.stage = 0}}, 2, 2, 4, 0).weights);
  for (const int stage : {1, 2, 3}) {
    // One sum a step rounds as DataParallel's does: the same bits.
    CHECK(
        train<Chosen<Float>>(
            {.shard = {.stage = stage, .reduce_each_micro_batch = false}, .numerics = {.reduce = DataType::bfloat16}}, 2, 2, 4, 0)
            .weights == narrow.weights);
    const Trained each = train<Chosen<Float>>({.shard = {.stage = stage}, .numerics = {.reduce = DataType::bfloat16}});
    for (std::size_t step = 0; step < each.losses.size(); ++step)
      CHECK(each.losses[step] == doctest::Approx(plain.losses[step]).epsilon(1e-2));
    CHECK(each.norms[0] == doctest::Approx(plain.norms[0]).epsilon(1.0 / 256));
  }
  CHECK(train<FullyShardedDataParallel<Float, zero::Stage2, MixedPrecision<float, bfloat16>>>(
            {.shard = {.reduce_each_micro_batch = false}}, 2, 2, 4, 0)
            .weights == narrow.weights);
  CHECK(train<Chosen<Float>>({.shard = {.stage = 3}, .numerics = {.reduce = DataType::float32}})
            .same(train<Chosen<Float>>({.shard = {.stage = 3}})));
}

TEST_CASE("8-bit blocks: |x - y| <= max|x| / 127 / 2, not finite stays so") {
  DefaultDevice device;
  const std::size_t n = 1000;
  Tensor<float, DefaultDevice::execution_space> x(device, {n}), y(device, {n}), scales(device, {kernels::quantised_blocks(n)});
  Tensor<std::int8_t, DefaultDevice::execution_space> integers(device, {n});
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = float(Philox::normal(key_of(3u), i)) * (i / 256 == 2 ? 1e-20f : 0.02f);
  for (const float odd : {0.0f, INFINITY, -NAN}) {
    if (odd != 0) values[700] = odd;  // in the third block
    copy_from_host(x, std::span<const float>(values));
    kernels::quantise<float>(device, n, x.data(), integers.data(), scales.data());
    kernels::dequantise<float>(device, n, integers.data(), scales.data(), y.data());
    const auto back = copy_to_host(y);
    for (std::size_t block = 0; block < 4; ++block) {
      double largest = 0;
      for (std::size_t i = block * 256; i < std::min(n, block * 256 + 256); ++i)
        largest = std::max(largest, std::abs(double(values[i])));
      for (std::size_t i = block * 256; i < std::min(n, block * 256 + 256); ++i) {
        if (block == 2 && odd != 0) REQUIRE(std::isnan(back[i]));
        else REQUIRE(std::abs(double(back[i]) - double(values[i])) <= largest / 127 / 2 * (1 + 1e-5));
      }
    }
  }
}

TEST_CASE(
    "8-bit gathers: the same on every rank and for every number of ranks that keeps blocks whole, and training still learns") {
  const Trained plain = train<Chosen<Float>>({.shard = {.stage = 3}}, 2, 2, 12),
                small = train<Chosen<Float>>({.shard = {.stage = 3, .quantised_gather = true}}, 2, 2, 12);
  CHECK(!small.same(plain));
  CHECK(train<Chosen<Float>>({.shard = {.stage = 3, .quantised_gather = true, .secondary = 2}}, 2, 2, 12).same(small));
  CHECK(
      train<Chosen<Float>>({.shard = {.stage = 3, .quantised_gather = true, .offload = Offload::host()}}, 2, 2, 12).same(small));
  CHECK(train<FullyShardedDataParallel<Float, zero::Stage3, QuantisedGather>>({}, 2, 2, 12).same(small));
  CHECK(small.losses[0] == doctest::Approx(plain.losses[0]).epsilon(1e-3));
  CHECK(small.losses.back() == doctest::Approx(plain.losses.back()).epsilon(0.05));
}

TEST_CASE("refusals, with the alternatives") {
  const auto refused = [](int ranks, const ModelOptions& options) {
    std::string text;
    std::mutex mutex;
    runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
      Mesh<dp> mesh(world);
      try {
        Chosen<Float> model(mesh, config, options);
      } catch (const Error& error) {
        std::lock_guard lock(mutex);
        text = error.what();
      }
    });
    return text;
  };
  CHECK(refused(4, {.shard = {.stage = 2, .replicate = 3}}) == "weft: dp(4) % replicate(3) != 0: use replicate 2 or 4");
  CHECK(refused(2, {.shard = {.stage = 2, .replicate = 5}}) == "weft: dp(2) % replicate(5) != 0: use replicate 2");
  CHECK(refused(2, {.shard = {.stage = 2, .replicate = 0}}) == "weft: dp(2) % replicate(0) != 0: use replicate 1");
  CHECK(refused(4, {.shard = {.stage = 3, .replicate = 2, .secondary = 4}}) ==
        "weft: dp / replicate(2) % secondary(4) != 0: use secondary 2");
  CHECK(refused(2, {.shard = {.stage = 1, .secondary = 2}}) ==
        "weft: ModelOptions::shard.secondary is for stage 3 of ZeRO: stages 1 and 2 keep all parameters on every rank");
  CHECK(refused(2, {.shard = {.stage = 2, .quantised_gather = true}}) ==
        "weft: ModelOptions::shard.quantised_gather is for stage 3 of ZeRO: stages 1 and 2 keep all parameters on every rank");
  CHECK(refused(2, {.shard = {.stage = 0, .replicate = 2}}) ==
        "weft: ModelOptions: shard.replicate, shard.over_domain, shard.quantised_gather, shard.secondary and "
        "shard.quantised_reduce are for "
        "FullyShardedDataParallel, and DataParallel or its stage 0 shares nothing out; leave them out");
  CHECK(refused(2, {.shard = {.stage = 3}, .numerics = {.reduce = DataType::int8}}) ==
        "weft: ModelOptions::numerics.reduce is int8: gradients are reduced in bfloat16 or float32");
  CHECK(refused(2, {.shard = {.stage = 3}, .numerics = {.reproducible = true, .reduce = DataType::bfloat16}}) ==
        "weft: ModelOptions: numerics.reproducible adds gradients in their own type, so it cannot go with numerics.reduce in "
        "bfloat16; leave one "
        "of them out");
}
