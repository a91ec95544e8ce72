// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens after prompts, one at a time: the prompts go through the model once, and then each step computes one row of each
// sequence that still goes on (context/key_value_cache.hpp). Not part of weft/weft.hpp.
//
//   const auto tokens = generate(model, prompts, {.max_new_tokens = 64, .sampling = {.temperature = 0.8, .seed = 1}, .stop =
//   {2}});

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/in_function.hpp>
#include <weft/context/key_value_cache.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>
#include <weft/generation/sampling.hpp>

namespace weft {

struct GenerateOptions {
  /// Of each sequence; default: 64, or as many as the model's positions have room for.
  std::optional<std::size_t> max_new_tokens = std::nullopt;
  Sampling sampling = {};
  std::vector<std::int32_t> stop = {};  ///< a sequence ends with the first of these that is chosen
  /// Is called with each new token and its sequence, on every rank; empty: nothing. It returns whether to go on, the same on all
  /// ranks.
  std::function<bool(std::size_t sequence, std::int32_t token)> each = {};
};

namespace detail {

/// New tokens where the program does not say how many, at least 1: what a model of `most` tokens (0: of any) has room for.
inline std::size_t usual_new_tokens(std::span<const std::vector<std::int32_t>> prompts, std::size_t most) {
  constexpr std::size_t usual = 64;
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return most == 0 ? usual : std::max<std::size_t>(1, std::min(usual, most - std::min(most, longest)));
}

/// Throws UsageError for prompts that a model of `most` tokens (0: of any) cannot continue so far.
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

/// The new tokens of each prompt, the same on all ranks of one share, which pass the same prompts and options; a stop token is
/// the last of its sequence. A sequence's tokens do not depend on the prompts beside it (in floating point up to rounding of the
/// logits). Throws UsageError, before anything is computed, if a sequence could be longer than the model was made for, for an
/// empty prompt, options that are none, and what Wrapper::decode refuses. Under FSDP and ep all data ranks call it together, with
/// as many steps: without stop tokens.
template <class Model>
std::vector<std::vector<std::int32_t>> generate(Model& model, std::span<const std::vector<std::int32_t>> prompts,
                                                const GenerateOptions& options = {}) {
  using Type = typename Model::model_type;
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::generate);
  options.sampling.check();
  std::size_t most = 0;
  if constexpr (requires { Type::sequence(model.stages().config()); }) most = Type::sequence(model.stages().config());
  const std::size_t most_new = options.max_new_tokens.value_or(detail::usual_new_tokens(prompts, most));
  detail::require_room(prompts, most_new, most);
  std::vector<std::vector<std::int32_t>> made(prompts.size()), next(prompts.begin(), prompts.end());
  if (most_new == 0) return made;
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  KeyValueCache cache(prompts.size(), longest + most_new - 1);  // the last token is not looked at
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
    const std::vector<std::int32_t> tokens = model.decode(cache, next, choose);
    more = false;
    bool go_on = true;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (next[i].empty()) continue;
      made[i].push_back(tokens[i]);
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
