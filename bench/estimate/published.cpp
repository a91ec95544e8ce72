// SPDX-License-Identifier: Apache-2.0
// Estimates of published step times, and their errors.
//   bench_estimate_published [a100|h100|torchtitan] [first row] [last row]

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/plan/estimate.hpp>

using namespace weft;

namespace {

/// One row of a table. `v`: chunks per rank. Values that the tables omit (micro-batches, v) are chosen here, once.
struct Row {
  const char* name;
  std::size_t heads, width, layers, tp, pp;
  int ranks;
  std::size_t batch, micro_batch;
  int v;
  double tflops;  // per rank, as published
  bool fitted;
};

// arXiv:2104.04473, table 1: sequences of 2048, vocabulary 51,200, everything recomputed, interleaved schedule.
const Row a100[] = {
    {"1.7B", 24, 2304, 24, 1, 1, 32, 512, 4, 1, 137, true},        {"3.6B", 32, 3072, 30, 2, 1, 64, 512, 4, 1, 138, false},
    {"7.5B", 32, 4096, 36, 4, 1, 128, 512, 4, 1, 142, true},       {"18B", 48, 6144, 40, 8, 1, 256, 1024, 4, 1, 135, false},
    {"39B", 64, 8192, 48, 8, 2, 512, 1536, 2, 2, 138, true},       {"76B", 80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 140, false},
    {"146B", 96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 148, false},   {"310B", 128, 16384, 96, 8, 16, 1920, 2160, 1, 3, 155, false},
    {"530B", 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 163, true}, {"1T", 160, 25600, 128, 8, 64, 3072, 3072, 1, 2, 163, false}};

// Megatron-LM's README, July 2024: sequences of 4096, vocabulary 131,072, flash attention, nothing recomputed.
const Row h100[] = {{"1.7B", 16, 2048, 24, 1, 1, 48, 192, 4, 1, 408.8, true},
                    {"7.1B", 32, 4096, 30, 2, 1, 96, 192, 4, 1, 465.9, false},
                    {"16B", 48, 6144, 32, 4, 1, 192, 192, 4, 1, 489.1, false},
                    {"32B", 56, 7168, 48, 8, 1, 384, 192, 4, 1, 459.6, true},
                    {"70B", 64, 8192, 84, 8, 2, 768, 384, 1, 2, 419.7, false},
                    {"119B", 80, 10240, 92, 8, 4, 1536, 768, 1, 1, 420.5, true},
                    {"177B", 96, 12288, 96, 8, 6, 2304, 1152, 1, 2, 432.8, false},
                    {"314B", 128, 16384, 96, 8, 8, 3072, 1536, 1, 3, 474.4, true},
                    {"462B", 144, 18432, 112, 8, 16, 6144, 3072, 1, 7, 459.9, false}};

std::shared_ptr<const schedule::AnySchedule> interleaved(int v) {
  switch (v) {
    case 2: return schedule::Value<schedule::Interleaved<2>>();
    case 3: return schedule::Value<schedule::Interleaved<3>>();
    case 7: return schedule::Value<schedule::Interleaved<7>>();
    default: return schedule::Value<schedule::OneForwardOneBackward>();
  }
}

Batch batch_of(std::size_t data_rank, std::size_t sequences, std::size_t length, std::size_t micro_batches) {
  Batch batch{.sequences = sequences, .length = length, .micro_batches = micro_batches};
  batch.first_sequence = sequences * data_rank;
  batch.tokens.assign(sequences * length, 1);
  batch.targets.assign(sequences * length, 2);
  return batch;
}

template <class Model>
using Parallel = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>, Invariant<tp>>>;

/// A table's program, where it differs from weft.
struct Program {
  const char* machine;
  std::size_t vocabulary, sequence;
  bool recomputes;
  int zero;                                          // gradients are summed in float
  double attention_share, attention_backward_share;  // fractions of the peak
  bool hides_tp;                                     // tensor parallelism's messages overlap with products
};

// 2021: attention writes its scores to memory. Its share and the A100's product_share were fitted to the rows marked with *.
const Program megatron_2021{"a100", 51200, 2048, true, 0, 0.11, 0.11, false};
// 2024: FlashAttention-2, the distributed optimizer and --tp-comm-overlap. Attention's shares were fitted to the rows marked with
// *.
const Program megatron_2024{"h100", 131072, 4096, false, 1, 0.2, 0.16, true};

plan::Machine machine_of(const Program& program) {
  plan::Machine machine = plan::known_machine(program.machine);
  machine.attention_share = program.attention_share;
  machine.attention_backward_share = program.attention_backward_share;
  return machine;
}

std::vector<RehearsedStage> rehearsed(const Row& row, const Program& program) {
  return rehearse_stages({.ranks = row.ranks, .trace = true}, [&](World& world) {
    const Mesh<dp, tp, pp> mesh(world, {.tp = row.tp, .pp = row.pp});
    const models::GptConfig config{.vocabulary = program.vocabulary,
                                   .layers = row.layers,
                                   .width = row.width,
                                   .heads = row.heads,
                                   .sequence = program.sequence,
                                   .recompute = program.recomputes ? Recomputation::full : Recomputation::none};
    ModelOptions options;
    options.shard.stage = program.zero;
    options.numerics.gradient = DataType::float32;
    options.pipeline.schedule = interleaved(row.v);
    Parallel<models::BasicGpt<bfloat16>> model(mesh, config, options);
    optim::AdamW optimizer(model);
    const std::size_t mine = row.batch / std::size_t(mesh.size(dp{}));
    const Batch batch = batch_of(std::size_t(mesh.rank(dp{})), mine, program.sequence, mine / row.micro_batch);
    for (int step = 0; step < 2; ++step) {  // the first step has no order of the units yet
      model.train_step(batch);
      optimizer.step();
    }
  });
}

plan::Replayed replayed(const std::vector<RehearsedStage>& stages, const Program& program, const plan::Machine& machine) {
  std::vector<const RehearsedTrace*> traces;
  for (const RehearsedStage& stage : stages) traces.push_back(stage.notes.trace.get());
  plan::EventCosts costs = plan::costs_of(stages.front().notes, machine);
  if (program.hides_tp)
    costs.message = [message = costs.message](const RehearsedTrace::Event& event, const RehearsedTrace::Group& group) {
      return group.axis == "tp" ? 0.0 : message(event, group);
    };
  return plan::replay(traces, costs);
}

void print_where(const plan::Replayed& step) {
  plan::StageTimes mean;
  for (const plan::StageTimes& stage : step.stages) {
    const double share = 1 / (double(step.stages.size()) * step.seconds);
    mean.products += stage.products * share, mean.attention += stage.attention * share, mean.kernels += stage.kernels * share;
    mean.optimizer += stage.optimizer * share, mean.bubble += stage.bubble * share;
    for (const auto& [axis, seconds] : stage.exposed) mean.exposed[axis] += seconds * share;
  }
  std::printf(" | %4.1f %4.1f %4.1f %4.1f bubble %4.1f", 100 * mean.products, 100 * mean.attention, 100 * mean.kernels,
              100 * mean.optimizer, 100 * mean.bubble);
  for (const auto& [axis, share] : mean.exposed) std::printf(" %s %.1f", axis.c_str(), 100 * share);
  std::printf("\n");
}

/// torchtitan's benchmarks of December 2024: Llama 3.1 8B, FSDP, 2 sequences of 8192 per rank, bfloat16, hosts of 8 H100 with 2.4
/// TB/s and 500 of 700 W. Tokens per second and rank, compiled by torch.compile.
const struct {
  int ranks;
  double tokens;
} torchtitan[] = {{8, 6667}, {128, 6514}};

void torchtitan_table() {
  plan::Machine machine = machine_of(megatron_2024);
  machine.memory_bandwidth = 2.4e12;
  machine.flops_16 *= std::cbrt(500.0 / 700);  // power grows with the cube of the clock
  std::printf("torchtitan, Llama 3.1 8B, FSDP: tokens a second of a rank\n");
  for (const auto& row : torchtitan) {
    const plan::Estimate step = plan::estimate({.ranks = row.ranks}, machine, [&](World& world) {
      const Mesh<dp> mesh(world);
      ModelOptions options;
      options.shard.stage = 3;
      FullyShardedDataParallel<models::BasicLlama<bfloat16>> model(mesh,
                                                                   {.vocabulary = 128256,
                                                                    .layers = 32,
                                                                    .width = 4096,
                                                                    .heads = 32,
                                                                    .kv_heads = 8,
                                                                    .intermediate = 14336,
                                                                    .sequence = 8192,
                                                                    .recompute = Recomputation::selective},
                                                                   options);
      optim::AdamW optimizer(model);
      const Batch batch = batch_of(std::size_t(mesh.rank(dp{})), 2, 8192, 1);
      for (int step = 0; step < 3; ++step) {  // the second step records the order of backward
        model.train_step(batch);
        optimizer.step();
      }
    });
    const double tokens = step.tokens_per_second() / row.ranks;
    std::printf("%6d %9.0f %9.0f %+6.1f %% ", row.ranks, row.tokens, tokens, 100 * (tokens / row.tokens - 1));
    print_where(step.replayed);
  }
}

struct Errors {
  std::vector<double> fitted, others;
  void add(bool fit, double error) { (fit ? fitted : others).push_back(std::abs(error)); }
  void print() {
    const auto median = [](std::vector<double> x) {
      std::sort(x.begin(), x.end());
      return x.empty() ? 0.0 : x.size() % 2 ? x[x.size() / 2] : (x[x.size() / 2 - 1] + x[x.size() / 2]) / 2;
    };
    std::vector<double> all = fitted;
    all.insert(all.end(), others.begin(), others.end());
    std::printf("error, median and largest: all rows %.1f %% %.1f %%; rows not fitted %.1f %% %.1f %%\n", 100 * median(all),
                100 * *std::max_element(all.begin(), all.end()), 100 * median(others),
                others.empty() ? 0.0 : 100 * *std::max_element(others.begin(), others.end()));
  }
};

// By Megatron's count: every pair of queries and keys, and, in 2021, the recomputed forward.
double megatron_flops(const Row& row, const Program& program) {
  const double h = double(row.width), l = double(row.layers), sequence = double(program.sequence),
               vocabulary = double(program.vocabulary),
               forward = 24 * double(row.batch) * sequence * l * h * h *
                         (1 + sequence / (6 * h) + vocabulary / (12 * l * h) * (program.recomputes ? 0.75 : 1.0));
  return forward * (program.recomputes ? 4 : 3);
}

template <std::size_t N>
void table(const Row (&rows)[N], const Program& program, std::size_t first, std::size_t last) {
  const plan::Machine machine = machine_of(program);
  Errors errors;
  std::printf("%s: TFLOP/s of a rank\n%-6s %9s %9s %8s | %% of the step: products attention kernels after-pipeline\n",
              program.machine, "model", "published", "estimate", "error");
  for (std::size_t i = first; i < std::min(last, N); ++i) {
    const Row& row = rows[i];
    const plan::Replayed step = replayed(rehearsed(row, program), program, machine);
    const double tflops = megatron_flops(row, program) / step.seconds / row.ranks / 1e12;
    errors.add(row.fitted, tflops / row.tflops - 1);
    std::printf("%-6s %9.1f %9.1f %+6.1f %%%s", row.name, row.tflops, tflops, 100 * (tflops / row.tflops - 1),
                row.fitted ? "*" : " ");
    print_where(step);
    std::fflush(stdout);
  }
  errors.print();
}

}  // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos;
  const std::string what = argc > 1 ? argv[1] : "";
  const std::size_t first = argc > 2 ? std::size_t(std::atoi(argv[2])) : 0,
                    last = argc > 3 ? std::size_t(std::atoi(argv[3])) : 100;
  if (what.empty() || what == "a100") table(a100, megatron_2021, first, last);
  if (what.empty() || what == "h100") table(h100, megatron_2024, first, last);
  if (what.empty() || what == "torchtitan") torchtitan_table();
}
