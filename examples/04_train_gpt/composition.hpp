// SPDX-License-Identifier: Apache-2.0
#pragma once
// The model's type: plain layers, and the wrappers that distribute them over the mesh. One binary holds a table of such types
// (architecture, precision, placement of the hidden state over tp), with one source file per precision. The ZeRO stage, the
// schedule and the method of context parallelism are run-time options, and degrees are values. An axis of degree 1 has almost no
// cost.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <unistd.h>

#if __has_include(<xxhash.h>) && __has_include(<nlohmann/json.hpp>) && __has_include(<weft/checkpoint/checkpoint.hpp>)
#include <weft/checkpoint/checkpoint.hpp>
#include <weft/elastic/member.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#define TRAIN_GPT_CHECKPOINTS
#endif
#include <weft/data/batches.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/mesh/world.hpp>
#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/models/mixtral.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/ema.hpp>
#include <weft/optim/muon.hpp>
#include <weft/parallel/context_parallel.hpp>
#include <weft/parallel/expert_parallel.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

#include "options.hpp"
#include "setup.hpp"
#include "trained_model.hpp"

namespace train_gpt {

template <class Config>
Config config_of(const Options& o) {
  Config config;
#ifdef TRAIN_GPT_CHECKPOINTS
  if (!o.load.empty()) config = weft::hugging_face::read_config<Config>(o.load);
#endif
  const std::size_t learned = config.sequence;
  config.vocabulary = o.vocabulary_size();
  config.layers = std::size_t(o.layers);
  config.width = std::size_t(o.width);
  config.heads = std::size_t(o.heads);
  config.kv_heads = std::size_t(*o.kv_heads);
  config.sequence = o.load.empty() ? std::size_t(o.sequence) : learned;
  config.dropout = o.dropout;
  using weft::Recomputation;
  config.recompute = o.recompute == "full"        ? Recomputation::full
                     : o.recompute == "selective" ? Recomputation::selective
                                                  : Recomputation::none;
  if constexpr (requires { config.experts; }) {
    config.experts = std::size_t(o.experts);
    config.top_k = std::size_t(o.top_k);
  }
  if constexpr (requires { config.attention; }) {
    using weft::models::AttentionBias;
    if (o.intermediate > 0) config.intermediate = std::size_t(o.intermediate);
    if (o.head_width > 0) config.attention.head_width = std::size_t(o.head_width);
    if (o.query_key_value_bias) config.attention.bias = o.output_bias ? AttentionBias::all : AttentionBias::query_key_value;
    config.attention.query_key_norm = config.attention.query_key_norm || o.query_key_norm;
    config.tied = config.tied || o.tied;
  }
  return config;
}

/// A name without a star matches a layer's whole name or its end, as in PEFT.
inline weft::LoraOptions lora_of(const Options& o) {
  weft::LoraOptions lora{.rank = std::size_t(o.lora), .alpha = o.lora_alpha, .dropout = o.lora_dropout};
  if (!o.lora_layers.empty()) lora.match.clear();
  for (const std::string& name : o.lora_layers)
    lora.match.push_back(name.find_first_of("*?") == name.npos && !name.starts_with("model.") && !name.starts_with("transformer.")
                             ? "*." + name
                             : name);
  return lora;
}

inline weft::Offload offload_of(const Options& o) {
  return o.offload == "none" ? weft::Offload() : o.offload == "host" ? weft::Offload::host() : weft::Offload::file(o.offload);
}

inline std::optional<weft::DataType> gradient_of(const Options& o) {
  return o.float_gradients ? std::optional(weft::DataType::float32) : std::nullopt;
}

/// Weights of one block that are multiplied with every token, and all its other parameters. In a mixture a token uses top-k
/// experts. The counts are doubles, since an impossible model may exceed every integer.
struct BlockSize {
  double matrices, others;
};
inline double head_width(const auto& c) {
  if constexpr (requires { c.attention; })
    if (c.attention.head_width) return double(c.attention.head_width);
  return double(c.width / c.heads);
}
inline double query_width(const auto& c) { return head_width(c) * double(c.heads); }
inline double kv_width(const auto& c) { return head_width(c) * double(c.kv_heads); }
inline BlockSize block_size(const weft::models::GptConfig& c) {
  const double kv = kv_width(c), w = double(c.width);
  const double inner = double(c.intermediate_width());
  return {2 * w * w + 2 * w * kv + 2 * w * inner, 4 * w + (w + 2 * kv) + w + inner + w};  // norms, and one bias per matrix
}
/// Attention of Llama-like models, and both norms of a block.
inline BlockSize attention_size(const auto& c) {
  using Bias = weft::models::AttentionBias;
  const double q = query_width(c), kv = kv_width(c), w = double(c.width);
  const double biases = (c.attention.bias != Bias::none ? q + 2 * kv : 0) + (c.attention.bias == Bias::all ? w : 0);
  return {2 * w * q + 2 * w * kv, 2 * w + biases + (c.attention.query_key_norm ? 2 * head_width(c) : 0)};
}
inline BlockSize block_size(const weft::models::LlamaConfig& c) {
  const BlockSize attention = attention_size(c);
  return {attention.matrices + 3 * double(c.width) * double(c.intermediate_width()), attention.others};
}
inline BlockSize block_size(const weft::models::MixtralConfig& c) {
  const BlockSize attention = attention_size(c);
  const double w = double(c.width), experts = double(c.experts), top_k = double(c.top_k);
  const double expert = 3 * w * double(weft::models::llama_of(c).intermediate_width());
  return {attention.matrices + experts * w + top_k * expert, attention.others + (experts - top_k) * expert};
}
inline double other_parameters(const weft::models::GptConfig& c) {
  return double(((c.tied ? 1 : 2) * c.vocabulary + c.sequence) * c.width + 2 * c.width);
}
inline double other_parameters(const weft::models::LlamaConfig& c) {
  return double((c.tied ? 1 : 2) * c.vocabulary * c.width + c.width);
}
inline double other_parameters(const weft::models::MixtralConfig& c) { return other_parameters(weft::models::llama_of(c)); }

template <class Config>
double parameters_of(const Config& c) {
  const BlockSize block = block_size(c);
  return double(c.layers) * (block.matrices + block.others) + other_parameters(c);
}

/// Throws if the model's minimum does not fit into this computer's memory: the system would otherwise kill the program later.
inline void require_room(double needed, const std::string& what, bool on_each_rank) {
  const double memory = double(::sysconf(_SC_PHYS_PAGES)) * double(::sysconf(_SC_PAGESIZE));
  if (needed <= memory) return;
  char text[120];
  std::snprintf(text, sizeof text, " at least %.3g GB%s, this machine has %.3g GB", needed / 1e9,
                on_each_rank ? " on each rank" : "", memory / 1e9);
  throw weft::UsageError("out of memory: " + what + text);
}

/// One copy of the model, and each rank's share of a batch with the activations of a micro-batch. `plan memory` computes the
/// memory of a layout in full.
inline void require_memory(double parameters, const weft::World& world, const Options& o) {
  using weft::mesh_layout::number;
  const bool one_machine = world.backend() == "threads";  // other backends may use several computers
  if (o.offload == "none" || o.offload == "host") {
    // At least parameter, gradient and optimizer state; only the value of a frozen parameter.
    const double bytes = o.lora == 0 ? 16 : o.precision == "fp32" ? 4 : 2;
    char text[80];
    std::snprintf(text, sizeof text, ": %.3g parameters take with gradients and optimizer state", parameters);
    require_room(parameters * bytes / (one_machine ? 1 : double(world.size())),
                 number("layers", std::size_t(o.layers)) + ", " + number("width", std::size_t(o.width)) + text, !one_machine);
  }
  constexpr double token = 2 * sizeof(std::int32_t);  // with its target
  const double batch = double(*o.global_batch / *o.dp) * double(o.sequence) * token;
  const double rows = double(*o.micro_batch) * double(o.sequence) / double(o.cp) / double(o.sequence_parallel ? o.tp : 1);
  const double kept =
      rows * double(o.width) * (o.precision == "fp32" ? 4 : 2) * double(o.layers) / double(o.pp);  // the input of every block
  require_room((batch + kept) * (one_machine ? double(world.size()) : 1),
               number("global batch", std::size_t(*o.global_batch)) + ", " + number("micro-batch", std::size_t(*o.micro_batch)) +
                   ", " + number("sequence", std::size_t(o.sequence)) + ": a step takes",
               !one_machine);
}

/// A pipeline of a model, with its experts distributed if it has some, and the mesh for such a composition.
template <class Model>
struct Experts {
  using Inner = weft::PipelineParallel<Model>;
  using Mesh = weft::Mesh<weft::dp, weft::cp, weft::tp, weft::pp>;
  static weft::Degrees degrees(const Options& o) {
    return {.tp = std::size_t(o.tp), .cp = std::size_t(o.cp), .pp = std::size_t(o.pp)};
  }
};
template <class Model>
requires requires(const typename Model::Config& config) { config.experts; }
struct Experts<Model> {
  using Inner = weft::ExpertParallel<weft::PipelineParallel<Model>>;
  using Mesh = weft::Mesh<weft::dp, weft::cp, weft::tp, weft::pp, weft::ep, weft::etp, weft::edp>;
  static weft::Degrees degrees(const Options& o) {
    return {.tp = std::size_t(o.tp),
            .cp = std::size_t(o.cp),
            .ep = std::size_t(o.ep),
            .etp = std::size_t(*o.etp),
            .pp = std::size_t(o.pp)};
  }
};

template <class Model, class Stream>
class Composition final : public TrainedModel {
  using Parallel =
      weft::FullyShardedDataParallel<weft::ContextParallel<weft::TensorParallel<typename Experts<Model>::Inner, Stream>>>;
  using Config = typename Model::Config;
  static constexpr bool adapts = !std::is_same_v<typename Model::adapters, weft::NoAdapters>;

