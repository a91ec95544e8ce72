// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training of any model of this example on generated samples, and its result on samples that it has not seen.
//
//   struct UnetProblem {
//     static constexpr Defaults defaults{.title = "U-Net", .unit = "fields"};
//     using Laid = LaidInSpace<Unet<float, 2>, dx, dy>;
//     static Flow batch(const Wanted& wanted);
//     static Report report(const Options& o, std::size_t shares, const auto& predict);
//   };
//   int train_unet(World& world, const Options& o) { return train<UnetProblem>(world, o); }

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <weft/core/json_writer.hpp>
#include <weft/core/output_file.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/ema.hpp>
#include <weft/optim/learning_rate.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/trace/loss_curve.hpp>
#include <weft/trace/metrics.hpp>
#include <weft/trace/progress.hpp>
#include <weft/weft.hpp>

#include "../hardware.hpp"
#include "../output_folder.hpp"
#include "options.hpp"
#include "report.hpp"
#include "samples.hpp"

namespace fields {

using namespace weft;

/// The first of the samples that no step trains on.
inline constexpr std::uint64_t first_unseen = std::uint64_t(1) << 48;

/// A problem's numbers, which options of the command line replace.
struct Defaults {
  std::string_view title, unit;  ///< of the pictures, and of the speed
  std::uint64_t steps = 300;
  std::size_t batch = 16;  ///< samples of a step, over all ranks
  double learning_rate = 2e-3, ema = 0;
};

/// `least` or the next number that the ranks can share.
inline std::size_t shared_by(std::size_t least, std::size_t shares) { return (least + shares - 1) / shares * shares; }

/// Ranks and wrappers of a Module without space.
template <class Model>
struct LaidModule {
  using Ranks = Mesh<dp, tp>;
  using type = FullyShardedDataParallel<TensorParallel<Model>>;
};
/// Those of a model whose fields these domain axes cut. A pipeline takes a stack of units.
template <class Model, class... D>
struct LaidInSpace {
  using Ranks = Mesh<dp, tp, D...>;
  using type = FullyShardedDataParallel<TensorParallel<DomainParallel<Model, D...>>>;
};
template <weft::detail::StackModel Model, class... D>
struct LaidInSpace<Model, D...> {
  using Ranks = Mesh<dp, tp, pp, D...>;
  using type = FullyShardedDataParallel<TensorParallel<DomainParallel<PipelineParallel<Model>, D...>>>;
};

/// Throws UsageError for degrees that a model does not take: "fields: --dx 3: 32 points are not equal pieces".
inline void require_degree(bool taken, std::string_view option, std::size_t degree, const std::string& why) {
  if (!taken) throw UsageError("fields: --" + std::string(option) + " " + std::to_string(degree) + ": " + why);
}
inline void require_equal_parts(const char* parts, std::size_t all, const std::array<Part, 3>& space) {
  require_degree(all % space[0].ranks == 0, "dx", space[0].ranks, std::to_string(all) + " " + parts + " are not equal parts");
}
/// Ranks of tp have whole groups of GroupNorm.
inline void require_whole_groups(std::size_t groups, std::size_t tp) {
  require_degree(
      groups % tp == 0, "tp", tp,
      "groups(" + std::to_string(groups) + ") % tp(" + std::to_string(tp) + ") != 0: each rank has whole groups of channels");
}
inline constexpr std::string_view axes_of_space[] = {"dx", "dy", "dz"};

/// The records of a run, on rank 0.
class Records {
 public:
  Records(const std::string& folder, std::string_view title, const nlohmann::ordered_json& layout)
      : folder_(folder), title_(title) {
    output_folder::make("fields", folder_);
    trace::write_text(folder_ / "layout.json", layout.dump(2) + "\n");
    file_.emplace("fields", (folder_ / "metrics.jsonl").string());
    loss_.unit = "loss";
  }
  void step(std::uint64_t step, double loss, double gradient_norm, double learning_rate) {
    weft::detail::JsonWriter json(9);
    json.object().member("step", step).member("loss", loss).member("gradient_norm", gradient_norm);
    file_->write(json.member("learning_rate", learning_rate).end().text() + '\n');
    loss_.training.push_back({double(step), loss});
  }
  void result(std::uint64_t step, double loss, const Report& report) {
    weft::detail::JsonWriter json(9);
    json.object().member("step", step).member("validation_loss", loss);
    file_->write(json.member("error", report.error).end().text() + '\n');
    loss_.validation.push_back({double(step), loss});
    trace::write_text(folder_ / "result.svg", report.picture.svg(title_));
    draw();
  }
  void draw() const { trace::write_text(folder_ / "loss.svg", loss_.svg(title_)); }

