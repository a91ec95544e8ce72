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

/// The default number of heads: at most `usual`, the largest number that divides the width into even parts for rotary positions.
inline std::int64_t heads_for(std::int64_t width, std::int64_t usual, bool rotary) {
  std::int64_t heads = usual;
  while (width > 0 && heads > 1 && (width % heads != 0 || (rotary && width / heads % 2 != 0))) --heads;
  return heads;
}

struct Options {
  std::string program = "train_gpt";  ///< the name in messages
  bool finetunes = false;             ///< the program has --lora and related options, and starts from --load
  std::vector<std::string> data;
  std::vector<double> weights;  ///< of the token files in --data; empty: each window occurs once per epoch
  std::string token_type = "auto";
  std::optional<std::int64_t> vocabulary;            ///< of token files and conversations
  std::string tokenizer;                             ///< of conversations: a tokenizer.json, or its folder
  std::string chat = "auto";                         ///< the template of conversations
  std::vector<std::string> learned = {"assistant"};  ///< roles of conversations that have targets
  bool cut = false;                                  ///< true: a conversation that is longer than a sequence loses its end
  std::int64_t balance_cp = 1;                       ///< the ranks of cp for which the conversations of a sequence are ordered
  std::string output = "runs/train_gpt";
  std::int64_t seed = 1, steps = 600;
  std::optional<std::int64_t> ranks, dp;
  std::int64_t tp = 1, cp = 1, pp = 1, ep = 1;
  std::int64_t zero = 0, replicate = 1;
  std::int64_t piece_bytes = 0;  ///< of sums over tp that go in pieces; 0: whole sums
  std::int64_t loss_chunks = 1;  ///< parts of a micro-batch's tokens that pass the head one by one
  bool sequence_parallel = false, reproducible = false, batch_invariant = false, trace_nonfinite = false;
  std::string schedule = "1f1b", context = "ring", recompute = "none", activations = "device", offload = "none", model = "gpt",
              precision = "fp32";
  std::optional<std::int64_t> vpp, etp;
  std::string pp_layers;    ///< layers of each stage, as "7,8,8,7" or "auto"; empty: equal numbers
  std::int64_t chunks = 1;  ///< stages per rank, from the schedule
  std::int64_t layers = 4, width = 256, heads = 4, sequence = 256, experts = 8, top_k = 2;
  bool sequence_given = false;  ///< otherwise the data may shorten it
  std::optional<std::int64_t> kv_heads, micro_batch, global_batch;
  std::int64_t intermediate = 0;  ///< for llama and mixtral; 0: the model's default
  std::string optimizer = "adamw";
  double learning_rate = 1e-3;
  std::optional<double> min_learning_rate;
  std::optional<std::int64_t> warmup;
  double beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1, clip = 1.0, dropout = 0.0;
  double ema = 0;  ///< decay of an average of the parameters; 0: none
  double validation_fraction = 0.1;
  std::vector<std::string> validation;  ///< files that are a set each, in place of the ends of the training files
  std::int64_t validate_every = 100, sample = 400, recheck = 0;
  std::string prompt = "/// ";  ///< for token files: token numbers
  bool quiet = false, json = false, csv = false, tensorboard = false;
  std::string checkpoint;  ///< folder of checkpoints; empty: none
  std::int64_t every = 0, keep = 2, keep_best = 0;
  bool resume = false, other_data = false;
  std::optional<weft::DataIdentity> data_identity;  ///< identity of the files, once they are read
  weft::DataIdentity validation_identity;           ///< of the files of --validation
  std::string load, export_folder;                  ///< folders of `transformers`; empty: none
  std::int64_t lora = 0;                            ///< rank of adapters; 0: all parameters are trained
  double lora_alpha = 16, lora_dropout = 0;
  std::vector<std::string> lora_layers;   ///< names of layers, or their ends; empty: all linear layers of the blocks
  std::string adapters, export_adapters;  ///< folders for PEFT; empty: none
  std::optional<std::int64_t> restarts;   ///< this process starts the ranks, and restarts them if one is lost
  std::string launch;                     ///< command that starts them; empty: threads of one process, tcp: processes
  std::string elastic;                    ///< "MIN:MAX" ranks that go on when others are lost; empty: a lost rank ends the run
  std::string rehearse;                   ///< N or N:rank; empty: the program runs
  std::optional<std::int64_t> ranks_per_node;  ///< in a rehearsal
  std::string machine;                         ///< in a rehearsal; empty: no time is estimated
  // For models and layouts in `plan memory`; the command line has no options for them.
  std::int64_t head_width = 0, secondary = 0, quantised_reduce = 0;  ///< 0: the model's default, none
  bool query_key_value_bias = false, output_bias = false, query_key_norm = false, tied = false;
  bool quantised_gather = false, float_gradients = false;

  /// The range of --elastic. Throws UsageError if it is none.
  struct Range {
    std::int64_t least, most;
  };
  Range elastic_range() const;
  /// The number of ranks to start without a launcher: the most of --elastic, the product of the degrees, or two.
  std::int64_t ranks_to_start() const {
    constexpr std::int64_t most_ranks = 1 << 30;  // the layout rules report larger numbers
    if (ranks) return *ranks;
    if (!elastic.empty()) return elastic_range().most;
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
  /// "3,1": --weights as a setting of the data's identity.
  std::string weights_text() const;
  /// The numbers of --pp-layers; empty: equal numbers, or numbers that are not chosen yet. Throws UsageError.
  std::vector<std::size_t> stage_layers() const;
  /// True if the data are conversations, which a tokenizer makes tokens of.
  bool of_conversations() const { return !data.empty() && data.front().ends_with(".jsonl"); }
  /// True if the data are tokens instead of text, whose tokens are its bytes.
  bool of_tokens() const { return vocabulary.has_value(); }
  bool validates() const { return validation_fraction > 0 || !validation.empty(); }
  std::size_t vocabulary_size() const { return std::size_t(vocabulary.value_or(256)); }
  double least_learning_rate() const { return min_learning_rate.value_or(learning_rate / 10); }
  std::int64_t warmup_steps() const { return warmup.value_or(std::min<std::int64_t>(100, steps / 10)); }
};

/// Takes the model, its sizes and its vocabulary from the folder of --load. Throws UsageError, or checkpoint::Error.
void take_folder(Options& options);
/// The vocabulary of a folder's model.
std::int64_t vocabulary_of_folder(const std::string& folder);
/// The tokenizer of conversations: its vocabulary, a text's tokens, and tokens as text, with special ones. Throws UsageError.
std::int64_t vocabulary_of_tokenizer(const Options& options);
std::vector<std::int32_t> encoded(const Options& options, const std::string& text);
std::string decoded(const Options& options, const std::vector<std::int32_t>& tokens);
/// Takes --lora and related options from the folder of --adapters.
void take_adapters(Options& options);

/// The options of the command line; nothing if it requested help, which is then printed. Throws UsageError.
std::optional<Options> parse(const Options& defaults, int argc, char** argv);

}  // namespace train_gpt