 public:
  Composition(weft::World& world, const Options& o)
      : options_(o),
        mesh_(world, Experts<Model>::degrees(o)),
        config_(config_of<Config>(o)),
        recording_(o.pp > 1 ? std::make_shared<weft::schedule::TimelineRecorder>() : nullptr),
        model_(mesh_, config_,
               {.seed = std::uint64_t(o.seed),
                .shard = {.stage = int(o.zero),
                          .replicate = std::size_t(o.replicate),
                          .quantised_gather = o.quantised_gather,
                          .secondary = std::size_t(o.secondary),
                          .quantised_reduce = std::size_t(o.quantised_reduce),
                          .offload = offload_of(o)},
                .context = o.context == "ulysses" ? weft::ContextMethod::ulysses : weft::ContextMethod::ring,
                .tensor = {.piece_bytes = std::size_t(o.piece_bytes)},
                .pipeline = {.schedule = schedule_of(o), .layers = o.stage_layers(), .timeline = recording_},
                .numerics = {.reproducible = o.reproducible,
                             .batch_invariant = o.batch_invariant,
                             .gradient = gradient_of(o),
                             .recheck_every = std::uint64_t(o.recheck),
                             .trace_nonfinite = o.trace_nonfinite},
                .loss = {.chunks = std::size_t(o.loss_chunks)},
                .activations = {.on_host =
                                    o.activations == "host" ? std::vector<std::string>{"block *"} : std::vector<std::string>()},
                .lora = lora_of(o)})
#ifdef TRAIN_GPT_CHECKPOINTS
        ,
        saver_(
            o.checkpoint,
            {.keep = std::size_t(o.keep), .keep_best = std::size_t(o.keep_best), .notes = notes_of(o), .data = o.data_identity})
#endif
  {
    if (o.optimizer == "muon")
      muon_.emplace(model_, weft::optim::MuonOptions{.learning_rate = o.learning_rate,
                                                     .weight_decay = o.weight_decay,
                                                     .beta1 = o.beta1,
                                                     .beta2 = o.beta2,
                                                     .decay_vectors = false,
                                                     .clip = o.clip,
                                                     .ema_decay = o.ema});
    else
      adamw_.emplace(model_, weft::optim::AdamWOptions{.learning_rate = o.learning_rate,
                                                       .beta1 = o.beta1,
                                                       .beta2 = o.beta2,
                                                       .weight_decay = o.weight_decay,
                                                       .decay_vectors = false,
                                                       .clip = o.clip,
                                                       .ema_decay = o.ema});
  }

