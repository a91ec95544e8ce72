// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens after prompts, one at a time: the prompts go through the model once, and then each step computes one row of each
// sequence that still goes on (context/key_value_cache.hpp). Not part of weft/weft.hpp.
//
//   const auto tokens =
//       generate(model, prompts, {.max_new_tokens = 64, .sampling = {.temperature = 0.8, .seed = 1}, .stop = {2}});

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <weft/comm/in_function.hpp>
#include <weft/context/key_value_cache.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/generation/sampling.hpp>

namespace weft {

/// Options of generate.
struct GenerateOptions {
  /// New tokens per sequence; default: 64, or as many as the model's positions allow.
  std::optional<std::size_t> max_new_tokens = std::nullopt;
  Sampling sampling = {};
  std::vector<std::int32_t> stop = {};  ///< a sequence ends with the first of these tokens
  /// The result has log-probabilities: those of the model, whatever the sampling.
  bool log_probabilities = false;
  /// Called with each new token and its sequence, on every rank; may be empty. Returns true to continue, with the same result on
  /// all ranks.
  std::function<bool(std::size_t sequence, std::int32_t token)> each = {};
};

/// The new tokens of each prompt.
struct Generated : std::vector<std::vector<std::int32_t>> {
  using std::vector<std::vector<std::int32_t>>::vector;
  /// If GenerateOptions asks for them, the natural logarithm of each token's probability after those before it, by the softmax of
  /// the logits at temperature 1; else empty. In accumulate_t of the model's scalar (float, or double of models in double). In a
  /// batch-invariant run (NumericsOptions) they have the bits of log_probability in a training forward over the same tokens.
  std::vector<std::vector<double>> log_probabilities = {};
};

namespace detail {

/// The default number of new tokens, at least 1, limited by a model with `most` positions (0: unlimited).
inline std::size_t usual_new_tokens(std::span<const std::vector<std::int32_t>> prompts, std::size_t most) {
  constexpr std::size_t usual = 64;
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return most == 0 ? usual : std::max<std::size_t>(1, std::min(usual, most - std::min(most, longest)));
}

/// Throws UsageError for prompts that a model with `most` positions (0: unlimited) cannot continue by `more` tokens.
WEFT_COLD inline void require_room(std::span<const std::vector<std::int32_t>> prompts, std::size_t more, std::size_t most) {
  if (prompts.empty()) throw_error<UsageError>({"generate without prompts"});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::size_t length = prompts[i].size();
    if (length == 0) throw_error<UsageError>({"generate: prompt ", i, " is empty: the first token follows some token"});
    if (most != 0 && (length > most || more > most - length))
      throw_error<UsageError>({"generate: prompt ", i, " of ", length, " tokens and max_new_tokens(", more,
                               ") are more than the ", most, " tokens that the model was made for (sequence in its config)",
                               length < most ? joined({": at most ", most - length, " new ones"}) : ""});
  }
}

}  // namespace detail

/// The new tokens of each prompt. All ranks of one share must pass the same prompts and options, and get the same result. A stop
/// token is the last of its sequence. A sequence's tokens do not depend on the other prompts (in floating point, up to rounding
/// of the logits). Throws UsageError before anything is computed if a sequence could exceed the model's length, for an empty
/// prompt, for invalid options, and for everything that Wrapper::decode refuses. Under FSDP and ep all data-parallel ranks must
/// call it together with the same number of steps, so without stop tokens.
template <class Model>
Generated generate(Model& model, std::span<const std::vector<std::int32_t>> prompts, const GenerateOptions& options = {}) {
  using Type = typename Model::model_type;
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::generate);
  options.sampling.check();
  std::size_t most = 0;
  if constexpr (requires { Type::sequence(model.stages().config()); }) most = Type::sequence(model.stages().config());
  const std::size_t most_new = options.max_new_tokens.value_or(detail::usual_new_tokens(prompts, most));
  detail::require_room(prompts, most_new, most);
  Generated made(prompts.size());
  std::vector<std::vector<std::int32_t>> next(prompts.begin(), prompts.end());
  if (options.log_probabilities) made.log_probabilities.resize(prompts.size());
  if (most_new == 0) return made;
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  KeyValueCache cache(prompts.size(), longest + most_new - 1);  // the last token is not fed to the model
  const std::size_t vocabulary = model.vocabulary();
  const auto choose = [&](const std::vector<double>& logits) {
    std::vector<std::int32_t> tokens(prompts.size(), -1);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (!next[i].empty())
        tokens[i] = sample_token(std::span(logits).subspan(i * vocabulary, vocabulary), options.sampling, i,
                                 prompts[i].size() + made[i].size());
    return tokens;
  };
  for (bool more = true; more;) {
    std::vector<double> scores;
    const std::vector<std::int32_t> tokens =
        options.log_probabilities ? model.decode(cache, next, choose, scores) : model.decode(cache, next, choose);
    more = false;
    bool go_on = true;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (next[i].empty()) continue;
      made[i].push_back(tokens[i]);
      if (options.log_probabilities) made.log_probabilities[i].push_back(scores[i]);
      if (options.each) go_on = options.each(i, tokens[i]) && go_on;
      const bool ends =
          made[i].size() == most_new || std::find(options.stop.begin(), options.stop.end(), tokens[i]) != options.stop.end();
      next[i].clear();
      if (!ends) next[i].push_back(tokens[i]), more = true;
    }
    more = more && go_on;
  }
  return made;
}

}  // namespace weft
