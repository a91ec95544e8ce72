// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of a model: the choices that a user may make when one is constructed, beside its type.
//
//   DataParallel<models::Gpt> model(mesh, config, {.seed = 3, .numerics = {.compare_every = 0}});

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/engine/loss_scale.hpp>
#include <weft/optim/offload.hpp>
#include <weft/parallel/hook/reduce_option.hpp>
#include <weft/parallel/reproducible/option.hpp>

namespace weft {

namespace schedule {
class AnySchedule;
class TimelineRecorder;
}  // namespace schedule
namespace hook {
class Factory;
}

/// The method by which attention reaches the keys and values of other ranks of cp.
enum class ContextMethod : std::uint8_t {
  ring,     ///< keys and values go round while blocks are computed; any number of heads
  ulysses,  ///< tokens are exchanged for heads, two all-to-alls each way
};

/// The sums of gradients over data ranks that keep all of them: DataParallel, and stage 0 of FullyShardedDataParallel.
struct DataOptions {
  std::size_t first_bucket_bytes = 1u << 20;  ///< the bucket that is ready first is small, so that reduction starts early
  std::size_t bucket_bytes = 25u << 20;       ///< the other buckets close when they reach this size
  std::shared_ptr<const hook::Factory> hook = nullptr;  ///< sums the buckets in place of a plain all-reduce
};

/// The state that FullyShardedDataParallel shards over data ranks, and the state that is kept off the device.
struct ShardOptions {
  /// The stage of ZeRO: 1 shards the optimizer's state, 2 also gradients, 3 also parameters; 0 nothing, and gradients are then
  /// summed as in DataParallel. See zero in parallel/policies.hpp for the memory of each.
  int stage = 3;
  /// The number of copies of the shards (hybrid sharding). The data ranks form `replicate` groups of neighbours; each group
  /// shards the state among its ranks, and gradients are summed over the groups once per step. Must divide dp.
  std::size_t replicate = 1;
  /// The ranks of the domain axes (DomainParallel) share the state as well: the state has dp times their number of parts, and
  /// `replicate`, `secondary` and `quantised_reduce` count them as neighbouring data ranks. With `replicate` = dp, the ranks of
  /// one field share one copy. One sum over all of these ranks replaces those over each domain axis. Throws UsageError with
  /// experts, with numerics.recheck_every and in stage 0, also on a mesh without domain axes.
  bool over_domain = false;
  /// Stages 2 and 3: false keeps whole gradients until the last micro-batch of a step, which takes their memory and saves all
  /// reductions but one.
  bool reduce_each_micro_batch = true;
  /// Stage 3: parameters are gathered as 8-bit integers with one scale for each 256 of them (ZeRO++ qwZ).
  bool quantised_gather = false;
  /// Stage 3: this many neighbours keep a unit's values among them from its first gather of a step on, and later gathers ask only
  /// these ranks (ZeRO++ hpZ); takes P / secondary more values per rank. 0: off. Must divide the number of ranks that share a
  /// copy.
  std::size_t secondary = 0;
  /// Gradients are summed over the ranks that share a copy as integers with one scale for each 256 of them (ZeRO++ qgZ): among
  /// this many neighbours, the ranks of a node, and then between nodes, where each rank sends a quarter of the bytes. A number is
  /// rounded once in each of the two sums, by at most half a unit of its block's largest number / 127. 0: off. Must divide the
  /// number of ranks that share a copy. The sum over copies is in float.
  std::size_t quantised_reduce = 0;
  int quantised_reduce_bits = 8;  ///< of the integers among neighbours, 8 or 4, which rounds to the largest number / 7
  /// The optimizer's state (under every wrapper) and the parameters (under stage 3) are on the device only while they are used.
  Offload offload = {};
};

/// The sums and gathers of activations and of their gradients over tensor ranks.
struct TensorOptions {
  /// Above 0, a sum follows its product in up to 8 pieces of at least this many bytes, such as 1 << 20: while a piece is
  /// multiplied, the pieces before it are summed. Under sequence parallelism a gather goes in pieces, too: a rank multiplies its
  /// own rows while those of other ranks arrive. Worth it where messages move while ranks compute (GPUs, a network). 0: the
  /// whole sum follows the whole product; right for ranks that share a host's cores. Input gradients that are summed before their
  /// sum over tp (Llama's query, key and value, its gate and up) go in pieces together. A product whose terms are used otherwise
  /// before they are summed is not cut: by a dropout above 0, or by an adapter.
  ///
  /// The pieces are a function of this number, of the shapes and of tp, so a reproducible run keeps its bits for every dp and pp.
  /// Numerics: in double on hosts the bits are those of 0. In other types, and on GPUs, results differ from those of 0 by
  /// rounding, since the order in which a library's product sums depends on the number of rows; NCCL's order over more than two
  /// ranks depends on the size of a sum.
  std::size_t piece_bytes = 0;
};

/// Options of PipelineParallel: the schedule, the layers of each stage, a recording.
struct PipelineOptions {
  /// The schedule that PipelineParallel runs, such as schedule::zbv, schedule::custom<table>() or schedule::choose("zbv"); null:
  /// one forward, one backward.
  std::shared_ptr<const schedule::AnySchedule> schedule = nullptr;
  /// The number of blocks of each stage, in the order of the model: pp times the schedule's stages per rank; of units in a stack.
  /// The sum is the model's. The first and the last stage of a recipe may have 0, since they hold the embedding and the head.
  /// Empty: numbers that differ by one at most, and by cost in a stack. plan::balanced_stages gives numbers by cost.
  std::vector<std::size_t> layers = {};
  std::shared_ptr<schedule::TimelineRecorder> timeline =
      nullptr;  ///< records the times of this rank's actions in each training step
};

/// The types and the order in which gradients are added, their scale, and the comparisons between ranks.
struct NumericsOptions {
  /// Training gives the same bits (losses, gradients, norm, updates) for every dp degree that divides the number of
  /// micro-batches, every stage of ZeRO, every schedule and every pp degree, as long as the micro-batches, their size and the
  /// threads of a rank are the same. Experts may be sharded over ep if ep * etp is a multiple of cp * tp. Cost for a rank with k
  /// micro-batches: log2(k) - 1 more copies of the gradients (at least 0); stages 2 and 3 of ZeRO keep whole gradients until the
  /// last micro-batch; a tied embedding has a second gradient.
  ReproducibleOption reproducible = {};
  /// A reproducible run also has the same bits for every tp degree that divides this number, a power of two: each sum over tp has
  /// this many terms, which are added in one binary tree (tensor/fixed_terms.hpp). Needs TensorParallel or SequenceParallel in
  /// the type of the model, also for one rank. With ContextParallel in the type, the same holds for every cp that divides it, by
  /// Ulysses (autograd/row_terms.hpp). Every model on the device computes so from then on. For language models on hosts: Linear
  /// layers, adapters, dropout, embeddings, norms and their losses, and mixtures of experts; the degree must divide the
  /// vocabulary, the widths that tp cuts, heads that have a norm, and a micro-batch's rows that tp cuts (experts,
  /// SequenceParallel), and twice the degree a sequence that cp cuts. Other sums over tp or cp throw UsageError (but not those
  /// that your own layer makes with a communicator), as do ExpertParallel, SequenceParallel or experts inside ContextParallel,
  /// GPUs, and more ranks than key-value heads. LayoutError for a ring over cp, and for ep or etp above 1. Cost: weft's blocked
  /// product in place of a library's, for each term, and one all-reduce for each product that is a sum. 0: off.
  std::size_t reproducible_degree = 0;
  /// The numbers of a token do not depend on the other tokens that are computed with it: a forward of training, of a prompt and
  /// of one token with a KeyValueCache give a token the same bits, as does every batch size. So the log-probabilities of
  /// generate (GenerateOptions::log_probabilities) are those of a training forward without dropout (log_probability), bit by bit,
  /// in every layout of dp, ZeRO and pp, and of cp by Ulysses, for each tp degree (degrees of tp differ by rounding). Every model
  /// on the device computes so from then on. Gradients need no such order and keep only the reproducibility of other runs. Hosts
  /// only: Device::make_batch_invariant. Throws UsageError on GPUs, LayoutError for cp by a ring, and in a forward UsageError for
  /// convolutions, attention with a mask in arrays, BatchNorm in training and experts that drop tokens. Products whose left
  /// operand is transposed, which sum over rows, keep their order.
  bool batch_invariant = false;
  /// The type in which gradients are sent and added over data ranks: bfloat16, or float32 (or unset) for the gradients' own type,
  /// which is float for layers in 16 bits and in float, and double for layers in double.
  ReduceOption reduce = {};
  /// FullyShardedDataParallel of a model in bfloat16 or float16: the type in which sums of gradients are kept between
  /// micro-batches and for the optimizer, the model's own or float32. Every sum is computed in float and rounded once per
  /// micro-batch. Unset: bfloat16 of such a model in stages 1 and 2 (4P + 12P/N and 2P + 14P/N bytes), float32 in stage 3
  /// (16P/N), in reproducible runs, and of a model in float16, whose sums would overflow at smaller loss scales.
  std::optional<DataType> gradient = {};
  std::optional<LossScaleOptions> loss_scale = std::nullopt;  ///< gradients are scaled; those of a model in float16 always are
  /// An optimizer's first step and every compare_every-th one end with a comparison of the parameters that several ranks hold
  /// (require_equal_parameters). A communication hook's sums are compared with plain ones as often. 0: parameters are never
  /// compared, and a hook's sums only in the first step.
  std::uint64_t compare_every = 100;
  /// In step 0 and every recheck_every-th one each data rank first computes the first micro-batch of the data rank before it, and
  /// train_step compares the bits of its gradients and its loss: a processor that computes wrong numbers without an error is
  /// found. A third data rank decides which one it is. Throws CorruptionError on every rank; the step is not applied then. Needs
  /// dp of at least 2, processors of one model and the same number of threads on all ranks, and on GPUs neither
  /// cudnn::Bits::vary nor kernels::time_products. The training keeps its bits. Cost: a micro-batch's
  /// computation and messages in each of these steps. Custom training loops are not checked. 0: off.
  std::uint64_t recheck_every = 0;
  /// find_nonfinite(model) names the ranks and parameters whose gradients were not finite, before any sum over ranks. Costs a
  /// pass over the gradients for each micro-batch, and on a GPU a wait for each unit.
  bool trace_nonfinite = false;
};

/// The loss of a language model (LanguageHead).
struct LossOptions {
  /// The tokens of a micro-batch pass the head in this many parts, so the logits of one part are in memory at a time in place of
  /// all, [tokens / chunks, vocabulary / tp]. At most one part for each token. Logits are then computed three times: for the
  /// loss, for the gradient of the head's input, and for that of its table, which is 5 products in place of 3. A custom loop's
  /// `forward` returns whole logits, and the losses of your own (cross_entropy) are not cut.
  ///
  /// Numerics: the loss and the table's gradient are sums over the parts, so they differ by rounding from those of 1. The parts
  /// are a function of this number and the tokens of a micro-batch, so a reproducible run keeps its bits for every dp and pp.
  std::size_t chunks = 1;
};

/// The place of activations between a unit's forward and its backward.
struct ActivationOptions {
  /// Patterns of units (`*` matches any characters), such as "block *", whose activations are in host memory from their
  /// forward until shortly before their backward: a third choice, apart from keeping them on the device and computing them again
  /// (Recomputation). A GPU copies while it computes. Blocks leave that only this unit's backward needs, of at least 1 KiB.
  /// Units are the model's blocks, first and last layers, or the layers of a stack; those with a hand-written backward are
  /// refused. Custom training loops keep their activations on the device, and rows that were gathered in pieces
  /// (TensorOptions::piece_bytes) stay there, too. Memory: the device holds those of two units at a time, the host those of all
  /// micro-batches in flight. Numerics: the same bits.
  std::vector<std::string> on_host = {};
};

/// The options of a model. All ranks pass the same. Types of wrappers may set options, too (parallel/policies.hpp).
///
///   Model model(mesh, config, {.seed = 1,
///                              .shard = {.stage = 2},
///                              .pipeline = {.schedule = schedule::zbv},
///                              .numerics = {.reproducible = true}});
struct ModelOptions {
  WEFT_COLD ~ModelOptions() = default;

  std::uint64_t seed = 1;  ///< of initial weights and dropout
  DataOptions data = {};
  ShardOptions shard = {};
  ContextMethod context = ContextMethod::ring;  ///< ContextParallel: how attention spans its ranks
  TensorOptions tensor = {};
  PipelineOptions pipeline = {};
  NumericsOptions numerics = {};
  LossOptions loss = {};
  ActivationOptions activations = {};
  /// Patterns of the parameters that are frozen from the start, as model.freeze takes them, and so never have memory for
  /// gradients; unfreeze trains them later. Throws UsageError for a pattern that names no parameter.
  std::vector<std::string> freeze = {};
  /// Low-rank adapters for a model whose type has layers that take them (models::BasicLlama<float, Lora>): with a rank above 0
  /// all parameters but the adapters' are frozen from the start. Throws UsageError for a pattern that names no such layer.
  LoraOptions lora = {};

  /// Throws UsageError for options that exclude each other.
  void check() const;
};

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/parallel/model_options_impl.hpp>
#endif