  double train_step(const weft::Batch& batch) override { return loss_ = model_.train_step(batch); }
  Optimized optimize(double learning_rate) override {
    const auto by = [&](auto& optimizer) -> Optimized {
      if (!std::isfinite(loss_) && !model_.loss_scale()) return {optimizer.gradient_norm(), true};
      const auto report = optimizer.step(learning_rate);
      return {report.gradient_norm, report.skipped, {}, optimizer.slow_ranks()};
    };
    Optimized done = muon_ ? by(*muon_) : by(*adamw_);
    if (done.skipped && options_.trace_nonfinite) done.nonfinite = weft::find_nonfinite(model_);
    return done;
  }
  std::shared_ptr<void> use_averages() override {
    if (options_.ema == 0) return nullptr;
    return with_optimizer([&](auto& optimizer) -> std::shared_ptr<void> {
      return std::make_shared<decltype(weft::optim::UseEma(model_, optimizer))>(model_, optimizer);
    });
  }
  double evaluate(const weft::Batch& batch) override { return model_.evaluate(batch); }
  std::vector<float> next_logits(const std::vector<std::int32_t>& tokens) override { return model_.next_logits(tokens); }

#ifdef TRAIN_GPT_CHECKPOINTS
  void take_checkpoints() override { saver_.take_folder(model_); }
  void save(std::uint64_t steps, std::optional<double> validation_loss) override {
    with_optimizer([&](auto& optimizer) { saver_.save(model_, optimizer, steps, validation_loss); });
  }
  void complete_save(bool waits) override { waits ? saver_.finish() : saver_.poll(); }
  std::uint64_t load() override {
    // Training can only continue in the same data if the options for its samples are the same.
    const std::string path = weft::checkpoint::find(options_.checkpoint);
    const weft::checkpoint::Index index = weft::checkpoint::read_index(path);
    const auto refuse = [&](const std::string& difference, const char* remedy) {
      throw weft::UsageError(options_.program + ": " + path + " " + difference + ": its data would not go on where they ended" +
                             remedy);
    };
    for (const auto& [name, value] : notes_of(options_))
      if (const auto at = index.notes.find(name); at != index.notes.end() && at->second != value)
        refuse("is of a run with --" + name + " " + at->second + ", and this one has " + value, "");
    if (!options_.other_data && options_.data_identity)
      if (const std::string difference = weft::checkpoint::data_difference(index, *options_.data_identity); !difference.empty())
        refuse(difference, "; --allow-other-data takes them");
    return with_optimizer([&](auto& optimizer) { return weft::checkpoint::load(path, model_, optimizer); });
  }
  std::uint64_t restore(weft::elastic::Member& member, const std::function<std::uint64_t()>& first) override {
    return with_optimizer([&](auto& optimizer) { return member.restore(model_, optimizer, first); });
  }
  void keep(weft::elastic::Member& member, std::uint64_t steps) override {
    with_optimizer([&](auto& optimizer) { member.keep(model_, optimizer, steps); });
  }
  void load_folder() override {
    with_optimizer([&](auto& optimizer) {
      weft::hugging_face::load(options_.load, model_, optimizer);
      if constexpr (adapts)
        if (!options_.adapters.empty()) weft::hugging_face::load_adapters(options_.adapters, model_, optimizer);
    });
  }
  void export_folder() override {
    if (!options_.export_folder.empty()) weft::hugging_face::save(options_.export_folder, model_);
    if constexpr (adapts)
      if (!options_.export_adapters.empty())
        weft::hugging_face::save_adapters(options_.export_adapters, model_, {.base = options_.load});
  }
#else
  void load_folder() override {}
  void export_folder() override {}
  void take_checkpoints() override {}
  void save(std::uint64_t, std::optional<double>) override {}  // unsupported options are refused
  void complete_save(bool) override {}
  std::uint64_t load() override { return 0; }
  std::uint64_t restore(weft::elastic::Member&, const std::function<std::uint64_t()>& first) override { return first(); }
  void keep(weft::elastic::Member&, std::uint64_t) override {}
#endif

