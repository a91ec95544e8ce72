// SPDX-License-Identifier: Apache-2.0
// Packed documents (Batch::documents) train as the documents do one by one: loss, every gradient and the validation loss of GPT
// (learned positions) and Llama (rotary ones), causal, with a window and without a mask, on one rank and over dp, tp, sequence
// parallelism, pp, cp by a ring and by Ulysses, and ZeRO.

#include "support/parity.hpp"

#include <atomic>

#include <weft/data/loader.hpp>
#include <weft/data/token_windows.hpp>
#include <weft/parallel/single_device.hpp>

using namespace weft_test;

namespace {

constexpr std::size_t length = 16, sequences = 8;
using Gpt = models::BasicGpt<double>;
using Llama = models::BasicLlama<double>;

/// The lengths of the documents of a sequence.
const std::vector<std::vector<std::size_t>> packed_lengths{{5, 3, 8},       {16},    {1, 15}, {7, 9},
                                                           {2, 2, 2, 2, 8}, {15, 1}, {8, 8},  {4, 11, 1}};

/// The share of data-parallel rank `rank` of `ranks`; document numbers have gaps and continue from sequence to sequence.
Batch packed_batch(std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  Batch batch{.sequences = sequences / ranks, .length = length, .micro_batches = micro_batches};
  batch.first_sequence = batch.sequences * rank;
  std::int32_t document = std::int32_t(100 * rank);
  for (std::size_t s = 0; s < batch.sequences; ++s)
    for (const std::size_t count : packed_lengths[batch.first_sequence + s]) {
      document += 3;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t index = batch.first_sequence * length + batch.tokens.size();
        batch.tokens.push_back(std::int32_t(key_of(1, index) % batch_vocabulary));
        batch.targets.push_back(i + 1 == count && count != 1 ? -1 : std::int32_t(key_of(1, index, 7) % batch_vocabulary));
        batch.documents.push_back(document);
      }
    }
  return batch;
}

/// The same documents, each as a separate sequence in a separate micro-batch.
Batch one_by_one() {
  Batch batch = packed_batch(0, 1, 1);
  batch.documents.clear();
  batch.sequences = 0;
  for (const auto& of_sequence : packed_lengths)
    for (const std::size_t count : of_sequence) {
      batch.differing.push_back({1, count});
      ++batch.sequences;
    }
  batch.micro_batches = batch.sequences;
  return batch;
}

struct Expected {
  double loss = 0, evaluation = 0;
  std::map<std::string, std::vector<double>> gradients;
};

template <class Model>
Expected expected_of(const typename Model::Config& config, const Batch& batch) {
  Expected expected;
  DefaultDevice device;
  SingleDevice<Model> model(device, config);
  expected.evaluation = model.evaluate(batch);
  expected.loss = model.train_step(batch);
  for (const std::string& name : model.parameter_names()) expected.gradients[name] = model.gradient(name);
  return expected;
}

/// The largest difference of loss, validation loss and gradients, each relative to the largest value of its kind.
template <class Model>
double difference(Model& model, const Batch& batch, const Expected& expected) {
  double worst = std::abs(model.evaluate(batch) - expected.evaluation) / expected.evaluation;
  worst = std::max(worst, std::abs(model.train_step(batch) - expected.loss) / expected.loss);
  std::size_t compared = 0;
  model.for_each_state([&](ParameterState& state) {
    const auto& values = expected.gradients.at(state.name());
    double scale = 0;
    for (const double value : values) scale = std::max(scale, std::abs(value));
    for_each_gradient(state, [&](std::size_t index, double value) {
      ++compared;
      const double error = std::abs(value - values[index]) / scale;
      worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
    });
  });
  return compared == 0 ? INFINITY : worst;
}

template <class Composition>
void check_layout(const typename Composition::Config& config, const Expected& expected, std::size_t world, const Degrees& degrees,
                  const ModelOptions& options = {}) {
  std::mutex mutex;
  double worst = 0;
  const std::size_t data = world / (degrees.cp * degrees.tp * degrees.pp);
  const int code = run(RunOptions{.ranks = int(world)}, [&](World& rank) {
    Mesh<dp, cp, tp, pp> mesh(rank, degrees);
    Composition model(mesh, config, options);
    const double mine =
        difference(model, packed_batch(std::size_t(mesh.rank(dp{})), data, std::min<std::size_t>(2, sequences / data)), expected);
    std::lock_guard lock(mutex);
    worst = std::max(worst, mine);
  });
  INFO("dp(" << data << ") * cp(" << degrees.cp << ") * tp(" << degrees.tp << ") * pp(" << degrees.pp << ")");
  CHECK(code == 0);
  CHECK(worst <= 1e-12);
}