 private:
  std::filesystem::path folder_;
  std::string title_;
  std::optional<weft::detail::OutputFile> file_;
  trace::LossCurve loss_;
};

template <class Problem>
int train(World& world, const Options& o) {
  using Laid = typename Problem::Laid;
  constexpr Defaults defaults = Problem::defaults;
  const typename Laid::Ranks mesh(world, {.tp = o.tp, .dp = o.dp.value_or(0), .pp = o.pp, .dx = o.dx, .dy = o.dy, .dz = o.dz});
  if constexpr (requires { Problem::require_degrees(o.tp, space_of(mesh)); })
    Problem::require_degrees(mesh.size(tp{}), space_of(mesh));
  const data::Share share = data::share_of(mesh);
  const std::size_t shares = std::size_t(share.size), unit = shares * o.micro_batches;
  const std::size_t global_batch = o.batch.value_or(shared_by(defaults.batch, unit));
  if (global_batch % unit != 0)
    throw UsageError("fields: --batch " + std::to_string(global_batch) + " is not divisible by dp(" + std::to_string(shares) +
                     ") * micro-batches(" + std::to_string(o.micro_batches) + ")");
  ModelOptions options{.seed = o.seed, .shard = {.stage = o.zero}};
  if (!o.schedule.empty()) options.pipeline.schedule = schedule::choose(o.schedule);
  typename Laid::type model(mesh, {}, options);
  const double ema = o.ema.value_or(defaults.ema);
  optim::AdamW optimizer(model, {.weight_decay = 0, .clip = 1, .ema_decay = ema});
  const bool rehearsed = world.communicator().rehearsed();
  const std::uint64_t steps = o.steps.value_or(rehearsed ? 3 : defaults.steps);  // later ones cost the same
  const optim::WarmupCosine rate{.peak = o.learning_rate.value_or(defaults.learning_rate),
                                 .warmup = std::min<std::uint64_t>(20, steps / 10),
                                 .steps = steps};
  // This rank's share of so many samples.
  const auto samples_of = [&](std::uint64_t first, std::size_t count, std::size_t micro_batches) {
    const std::size_t mine = count / shares, before = mine * std::size_t(share.rank);
    auto batch =
        Problem::batch({o.seed, first + before, mine, micro_batches, space_of(mesh), metis_parts(o, space_of(mesh)[0].ranks)});
    batch.first_sample = before;
    batch.micro_batches = micro_batches;
    return batch;
  };

  std::optional<Records> records;
  if (!rehearsed) {
    const nlohmann::ordered_json layout = {{"model", o.model},
                                           {"dims", o.dims},
                                           {"world", world.size()},
                                           {"dp", shares},
                                           {"tp", o.tp},
                                           {"pp", o.pp},
                                           {"dx", o.dx},
                                           {"dy", o.dy},
                                           {"dz", o.dz},
                                           {"partition", o.partition},
                                           {"schedule", o.pp == 1            ? ""
                                                        : o.schedule.empty() ? "1f1b"
                                                                             : o.schedule},
                                           {"zero", o.zero},
                                           {"global_batch", global_batch},
                                           {"micro_batches", o.micro_batches},
                                           {"seed", o.seed},
                                           {"backend", world.backend()},
                                           {"hardware", hardware_of(world)}};  // by all ranks
    if (world.rank() == 0) records.emplace(o.output, defaults.title, layout);
  }
  trace::Progress progress(trace::for_terminal(world.communicator(), {.steps = steps, .unit = defaults.unit}));
  for (std::uint64_t step = 0; step < steps; ++step) {
    auto batch = samples_of(step * global_batch, global_batch, o.micro_batches);
    batch.step = step;
    const double loss = model.train_step(batch);
    const optim::StepReport done = optimizer.step(rate.at(step));
    progress.step(step, loss, double(global_batch));
    if (records && (step + 1) % o.print_every == 0) progress.print("step %llu: loss %.6f", (unsigned long long)(step + 1), loss);
    if (records) records->step(step, loss, done.gradient_norm, rate.at(step));
  }

  std::optional<optim::UseEma<typename Laid::type, optim::AdamWRule>> averages;
  if (ema != 0) averages.emplace(model, optimizer);
  const double loss = model.evaluate(samples_of(first_unseen, shared_by(defaults.batch, shares), 1));
  // The outputs for the first `count` samples that make(wanted) gives, on every rank; the shares divide `count`.
  const auto predict = [&](std::size_t count, const auto& make) {
    const std::size_t mine = count / shares, before = mine * std::size_t(share.rank);
    auto batch = make(Wanted{o.seed, before, mine, 1, space_of(mesh), metis_parts(o, space_of(mesh)[0].ranks)});
    batch.first_sample = before;
    return model.predict(batch, Gather::whole);
  };
  const Report report = Problem::report(o, shares, predict);
  if (records) {  // a rehearsal has no values
    progress.print("%s after %llu steps: loss of unseen samples %.6f, %s %.4f", std::string(defaults.title).c_str(),
                   (unsigned long long)steps, loss, report.measure.c_str(), report.error);
    records->result(steps - 1, loss, report);
  }
  return 0;
}

}  // namespace fields