  void write_timeline(const std::filesystem::path& folder, bool writes) const override {
    if (recording_) write_pictures(*recording_, mesh_.comm(weft::pp{}), folder, writes);
  }
  weft::data::Share share() const override { return weft::data::share_of(mesh_); }
  std::size_t parameters() const override { return std::size_t(parameters_of(config_)); }
  double flops_per_token() const override {
    const double matrices = double(config_.layers) * block_size(config_).matrices + double(config_.vocabulary * config_.width);
    return 6 * matrices + 6 * double(config_.layers) * double(config_.sequence) * query_width(config_);
  }

 private:
  static std::map<std::string, std::string> notes_of(const Options& o) {
    return {{"seed", std::to_string(o.seed)},
            {"global-batch", std::to_string(*o.global_batch)},
            {"sequence", std::to_string(o.sequence)}};
  }
  template <class F>
  auto with_optimizer(F f) {
    return muon_ ? f(*muon_) : f(*adamw_);
  }

  Options options_;
  typename Experts<Model>::Mesh mesh_;
  Config config_;
  std::shared_ptr<weft::schedule::TimelineRecorder> recording_;
  Parallel model_;
  std::optional<weft::optim::AdamW> adamw_;  // exactly one of the two
  std::optional<weft::optim::Muon> muon_;
#ifdef TRAIN_GPT_CHECKPOINTS
  weft::checkpoint::Saver saver_;
#endif
  double loss_ = 0;  // in the last train_step
};

template <class Model>
std::unique_ptr<TrainedModel> compose(weft::World& world, const Options& options) {
  if (!world.communicator().rehearsed())
    require_memory(parameters_of(config_of<typename Model::Config>(options)), world, options);
  if (options.sequence_parallel) return std::make_unique<Composition<Model, weft::Shard<weft::tp, 0>>>(world, options);
  return std::make_unique<Composition<Model, weft::Invariant<weft::tp>>>(world, options);
}

}  // namespace train_gpt