template <class Model>
using Plain = DataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>>>;
template <class Model>
using Sequence = DataParallel<ContextParallel<SequenceParallel<PipelineParallel<Model>>>>;
template <class Model>
using Sharded = FullyShardedDataParallel<ContextParallel<SequenceParallel<PipelineParallel<Model>>>>;

template <class Model>
void check_all(const typename Model::Config& config) {
  const Expected expected = expected_of<Model>(config, one_by_one());
  {
    DefaultDevice device;
    SingleDevice<Model> model(device, config);
    CHECK(difference(model, packed_batch(0, 1, 2), expected) <= 1e-12);
  }
  const ModelOptions ulysses{.context = ContextMethod::ulysses};
  check_layout<Plain<Model>>(config, expected, 4, {});
  check_layout<Plain<Model>>(config, expected, 4, {.tp = 2, .pp = 2});
  check_layout<Sequence<Model>>(config, expected, 4, {.tp = 2});
  check_layout<Plain<Model>>(config, expected, 4, {.cp = 4});
  check_layout<Plain<Model>>(config, expected, 4, {.cp = 4}, ulysses);
  check_layout<Sequence<Model>>(config, expected, 8, {.tp = 2, .cp = 2, .pp = 2});
  check_layout<Sequence<Model>>(config, expected, 8, {.tp = 2, .cp = 2}, ulysses);
  check_layout<Sharded<Model>>(config, expected, 8, {.cp = 2, .pp = 2}, {.shard = {.stage = 3}});
}

models::GptConfig gpt(const AttentionMask& mask) {
  return {.vocabulary = batch_vocabulary, .layers = 4, .width = 32, .heads = 8, .kv_heads = 4, .sequence = length, .mask = mask};
}
models::LlamaConfig llama(const AttentionMask& mask) {
  return {.vocabulary = batch_vocabulary,
          .layers = 4,
          .width = 32,
          .heads = 8,
          .kv_heads = 4,
          .intermediate = 48,
          .sequence = length,
          .mask = mask};
}

std::string refusal(const Batch& batch) {
  try {
    batch.check();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("gpt, causal") { check_all<Gpt>(gpt({})); }
TEST_CASE("gpt, full, with recomputation") {
  auto config = gpt({.causal = false});
  config.recompute = Recomputation::full;
  check_all<Gpt>(config);
}
TEST_CASE("llama, a causal window") { check_all<Llama>(llama({.window = 3})); }
TEST_CASE("llama, a symmetric window") { check_all<Llama>(llama({.causal = false, .window = 4})); }

TEST_CASE("the borders of documents matter: without them the loss is another") {
  const Expected expected = expected_of<Llama>(llama({}), one_by_one());
  Batch whole = packed_batch(0, 1, 1);
  DefaultDevice device;
  SingleDevice<Llama> model(device, llama({}));
  CHECK(std::abs(model.evaluate(whole) - expected.evaluation) <= 1e-12);
  whole.documents.clear();
  CHECK(std::abs(model.evaluate(whole) - expected.evaluation) > 1e-6);
}

TEST_CASE("windows ordered for two ranks of cp train as on one rank, and as in the order of the text") {
  const auto batch = [&](const data::PackedDocuments& windows) {
    data::Loader loader(data::Share{}, windows, {.global_batch = 4, .shuffle = false});
    return data::token_batch(loader.batch(0));
  };
  const auto text = data::Tokens::of_text("abcdefgh.ab.cdefghijkl.a.bc.defg.hijk.abcdefg.bcdefghijklm.a.abcdefg.bc.def.a.b");
  data::PackingOptions options{.sequence = length, .separator = '.', .packing = data::Packing::whole};
  const data::PackedDocuments plain(text, options);
  options.balance_cp = 2;
  const data::PackedDocuments ordered(text, options);
  auto config = gpt({});
  config.vocabulary = 256;
  const Batch given = batch(plain), balanced = batch(ordered);
  REQUIRE(given.tokens != balanced.tokens);
  const Expected expected = expected_of<Gpt>(config, given);
  {
    DefaultDevice device;
    SingleDevice<Gpt> model(device, config);
    CHECK(difference(model, balanced, expected) <= 1e-12);
  }
  std::mutex mutex;
  double worst = 0;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, cp, tp, pp> mesh(world, {.cp = 2});
          Plain<Gpt> model(mesh, config);
          const double mine = difference(model, balanced, expected);
          std::lock_guard lock(mutex);
          worst = std::max(worst, mine);
        }) == 0);
  CHECK(worst <= 1e-12);
}

