// SPDX-License-Identifier: Apache-2.0
// A complete training program in 60 lines: text, mesh, model, learning-rate schedule, validation, a sample.
//   ./examples/run gpt_60                                     one rank per core
//   WEFT_RANKS=4 ./examples/run gpt_60 --tp 2 --pp 2 --steps 300 --data novel.txt
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>
#include <weft/trace/progress.hpp>
#include <weft/weft.hpp>
using namespace weft;

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string("--version")) return runtime::print_versions("gpt_60");
  return run<comm::Threads>(take_run_options(argc, argv), [&](World& world) {
    std::map<std::string, std::string> options{
        {"--data", WEFT_SOURCE_FOLDER "/docs/guide.md"}, {"--steps", "300"}, {"--tp", "1"}, {"--pp", "1"}};
    for (int i = 1; i < argc; options[argv[i]] = argv[i + 1], i += 2)
      if (!options.contains(argv[i]) || i + 1 == argc)
        throw UsageError(std::string("gpt_60: options are --data, --steps, --tp and --pp, each with a value, not ") + argv[i]);
    const auto number = [&](const char* name) { return std::size_t(runtime::whole_number_of(name, options[name], 1, 1 << 20)); };
    Mesh<dp, tp, pp> mesh(world, {.tp = number("--tp"), .pp = number("--pp")});  // dp is the rest of the ranks
    const models::GptConfig config{.vocabulary = 256, .layers = 4, .width = 64, .heads = 4, .sequence = 64};
    FullyShardedDataParallel<TensorParallel<PipelineParallel<models::Gpt>>> model(mesh, config, {.shard = {.stage = 1}});

    const std::size_t steps = number("--steps"), unit = 2 * mesh.size(dp{}), all = (31 + unit) / unit * unit;  // 32 or more
    const data::Batches batches(mesh, options["--data"],
                                {.sequence = config.sequence, .global_batch = all, .micro_batch = 2, .validation_sequences = 64});
    optim::AdamW optimizer(model, {.weight_decay = 0.1, .clip = 1.0});
    const optim::WarmupCosine rate{.peak = 3e-3, .minimum = 3e-4, .warmup = steps / 10, .steps = steps};
    const auto validate = [&] {
      double sum = 0, targets = 0;
      for (std::size_t i = 0; i < batches.validation_batches(); ++i) {
        const double count = double(batches.validation_targets(i));
        sum += count * model.evaluate(batches.validation(i)), targets += count;
      }
      return sum / targets;
    };
    trace::Progress progress(trace::for_terminal(world.communicator(), {.steps = steps}));
    for (std::size_t step = 0; step < steps; ++step) {
      const double loss = model.train_step(batches.training(step));
      const optim::StepReport report = optimizer.step(rate.at(step));
      progress.step(step, loss, double(all * config.sequence));
      if (step % 50 != 0 && step + 1 != steps) continue;  // all ranks validate, and rank 0 prints
      progress.print("step %3zu  loss %.3f  validation %.3f  gradient norm %.2f", step, loss, validate(), report.gradient_norm);
    }

    std::vector<std::int32_t> text{'T', 'h', 'e', ' '};
    while (text.size() < config.sequence) {  // every rank draws the same byte: random numbers are functions of (seed, place)
      const std::vector<float> logits = model.next_logits(text);
      std::vector<double> up_to(logits.size());
      double sum = 0;
      for (std::size_t i = 0; i < logits.size(); ++i) up_to[i] = sum += std::exp(double(logits[i]));
      const double at = sum * Philox::uniform(key_of(1, site_of("sample")), text.size());
      text.push_back(std::int32_t(std::upper_bound(up_to.begin(), up_to.end() - 1, at) - up_to.begin()));
    }
    progress.print("%s", std::string(text.begin(), text.end()).c_str());
  });
}
