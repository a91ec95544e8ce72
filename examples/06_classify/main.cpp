// SPDX-License-Identifier: Apache-2.0
// Classifies images (Fashion-MNIST) by a convolutional network or a vision transformer, in any layout.
//
//   ./examples/run classify                                        two thread ranks of dp, the network, two epochs
//   ./examples/run classify --model vit --dp 1 --tp 2 --epochs 5   tensor parallelism
//   ./examples/run classify --dp 2 --tp 2 --pp 2 --zero 2          eight thread ranks
//   mpirun -np 4 ./examples/run classify --dp 4 --zero 3           the launcher's ranks
//
// The models are in models.hpp. The losses depend on the seed and the batch, not on the layout: BatchNorm's statistics are those
// of the global batch. The files are those of Debian's package dataset-fashion-mnist; --data names another folder with the same
// file names.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>

#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
#include <weft/comm/mpi.hpp>
#endif
#include <weft/data/arrays.hpp>
#include <weft/data/idx.hpp>
#include <weft/data/loader.hpp>
#include <weft/trace/progress.hpp>
#include <weft/weft.hpp>

#include "../command_line.hpp"
#include "models.hpp"

namespace {

using namespace classify;

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist", model = "cnn";
  std::optional<std::size_t> dp, batch;
  std::size_t tp = 1, pp = 1, micro_batches = 1;
  std::uint64_t epochs = 2, steps = 0, seed = 1, print_every = 100;
  int zero = 0;
  double learning_rate = 2e-3;
};

/// The images and labels of one part, as floats in [-1, 1]. Opened once and shared by thread ranks.
auto open_images(const std::string& folder, const std::string& part) {
  const auto images = data::Idx::open(folder + "/" + part + "-images-idx3-ubyte.gz");
  const auto labels = data::Idx::open(folder + "/" + part + "-labels-idx1-ubyte.gz");
  const data::Arrays dataset(
      data::array<image, std::uint8_t>(images, {.shape = Shape{1, 28, 28}, .scale = 2 / 255.0, .shift = -1}),
      data::array<label, std::uint8_t>(labels, {.classes = 10}));
  return std::make_shared<decltype(dataset)>(dataset);
}
using Dataset = decltype(open_images("", ""));

/// The percentage of test images with the largest score at their label. Each data-parallel rank counts its own images.
double accuracy(auto& model, const auto& mesh, const Dataset& test, std::size_t global_batch) {
  std::int64_t counts[] = {0, 0};  // correct, all
  for (auto&& batch : data::Loader(mesh, test, {.global_batch = global_batch, .shuffle = false})) {
    const Prediction scores = model.predict(batch);
    const std::size_t classes = scores.shape[1];
    for (std::size_t i = 0; i < batch.samples; ++i) {
      const auto first = scores.values.begin() + std::ptrdiff_t(i * classes);
      counts[0] += std::max_element(first, first + std::ptrdiff_t(classes)) - first == batch[label].values()[i];
      ++counts[1];
    }
  }
  mesh.comm(dp{}).all_reduce(std::span(counts));
  return 100.0 * double(counts[0]) / double(counts[1]);
}

template <class Model>
void train(World& world, const Options& options, const Dataset& training, const Dataset& test) {
  Mesh<dp, tp, pp> mesh(world, {.tp = options.tp, .dp = options.dp.value_or(0), .pp = options.pp});
  FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>> model(
      mesh, {}, {.seed = options.seed, .shard = {.stage = options.zero}});
  optim::AdamW optimizer(model, {.weight_decay = 0.05, .decay_vectors = false});
  const std::size_t unit = mesh.size(dp{}) * options.micro_batches,
                    global_batch = options.batch.value_or((100 + unit - 1) / unit * unit);
  data::Loader loader(mesh, training,
                      {.global_batch = global_batch,
                       .micro_batches = options.micro_batches,
                       .seed = options.seed,
                       .epochs = options.epochs,
                       .steps = options.steps});
  const std::uint64_t steps = options.steps != 0 ? options.steps : options.epochs * loader.steps_per_epoch();
  trace::Progress progress(trace::for_terminal(world.communicator(), {.steps = steps, .unit = "images"}));
  const auto now = std::chrono::steady_clock::now;
  auto start = now();
  std::size_t images = 0;  // since `start`
  for (auto&& batch : loader) {
    const data::LoaderProgress at = loader.progress();
    const optim::WarmupCosine rate{.peak = options.learning_rate, .warmup = at.end_step / 20, .steps = at.end_step};
    const double loss = model.train_step(batch);
    optimizer.step(rate.at(at.step));
    images += global_batch;
    progress.step(at.step, loss, double(global_batch));
    if ((at.step + 1) % options.print_every == 0) progress.print("step %llu: loss %.6f", (unsigned long long)(at.step + 1), loss);
    if (at.step + 1 < at.end_step && at.step_of_epoch + 1 < at.steps_per_epoch) continue;
    const double seconds = std::chrono::duration<double>(now() - start).count();
    progress.print("epoch %llu: test accuracy %.2f %%, %.0f images/s", (unsigned long long)(at.epoch + 1),
                   accuracy(model, mesh, test, global_batch), double(images) / seconds);
    start = now(), images = 0;
  }
}

