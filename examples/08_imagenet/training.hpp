// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training and evaluation, in the same order on every rank.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/data/loader.hpp>
#include <weft/optim/ema.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/optim/step_decay.hpp>
#include <weft/trace/progress.hpp>
#include <weft/trace/table.hpp>
#include <weft/weft.hpp>

#include "../hardware.hpp"
#include "image_folder.hpp"
#include "options.hpp"
#include "records.hpp"
#include "resnet.hpp"
#include "weights.hpp"

namespace imagenet {

/// The folders, listed once and shared by thread ranks; `train` or `validation` may be null.
struct Folders {
  std::shared_ptr<const ImageFolder> train, validation;
  std::size_t classes() const { return (train ? train : validation)->classes().size(); }
};

/// Prints on rank 0.
void say(const World& world, const char* format, const auto&... values) {
  if (world.rank() != 0) return;
  std::printf(format, values...);
  std::fflush(stdout);
}

/// Cross-entropy without smoothing and the accuracies in percent, over all pictures; nothing after a stop request. Each
/// data-parallel rank counts its own pictures.
std::optional<EvaluationRecord> evaluate(World& world, auto& model, const auto& mesh, const Folders& folders, const Options& o,
                                         std::size_t global_batch) {
  const EvaluationImages pictures{{folders.validation, o.transform, o.decode, world.rank()}, std::size_t(mesh.size(dp{}))};
  data::Loader loader(mesh, pictures,
                      {.global_batch = std::min(global_batch, pictures.size()),
                       .shuffle = false,
                       .drop_last = false,
                       .threads = o.threads_for(std::size_t(world.size()))});
  double sums[4] = {};  // of the loss, of the first and of the first five, and the number of pictures
  for (auto&& batch : loader) {
    if (world.stop_requested()) return std::nullopt;
    const std::size_t first = std::size_t(loader.progress().step) * loader.options().global_batch + batch.first_sample;
    const Prediction scores = model.predict(batch);
    const std::size_t classes = scores.shape[1];
    for (std::size_t i = 0; i < batch.samples && first + i < folders.validation->size(); ++i) {
      const std::span row(scores.values.data() + i * classes, classes);
      const double wanted = row[std::size_t(batch[label].values()[i])], most = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double score : row) sum += std::exp(score - most);
      const auto better = std::count_if(row.begin(), row.end(), [&](double score) { return score > wanted; });
      const double of_one[] = {std::log(sum) + most - wanted, double(better < 1), double(better < 5), 1};
      for (int k = 0; k < 4; ++k) sums[k] += of_one[k];
    }
  }
  mesh.comm(dp{}).all_reduce(std::span(sums));
  const double pictures_seen = std::max(1.0, sums[3]);
  return EvaluationRecord{
      .loss = sums[0] / pictures_seen, .top1 = 100 * sums[1] / pictures_seen, .top5 = 100 * sums[2] / pictures_seen};
}

inline optim::LearningRate learning_rate(const Options& o, std::uint64_t steps_per_epoch, std::uint64_t steps) {
  const std::uint64_t warmup = o.warmup() * steps_per_epoch;
  if (o.schedule == "cosine") return optim::WarmupCosine{.peak = o.learning_rate, .warmup = warmup, .steps = steps};
  return optim::WarmupStepDecay{.peak = o.learning_rate, .warmup = warmup, .every = 30 * steps_per_epoch};
}

