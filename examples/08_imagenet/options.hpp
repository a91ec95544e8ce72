// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command line of imagenet.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <weft/core/output_file.hpp>
#include <weft/optim/trainable.hpp>

#include "../command_line.hpp"
#include "picture.hpp"
#include "transforms.hpp"

namespace imagenet {

struct Options {
  std::string train, validation, model = "resnet50", load, export_file, output = "runs/imagenet", checkpoint, schedule = "step";
  std::optional<std::size_t> dp, batch, resize, warmup_epochs, loader_threads;
  std::size_t pp = 1, micro_batches = 1, every = 0, keep = 2;
  std::uint64_t epochs = 90, steps = 0, seed = 1, print_every = 10;
  int zero = 0;
  double learning_rate = 0.1, momentum = 0.9, weight_decay = 1e-4, label_smoothing = 0, ema = 0;
  bool resume = false, evaluate = false, reproducible = false;
  TransformOptions transform;
  DecodeOptions decode;

  std::size_t depth() const { return std::size_t(std::stoul(model.substr(6))); }
  std::size_t warmup() const { return warmup_epochs.value_or(schedule == "cosine" ? 5 : 0); }
  /// Loader threads of one of `ranks` ranks on this computer.
  std::size_t threads_for(std::size_t ranks) const {
    return loader_threads.value_or(
        std::max<std::size_t>(1, std::thread::hardware_concurrency() / std::max<std::size_t>(1, ranks)));
  }
};

/// Nothing if help was requested. Throws UsageError.
inline std::optional<Options> parse(int argc, char** argv) {
  Options o;
  CLI::App app("Trains a residual network on folders of pictures over a mesh of ranks.", "imagenet");
  using command_line::number;
  using command_line::whole;
  constexpr std::int64_t most_ranks = 4096, most = 1 << 30;

  const char* data = "Pictures";
  app.add_option("--train", o.train, "Folder with a sub-folder of JPEG and PNG files for each class")
      ->type_name("FOLDER")
      ->group(data);
  app.add_option("--validation", o.validation, "Folder with the same sub-folders; it is evaluated after every epoch")
      ->type_name("FOLDER")
      ->group(data);
  app.add_option("--size", o.transform.size, "Height and width of the network's input")
      ->check(whole(32, 4096))
      ->capture_default_str()
      ->group(data);
  app.add_option("--resize", o.resize, "Validation: the shorter side before the middle is cut out (default: 8/7 of --size)")
      ->check(whole(32, 8192))
      ->group(data);
  app.add_option("--colour-jitter", o.transform.colour_jitter,
                 "Random brightness, contrast and saturation: factors of 1 - X to 1 + X")
      ->check(number(0, 1))
      ->capture_default_str()
      ->group(data);
  app.add_option("--hue", o.transform.hue, "Random turn of the hue, in parts of the circle: -X to X")
      ->check(number(0, 0.5))
      ->capture_default_str()
      ->group(data);
  app.add_flag("--convert-cmyk", o.decode.convert_cmyk,
               "Convert CMYK pictures without their profiles, as Pillow does; default: refuse them")
      ->group(data);
  app.add_option("--loader-threads", o.loader_threads, "Threads that decode, on each rank (default: cores / ranks)")
      ->check(whole(1, 256))
      ->group(data);

  const char* layout = "Layout";
  app.add_option("--dp", o.dp, "Data parallel degree (default: 2, or the remaining ranks if their number is given)")
      ->check(whole(1, most_ranks))
      ->group(layout);
  app.add_option("--pp", o.pp, "Pipeline parallel degree")->check(whole(1, most_ranks))->capture_default_str()->group(layout);
  app.add_option("--zero", o.zero, "Stage of ZeRO")->check(whole(0, 3))->capture_default_str()->group(layout);
  app.add_option("--micro-batches", o.micro_batches, "Micro-batches of a step; each has its own statistics of BatchNorm")
      ->check(whole(1, most))
      ->capture_default_str()
      ->group(layout);

  const char* training = "Training";
  app.add_option("--model", o.model)
      ->check(CLI::IsMember({"resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnet10", "resnet14"}))
      ->capture_default_str()
      ->group(training);
  app.add_option("--load", o.load, "Parameters to begin with: a safetensors file of torchvision's state_dict()")
      ->type_name("FILE")
      ->group(training);
  app.add_flag("--evaluate", o.evaluate, "Only evaluate --validation")->group(training);
  app.add_option("--epochs", o.epochs)->check(whole(1, most))->capture_default_str()->group(training);
  app.add_option("--steps", o.steps, "Number of steps, instead of whole epochs")
      ->check(whole(0))
      ->capture_default_str()
      ->group(training);
  app.add_option("--batch", o.batch,
                 "Images of a step, over all ranks (default: 256, or the next number that the ranks can share)")
      ->check(whole(1, most))
      ->group(training);
  app.add_option("--learning-rate", o.learning_rate, "Peak learning rate")
      ->check(number(0, weft::optim::largest_rate, true))
      ->capture_default_str()
      ->group(training);
  app.add_option("--schedule", o.schedule, "Learning rate: step (a tenth after every 30 epochs) or cosine (half a cosine to 0)")
      ->check(CLI::IsMember({"step", "cosine"}))
      ->capture_default_str()
      ->group(training);
  app.add_option("--warmup-epochs", o.warmup_epochs,
                 "Epochs of a linear start of the learning rate (default: 5 with cosine, else 0)")
      ->check(whole(0, most))
      ->group(training);
  app.add_option("--momentum", o.momentum, "Of SGD")->check(number(0, 1, true))->capture_default_str()->group(training);
  app.add_option("--weight-decay", o.weight_decay, "Added to the gradient")
      ->check(number(0, weft::optim::largest_decay, true))
      ->capture_default_str()
      ->group(training);
  app.add_option("--label-smoothing", o.label_smoothing, "Part of the target that all classes share")
      ->check(number(0, 1, true))
      ->capture_default_str()
      ->group(training);
  app.add_option("--ema", o.ema, "Decay of a moving average of the parameters, which is then evaluated; 0: none")
      ->check(number(0, 1, true))
      ->capture_default_str()
      ->group(training);
  app.add_option("--seed", o.seed)->check(whole(0))->capture_default_str()->group(training);
  app.add_flag("--reproducible", o.reproducible,
               "The same bits for every --zero and --pp; another --dp divides the sums otherwise")
      ->group(training);

  const char* report = "Report and checkpoints";
  app.add_option("--print-every", o.print_every, "Steps between two printed losses")
      ->check(whole(1))
      ->capture_default_str()
      ->group(report);
  app.add_option("--output", o.output, "Folder for layout.json, metrics.jsonl, loss.svg and accuracy.svg")
      ->type_name("FOLDER")
      ->capture_default_str()
      ->group(report);
  app.add_option("--export", o.export_file,
                 "At the end: the model as a safetensors file of torchvision's state_dict(), with --ema the averages")
      ->type_name("FILE")
      ->group(report);
  app.add_option("--checkpoint", o.checkpoint,
                 "Folder for the training state, which any layout can load; also written at the end")
      ->type_name("FOLDER")
      ->group(report);
  app.add_option("--every", o.every, "Steps between checkpoints; 0: after each epoch")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(report);
  app.add_option("--keep", o.keep, "Number of newest checkpoints to keep; 0: all")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(report);
  app.add_flag("--resume", o.resume, "Continue from the newest checkpoint, or start if there is none")->group(report);
  app.footer("--rehearse N[:rank] prints the memory and messages of a rank of N (docs/planning.md).");

  if (!command_line::parse(app, argc, argv)) return std::nullopt;
  const auto refuse = [](const std::string& what) { throw weft::UsageError("imagenet: " + what); };
  if (o.evaluate && o.validation.empty()) refuse("--evaluate needs --validation FOLDER");
  if (!o.evaluate && o.train.empty())
    refuse(
        "--train FOLDER is missing: a folder with one sub-folder of JPEG and PNG files for each class (--help lists the "
        "options)");
  for (const auto& [name, value] :
       {std::pair("--train", &o.train), std::pair("--validation", &o.validation), std::pair("--load", &o.load),
        std::pair("--export", &o.export_file), std::pair("--output", &o.output), std::pair("--checkpoint", &o.checkpoint)})
    if (app.count(name) > 0 && value->empty()) refuse(std::string(name) + " is empty: it needs a name");
  for (const char* name : {"--every", "--keep", "--resume"})
    if (o.checkpoint.empty() && app.count(name) > 0)
      refuse(std::string(name) + " is of checkpoints: it needs --checkpoint FOLDER");
  if (!o.export_file.empty()) {
    if (o.evaluate) refuse("--export beside --evaluate: nothing is trained; leave one out");
    weft::detail::require_output("imagenet: --export", o.export_file);
  }
  if (!o.load.empty() && o.resume) refuse("--load beside --resume: the checkpoint has the parameters; leave one out");
  o.transform.resize = o.resize.value_or(o.transform.size * 8 / 7);
  if (o.transform.resize < o.transform.size)
    refuse("--resize " + std::to_string(o.transform.resize) + " is below --size " + std::to_string(o.transform.size) +
           ": the middle that is cut out would not fit");
  for (const auto& [name, value] : {std::pair("--output", &o.output), std::pair("--checkpoint", &o.checkpoint)}) {
    std::error_code unseen;
    const auto status = std::filesystem::status(*value, unseen);
    if (!value->empty() && std::filesystem::exists(status) && !std::filesystem::is_directory(status))
      refuse(std::string(name) + " " + weft::detail::shown(*value, 300) + ": is there, and is no folder");
  }
  return o;
}

}  // namespace imagenet