int rank_main(World& world, const Options& options, const Dataset& training, const Dataset& test) {
  agree(world.communicator(), {{"--model", options.model},
                               {"--dp", options.dp},
                               {"--tp", options.tp},
                               {"--pp", options.pp},
                               {"--zero", options.zero},
                               {"--batch", options.batch},
                               {"--micro-batches", options.micro_batches},
                               {"--epochs", options.epochs},
                               {"--steps", options.steps},
                               {"--seed", options.seed},
                               {"--learning-rate", options.learning_rate},
                               {"the images", training->size()}});
  if (options.model == "cnn") train<Cnn<float>>(world, options, training, test);
  else train<VisionTransformer<float>>(world, options, training, test);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Classifies Fashion-MNIST's images over a mesh of ranks.", "classify");
  app.add_option("--data", o.data, "Folder of the four IDX files, as in Debian's dataset-fashion-mnist")->capture_default_str();
  app.add_option("--model", o.model)->check(CLI::IsMember({"cnn", "vit"}))->capture_default_str();
  using command_line::whole;
  constexpr std::int64_t most_ranks = 4096, most = 1 << 30;
  app.add_option("--dp", o.dp, "Data parallel degree (default: 2, or the remaining ranks if their number is given)")
      ->check(whole(1, most_ranks));
  app.add_option("--tp", o.tp, "Tensor parallel degree")->check(whole(1, most_ranks))->capture_default_str();
  app.add_option("--pp", o.pp, "Pipeline parallel degree")->check(whole(1, most_ranks))->capture_default_str();
  app.add_option("--zero", o.zero, "Stage of ZeRO")->check(whole(0, 3))->capture_default_str();
  app.add_option("--epochs", o.epochs)->check(whole(1))->capture_default_str();
  app.add_option("--steps", o.steps, "Number of steps, instead of whole epochs")->check(whole(0))->capture_default_str();
  app.add_option("--batch", o.batch,
                 "Images of a step, over all ranks (default: 100, or the next number that the ranks can share)")
      ->check(whole(1, most));
  app.add_option("--micro-batches", o.micro_batches, "Micro-batches of a step; each has its own statistics of BatchNorm")
      ->check(whole(1, most))
      ->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "Peak learning rate")
      ->check(command_line::number(0, optim::largest_rate, true))
      ->capture_default_str();
  app.add_option("--seed", o.seed)->check(whole(0))->capture_default_str();
  app.add_option("--print-every", o.print_every, "Steps between two printed losses")->check(whole(1))->capture_default_str();
  app.footer("--rehearse N[:rank] prints the memory and messages of a rank of N (docs/planning.md).");
  RunOptions how = take_run_options(argc, argv);
  try {
    if (!command_line::parse(app, argc, argv)) return runtime::written();
  } catch (...) {
    how.refused = std::current_exception();
  }

  const auto classify = [&](World& world) {
    static const Dataset training = open_images(o.data, "train"), test = open_images(o.data, "t10k");  // opened by the first
                                                                                                       // thread rank
    return rank_main(world, o, training, test);
  };
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
  using Ranks = comm::Mpi;
#else
  using Ranks = comm::Threads;
#endif
  if (o.dp || (!Ranks::detected() && !runtime::detail::is_set("WEFT_RANKS")))
    how.ranks = int(std::min<std::size_t>(o.dp.value_or(2) * o.tp * o.pp, 1 << 30));
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
  return run<comm::Threads, comm::Mpi>(how, classify);
#else
  return run<comm::Threads>(how, classify);
#endif
}