/// Returns the program's exit code. Throws DivergedError after ten steps in a row without a finite gradient.
int train(World& world, auto& model, const auto& mesh, const Folders& folders, const Options& o, std::size_t global_batch) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); };
  (void)world.interrupted();  // from now on this program stops by itself after a step
  optim::Sgd optimizer(
      model, {.learning_rate = o.learning_rate, .momentum = o.momentum, .weight_decay = o.weight_decay, .ema_decay = o.ema});
  const TrainingImages pictures{{folders.train, o.transform, o.decode, world.rank()}, o.seed};
  const DataIdentity identity = pictures.identity();
  const std::uint64_t done = o.resume ? checkpoint::resume(o.checkpoint, model, optimizer, {.data = identity}) : 0;
  data::LoaderOptions plan{.global_batch = global_batch,
                           .micro_batches = o.micro_batches,
                           .seed = o.seed,
                           .epochs = o.epochs,
                           .threads = o.threads_for(std::size_t(world.size()))};
  const std::uint64_t steps_per_epoch = data::Loader(mesh, pictures, plan).steps_per_epoch(),
                      steps = o.steps != 0 ? o.steps : o.epochs * steps_per_epoch;
  const auto with_averages = [&](const auto& f) {  // which are evaluated and exported
    if (o.ema == 0) return f();
    const optim::UseEma averages(model, optimizer);
    return f();
  };
  const auto finish = [&] {
    if (o.export_file.empty()) return 0;
    with_averages([&] { save_torchvision(o.export_file, model, std::max(done, steps)); });
    say(world, "exported to %s\n", o.export_file.c_str());
    return 0;
  };
  if (done >= steps) {
    say(world, "the checkpoint in %s has step %llu of %llu: there is nothing left to train\n", o.checkpoint.c_str(),
        (unsigned long long)done, (unsigned long long)steps);
    return finish();
  }
  plan.first_step = done;
  plan.steps = steps - done;
  data::Loader loader(mesh, pictures, plan);
  const optim::LearningRate rate = learning_rate(o, steps_per_epoch, steps);
  std::optional<checkpoint::Saver> saver;
  if (!o.checkpoint.empty()) {
    saver.emplace(o.checkpoint, checkpoint::SaveOptions{.keep = o.keep, .data = identity});
    saver->take_folder(model);
  }
  std::optional<Records> records;
  if (!world.communicator().rehearsed()) {
    const nlohmann::ordered_json layout = {{"model", o.model},
                                           {"world", world.size()},
                                           {"dp", mesh.size(dp{})},
                                           {"pp", mesh.size(pp{})},
                                           {"zero", o.zero},
                                           {"global_batch", global_batch},
                                           {"micro_batches", o.micro_batches},
                                           {"seed", o.seed},
                                           {"backend", world.backend()},
                                           {"hardware", hardware_of(world)}};
    if (world.rank() == 0) records.emplace(o.output, done, layout);
  }
  if (done > 0) say(world, "goes on after step %llu of the checkpoint in %s\n", (unsigned long long)done, o.checkpoint.c_str());

  trace::Progress progress(trace::for_terminal(world.communicator(), {.steps = steps, .unit = "images", .first_step = done}));
  const auto interrupted = [&](std::uint64_t next) {
    if (saver) saver->save(model, optimizer, next), saver->finish();
    if (records) records->draw();
    progress.print("stopped after step %llu%s", (unsigned long long)next,
                   saver ? "; --resume goes on from here" : ", without a checkpoint (--checkpoint FOLDER keeps one)");
    return InterruptedError::code;
  };
  auto epoch_start = Clock::now(), shown = epoch_start, last = epoch_start;
  double loss_sum = 0, epoch_losses = 0, shown_images = 0, epoch_images = 0;
  int skipped = 0;
  for (auto&& batch : loader) {
    const data::LoaderProgress at = loader.progress();
    const double loss = model.train_step(batch), learning = rate.at(at.step);
    const optim::StepReport report = optimizer.step(learning);
    skipped = report.skipped ? skipped + 1 : 0;
    if (skipped == 10) {
      if (records) records->draw();
      throw DivergedError("training diverged: no finite loss and gradient for 10 steps in a row, the last is step " +
                          std::to_string(at.step) + "; try a smaller --learning-rate than " +
                          trace::detail::plain(o.learning_rate));
    }
    const std::uint64_t next = at.step + 1;
    progress.step(at.step, loss, double(global_batch));
    loss_sum += loss, ++epoch_losses, shown_images += double(global_batch), epoch_images += double(global_batch);
    if (records) {
      records->step({.step = at.step,
                     .epoch = at.epoch,
                     .loss = loss,
                     .gradient_norm = report.gradient_norm,
                     .learning_rate = learning,
                     .images_per_s = double(global_batch) / seconds_since(last),
                     .waited_s = at.waited_s});
      last = Clock::now();
      const double pause = seconds_since(shown);
      if (next == done + 1 || next % o.print_every == 0 || pause > 10) {
        const double speed = shown_images / pause;
        progress.print("epoch %llu/%llu  step %llu/%llu  loss %.4f  %.1f images/s  %s left", (unsigned long long)(at.epoch + 1),
                       (unsigned long long)((steps + steps_per_epoch - 1) / steps_per_epoch), (unsigned long long)next,
                       (unsigned long long)steps, loss, speed,
                       trace::duration(double(steps - next) * double(global_batch) / speed).c_str());
        shown = Clock::now(), shown_images = 0;
      }
    }
    if (saver) saver->poll();
    if (world.stop_requested()) return interrupted(next);
    const bool epoch_ends = at.step_of_epoch + 1 == steps_per_epoch || next == steps;
    std::optional<double> validation_loss;
    if (epoch_ends) {
      const double speed = epoch_images / seconds_since(epoch_start);
      if (folders.validation) {
        auto found = with_averages([&] { return evaluate(world, model, mesh, folders, o, global_batch); });
        if (!found) return interrupted(next);
        found->step = at.step, found->epoch = at.epoch;
        validation_loss = found->loss;
        if (records) records->evaluation(*found);
        progress.print("epoch %llu: training loss %.4f, validation loss %.4f, top-1 %.2f %%, top-5 %.2f %%, %.1f images/s",
                       (unsigned long long)(at.epoch + 1), loss_sum / epoch_losses, found->loss, found->top1, found->top5, speed);
      } else {
        progress.print("epoch %llu: training loss %.4f, %.1f images/s", (unsigned long long)(at.epoch + 1),
                       loss_sum / epoch_losses, speed);
      }
      loss_sum = epoch_losses = epoch_images = shown_images = 0;
      epoch_start = shown = last = Clock::now();
    }
    if (saver && (next == steps || (o.every == 0 ? epoch_ends : next % o.every == 0)))
      saver->save(model, optimizer, next, validation_loss);
  }
  if (saver) saver->finish();
  if (records) records->draw();
  return finish();
}

