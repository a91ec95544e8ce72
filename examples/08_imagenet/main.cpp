// SPDX-License-Identifier: Apache-2.0
// Trains ResNet on folders of pictures, as PyTorch's ImageNet example does: decoding, augmentation, evaluation, checkpoints.
//
//   ./examples/run imagenet --train imagenet/train --validation imagenet/val                 ResNet-50, two thread ranks of dp
//   ./examples/run imagenet --train T --validation V --model resnet18 --schedule cosine --label-smoothing 0.1 --ema 0.9999
//   ./examples/run imagenet --validation V --load resnet50.safetensors --evaluate            torchvision's parameters
//   ./examples/run imagenet --train T --export mine.safetensors                              for torchvision
//   mpirun -np 4 ./examples/run imagenet --train T --checkpoint runs/a --resume              the launcher's ranks
//
// Pictures lie in one sub-folder for each class (image_folder.hpp). A picture's crop, flip and colours are a function of the
// seed, the epoch and its number (transforms.hpp), so every layout and every resumed run sees the same pixels. The models are in
// resnet.hpp, with torchvision's names.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
#include <weft/comm/mpi.hpp>
#define IMAGENET_MPI
#endif
#include <weft/comm/tcp.hpp>
#include <weft/weft.hpp>

#include "options.hpp"
#include "training.hpp"

namespace {

using namespace imagenet;

Folders open_folders(const Options& o) {
  Folders folders;
  if (!o.train.empty() && !o.evaluate) folders.train = std::make_shared<const ImageFolder>(o.train, "--train");
  if (!o.validation.empty()) folders.validation = std::make_shared<const ImageFolder>(o.validation, "--validation");
  if (folders.train && folders.validation) ImageFolder::require_same_classes(*folders.train, *folders.validation);
  return folders;
}

int rank_main(World& world, const Options& o, const Folders& folders) {
  const auto digest = [](const auto& folder) {
    return folder ? std::to_string(folder->size()) + " pictures, digest " + folder->identity().digest_text()
                  : std::string("none");
  };
  agree(world.communicator(), {{"--model", o.model},
                               {"--dp", o.dp},
                               {"--pp", o.pp},
                               {"--zero", o.zero},
                               {"--batch", o.batch},
                               {"--micro-batches", o.micro_batches},
                               {"--epochs", o.epochs},
                               {"--steps", o.steps},
                               {"--seed", o.seed},
                               {"--reproducible", o.reproducible},
                               {"--size", o.transform.size},
                               {"--resize", o.transform.resize},
                               {"--colour-jitter", o.transform.colour_jitter},
                               {"--hue", o.transform.hue},
                               {"--learning-rate", o.learning_rate},
                               {"--schedule", o.schedule},
                               {"--warmup-epochs", o.warmup()},
                               {"--momentum", o.momentum},
                               {"--weight-decay", o.weight_decay},
                               {"--label-smoothing", o.label_smoothing},
                               {"--ema", o.ema},
                               {"--load", o.load},
                               {"--export", o.export_file},
                               {"--convert-cmyk", o.decode.convert_cmyk},
                               {"--evaluate", o.evaluate},
                               {"--checkpoint", o.checkpoint},
                               {"--resume", o.resume},
                               {"--every", o.every},
                               {"the pictures of --train", digest(folders.train)},
                               {"the pictures of --validation", digest(folders.validation)}});
  return has_bottlenecks(o.depth()) ? run_model<Bottleneck>(world, folders, o) : run_model<BasicBlock>(world, folders, o);
}

}  // namespace

int main(int argc, char** argv) {
  RunOptions how = take_run_options(argc, argv);
  std::optional<Options> o;
  Folders folders;
  try {
    o = parse(argc, argv);
    if (!o) return runtime::written();
    folders = open_folders(*o);
  } catch (...) {
    how.refused = std::current_exception();
  }
#ifdef IMAGENET_MPI
  const bool launched = comm::Mpi::detected() || comm::Tcp::detected();
#else
  const bool launched = comm::Tcp::detected();
#endif
  if (o && (o->dp || (!launched && !runtime::detail::is_set("WEFT_RANKS"))))
    how.ranks = int(std::min<std::size_t>(o->dp.value_or(2) * o->pp, 1 << 30));
  const auto imagenet = [&](World& world) { return rank_main(world, *o, folders); };
#ifdef IMAGENET_MPI
  return run<comm::Threads, comm::Mpi, comm::Tcp>(how, imagenet);
#else
  return run<comm::Threads, comm::Tcp>(how, imagenet);
#endif
}
