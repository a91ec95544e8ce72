// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of the trainer and their defaults.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <weft/core/data_identity.hpp>

namespace train_gpt {

/// Heads where the user does not say how many: at most `usual`, as many as divide the width, into even parts for rotary
/// positions.
inline std::int64_t heads_for(std::int64_t width, std::int64_t usual, bool rotary) {
  std::int64_t heads = usual;
  while (width > 0 && heads > 1 && (width % heads != 0 || (rotary && width / heads % 2 != 0))) --heads;
  return heads;
}

struct Options {
  std::string program = "train_gpt";  ///< for messages
  bool finetunes = false;             ///< the program has --lora and its like, and begins with --load
  std::vector<std::string> data;
  std::string token_type = "auto";
  std::optional<std::int64_t> vocabulary;  ///< of token files
  std::string output = "runs/train_gpt";
  std::int64_t seed = 1, steps = 600;
  std::optional<std::int64_t> ranks, dp;
  std::int64_t tp = 1, cp = 1, pp = 1, ep = 1;
  std::int64_t zero = 0, replicate = 1;
  bool sequence_parallel = false, reproducible = false, trace_nonfinite = false;
  std::string schedule = "1f1b", context = "ring", recompute = "none", offload = "none", model = "gpt", precision = "fp32";
  std::optional<std::int64_t> vpp, etp;
  std::int64_t chunks = 1;  ///< stages a rank, as the schedule has it
  std::int64_t layers = 4, width = 256, heads = 4, sequence = 256, experts = 8, top_k = 2;
  bool sequence_given = false;  ///< else the data may shorten it
  std::optional<std::int64_t> kv_heads, micro_batch, global_batch;
  std::int64_t intermediate = 0;  ///< of llama and mixtral; 0: the model's own
  std::string optimizer = "adamw";
  double learning_rate = 1e-3;
  std::optional<double> min_learning_rate;
  std::optional<std::int64_t> warmup;
  double beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1, clip = 1.0, dropout = 0.0;
  double validation_fraction = 0.1;
  std::int64_t validate_every = 100, sample = 400;
  std::string prompt = "/// ";  ///< of token files: their numbers
  bool quiet = false, json = false;
  std::string checkpoint;  ///< folder of checkpoints; empty: none
  std::int64_t every = 0, keep = 2, keep_best = 0;
  bool resume = false, other_data = false;
  std::optional<weft::DataIdentity> data_identity;  ///< of the files, once they are read
  std::string load, export_folder;                  ///< folders of `transformers`; empty: none
  std::int64_t lora = 0;                            ///< rank of adapters; 0: all parameters are trained
  double lora_alpha = 16, lora_dropout = 0;
  std::vector<std::string> lora_layers;        ///< their names, or the ends of them; empty: all linear layers of the blocks
  std::string adapters, export_adapters;       ///< folders of PEFT's; empty: none
  std::optional<std::int64_t> restarts;        ///< this process starts the ranks, and starts them again if one is lost
  std::string launch;                          ///< with which command; empty: as threads of one process, gloo: as processes
  std::string rehearse;                        ///< N or N:rank; empty: the program runs
  std::optional<std::int64_t> ranks_per_node;  ///< of a rehearsal
  std::string machine;                         ///< of a rehearsal; empty: no time is estimated
  // Of models and layouts that `plan memory` rehearses; the command line has no options for them.
  std::int64_t head_width = 0, secondary = 0;  ///< 0: the model's own, none
  bool query_key_value_bias = false, output_bias = false, query_key_norm = false, tied = false;
  bool quantised_gather = false, float_gradients = false;

  /// Ranks to start where no launcher has: what the degrees make, else two.
  std::int64_t ranks_to_start() const {
    constexpr std::int64_t most_ranks = 1 << 30;  // the layout rules speak of what is more
    if (ranks) return *ranks;
    const auto product = [most_ranks](std::initializer_list<std::int64_t> factors) {
      std::int64_t all = 1;
      for (const std::int64_t factor : factors) all = std::min(most_ranks, std::min(most_ranks, factor) * all);
      return all;
    };
    if (dp) return product({*dp, tp, cp, pp});
    const std::int64_t dense = product({tp, cp}), expert = product({ep, etp.value_or(ep > 1 ? tp : 1)});
    const std::int64_t made = product({dense / std::gcd(dense, expert), expert, pp});
    return made > 1 ? made : 2;
  }
  /// Whether the data are token files rather than text, whose tokens are its bytes.
  bool of_tokens() const { return vocabulary.has_value(); }
  std::size_t vocabulary_size() const { return std::size_t(vocabulary.value_or(256)); }
  double least_learning_rate() const { return min_learning_rate.value_or(learning_rate / 10); }
  std::int64_t warmup_steps() const { return warmup.value_or(std::min<std::int64_t>(100, steps / 10)); }
};

/// Takes the model, its sizes and its vocabulary from the folder of --load. Throws UsageError, or checkpoint::Error.
void take_folder(Options& options);
/// The tokens that a folder's model knows.
std::int64_t vocabulary_of_folder(const std::string& folder);
/// Takes --lora and its like from the folder of --adapters.
void take_adapters(Options& options);

/// What the command line asks for; nothing if it asked for help, which is then printed. Throws UsageError.
std::optional<Options> parse(const Options& defaults, int argc, char** argv);

}  // namespace train_gpt