template <class Block>
int run_model(World& world, const Folders& folders, const Options& o) {
  Mesh<dp, pp> mesh(world, {.dp = o.dp.value_or(0), .pp = o.pp});
  FullyShardedDataParallel<PipelineParallel<ResNet<float, Block>>> model(
      mesh, Config{.classes = folders.classes(), .depth = o.depth(), .label_smoothing = o.label_smoothing},
      {.seed = o.seed, .shard = {.stage = o.zero}, .numerics = {.reproducible = o.reproducible}});
  if (!o.load.empty()) load_torchvision(o.load, model);
  const std::size_t unit = mesh.size(dp{}) * o.micro_batches, global_batch = o.batch.value_or((256 + unit - 1) / unit * unit);
  say(world, "%s, %zu classes, %zu training and %zu validation pictures, batch %zu on %d rank%s (dp %zu, pp %zu)\n",
      o.model.c_str(), folders.classes(), folders.train ? folders.train->size() : 0,
      folders.validation ? folders.validation->size() : 0, global_batch, world.size(), world.size() == 1 ? "" : "s",
      mesh.size(dp{}), mesh.size(pp{}));
  if (!o.evaluate) return train(world, model, mesh, folders, o, global_batch);
  const auto found = evaluate(world, model, mesh, folders, o, global_batch);
  if (!found) return InterruptedError::code;
  say(world, "validation loss %.4f, top-1 %.2f %%, top-5 %.2f %%\n", found->loss, found->top1, found->top5);
  return 0;
}

}  // namespace imagenet
