// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model, its mesh and its optimizer behind one virtual interface. The compositions are compiled in separate files, and the
// training loop once, since it does not need to be a template.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <weft/comm/stragglers.hpp>
#include <weft/data/batch.hpp>
#include <weft/data/batches.hpp>
#include <weft/mesh/layout.hpp>
#include <weft/mesh/world.hpp>
#include <weft/parallel/nonfinite_trace.hpp>
#include <weft/pipeline/schedule/timeline.hpp>

#include "options.hpp"

namespace weft::elastic {
class Member;
}

namespace train_gpt {

struct Optimized {
  double gradient_norm = 0;                             ///< before clipping
  bool skipped = false;                                 ///< the gradients are not finite, and the parameters are unchanged
  std::vector<weft::NonfiniteGradient> nonfinite = {};  ///< in a skipped step under --trace-nonfinite
  std::vector<weft::comm::Straggler> slow = {};         ///< ranks that compute slower than others of their stage
};

/// All ranks call every function together, and each gets the same result.
class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  virtual double train_step(const weft::Batch& batch) = 0;
  virtual Optimized optimize(double learning_rate) = 0;
  /// The parameters are their averages as long as the result lives. Null without --ema.
  virtual std::shared_ptr<void> use_averages() = 0;
  virtual double evaluate(const weft::Batch& batch) = 0;
  virtual std::vector<float> next_logits(const std::vector<std::int32_t>& tokens) = 0;
  /// Writes timeline.svg and timeline.json (for Perfetto) of the last training step's measured pipeline; one rank writes.
  // ---- checkpoints, in the folder from the options
  /// Locks the folder for this run: another program that saves there is an error before the first step.
  virtual void take_checkpoints() = 0;
  /// Starts to write the state after `steps` steps. `validation_loss`: of this state, if known.
  virtual void save(std::uint64_t steps, std::optional<double> validation_loss) = 0;
  /// Called in every step: completes a checkpoint whose files are written. `waits`: waits for it.
  virtual void complete_save(bool waits) = 0;
  /// Loads the newest checkpoint, and returns its number of steps.
  virtual std::uint64_t load() = 0;
  // ---- the copies of --elastic
  /// Takes the state from the ranks' copies, or calls `first`. Returns the number of finished steps.
  virtual std::uint64_t restore(weft::elastic::Member& member, const std::function<std::uint64_t()>& first) = 0;
  /// Copies the state after `steps` steps.
  virtual void keep(weft::elastic::Member& member, std::uint64_t steps) = 0;
  // ---- folders of `transformers`, --load and --export
  virtual void load_folder() = 0;
  virtual void export_folder() = 0;
  virtual void write_timeline(const std::filesystem::path& folder, bool writes) const = 0;
  virtual weft::data::Share share() const = 0;  ///< this rank's part of the sequences
  virtual std::size_t parameters() const = 0;   ///< of the whole model
  virtual double flops_per_token() const = 0;   ///< forward and backward, causal attention counted half
};

void write_pictures(const weft::schedule::TimelineRecorder& recording, const weft::Communicator& pipeline,
                    const std::filesystem::path& folder, bool writes);

std::unique_ptr<TrainedModel> make_gpt_fp32(weft::World& world, const Options& options);
std::unique_ptr<TrainedModel> make_gpt_bf16(weft::World& world, const Options& options);
std::unique_ptr<TrainedModel> make_gpt_fp16(weft::World& world, const Options& options);
std::unique_ptr<TrainedModel> make_llama_fp32(weft::World& world, const Options& options);
std::unique_ptr<TrainedModel> make_llama_bf16(weft::World& world, const Options& options);
std::unique_ptr<TrainedModel> make_mixtral_fp32(weft::World& world, const Options& options);
std::unique_ptr<TrainedModel> make_mixtral_bf16(weft::World& world, const Options& options);

/// Creates the composition for the options.
inline std::unique_ptr<TrainedModel> make_model(weft::World& world, const Options& options) {
  if (options.precision == "fp16") return make_gpt_fp16(world, options);
  if (options.model == "mixtral")
    return options.precision == "bf16" ? make_mixtral_bf16(world, options) : make_mixtral_fp32(world, options);
  if (options.model == "llama")
    return options.precision == "bf16" ? make_llama_bf16(world, options) : make_llama_fp32(world, options);
  return options.precision == "bf16" ? make_gpt_bf16(world, options) : make_gpt_fp32(world, options);
}

}  // namespace train_gpt