TEST_CASE("logits of a few tokens do not see the padding that ranks of cp need, though attention is full") {
  const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5};
  const auto config = llama({.causal = false});
  std::vector<double> expected;
  {
    DefaultDevice device;
    expected = SingleDevice<Llama>(device, config).logits(tokens);
  }
  std::atomic<int> wrong = 0;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          Mesh<dp, cp, tp, pp> mesh(world, {.tp = 2, .cp = 2});
          const auto logits = Sequence<Llama>(mesh, config).logits(tokens);
          wrong += logits.size() != expected.size();
          for (std::size_t i = 0; i < std::min(logits.size(), expected.size()); ++i)
            wrong += !(std::abs(logits[i] - expected[i]) <= 1e-13);
        }) == 0);
  CHECK(wrong == 0);
}

TEST_CASE("layers see positions and documents of their rows") {
  using Exec = DefaultDevice::execution_space;
  std::atomic<int> wrong = 0;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          Mesh<cp, tp> mesh(world, {.tp = 2, .cp = 2});
          const std::vector<std::int32_t> documents{2, 2, 2, 5, 5, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 1},
              places{0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 0};
          detail::Environment environment;
          environment.length = 8, environment.rows = 16, environment.first_row = 32;
          environment.documents = {std::shared_ptr<void>(), documents.data()};
          const auto context = Context<Compute<Exec, double>>(world.device(), environment)
                                   .with<Shard<cp, 0>>(cp{}, mesh.comm(cp{}))
                                   .with<Shard<tp, 0>>(tp{}, mesh.comm(tp{}));
          const Tensor<double, Exec, Shard<cp, 0>, Shard<tp, 0>> x(world.device(), {4, 3});
          const detail::Zigzag cut{8, 2, std::size_t(mesh.rank(cp{}))};
          const auto positions = copy_to_host(positions_of(context, x)), numbers = copy_to_host(documents_of(context, x));
          for (std::size_t i = 0; i < 4; ++i) {
            const std::size_t token = cut.row(4 * std::size_t(mesh.rank(tp{})) + i);
            wrong += positions[i] != places[token] || numbers[i] != documents[token];
          }
        }) == 0);
  CHECK(wrong == 0);
}

TEST_CASE("documents that do not fit the tokens, or lie apart, are refused") {
  Batch batch{.tokens = std::vector<std::int32_t>(8), .targets = std::vector<std::int32_t>(8), .sequences = 2, .length = 4};
  batch.documents = {0, 0, 1, 1, 0, 3, 3, 7};
  CHECK(refusal(batch) == "nothing");
  batch.documents.pop_back();
  CHECK(refusal(batch) ==
        "weft: batch: 7 documents for 8 tokens: TokenBatch::documents has the document of each token, or is empty");
  batch.documents = {0, 0, 1, 1, 0, 3, 2, 7};
  CHECK(refusal(batch) ==
        "weft: batch: document(2) at place 6 follows document(3) in one sequence: the tokens of a document lie together, numbers "
        "rise from document to document, and a negative one is padding at the sequence's end");
  for (const std::vector<std::int32_t>& padded :
       {std::vector{0, 0, 1, -1, 4, -1, -1, -1}, std::vector{-1, -1, -1, -1, 0, 0, 0, -1}}) {
    batch.documents = padded;
    CHECK(refusal(batch) == "nothing");
  }
  batch.documents = {0, -1, 1, 1, 0, 0, 0, 0};
  CHECK(refusal(batch).find("weft: batch: document(1) at place 2 follows document(-1) in one sequence") == 0);
}

TEST_CASE("ranks of one share with other documents are refused before anything is computed") {
  std::string text;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, cp, tp, pp> mesh(world, {.tp = 2});
          Plain<Gpt> model(mesh, gpt({}));
          Batch batch = packed_batch(0, 1, 1);
          if (world.rank() == 1) batch.documents.back() += 1;
          try {
            model.train_step(batch);
          } catch (const UsageError& error) {
            if (world.rank() == 0) text = error.what();
          }
        }) == 0);
  CHECK(text.find("weft: batch: documents on tp rank 1 are not tp rank 0's") == 0);
}

TEST_CASE("ranks with other masks are refused") {
  std::string text;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, cp, tp, pp> mesh(world, {.tp = 2});
          try {
            Plain<Gpt> model(mesh, gpt({.window = world.rank() == 0 ? 4u : 5u}));
          } catch (const UsageError& error) {
            if (world.rank() == 0) text = error.what();
          }
        }) == 0);
  CHECK(text.find("weft: field 11 of the model's Config on rank 1 is not that on rank 0") == 0);
}
