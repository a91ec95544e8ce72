// SPDX-License-Identifier: Apache-2.0
#pragma once
// The matrix of layouts: every axis alone, in pairs and in triples, with every schedule and every stage of ZeRO, dense models and
// mixtures of experts. Schedule and stage are run-time options, so four compositions are compiled for all of it.

#include "support/experts.hpp"

#include <weft/pipeline/schedule/dynamic.hpp>

namespace weft_test {

/// One layout; dp is the rest of the world that `degrees` leaves.
struct MatrixEntry {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches = 2;
  const char* schedule = "1f1b";
  int zero = 0;
  bool over_processes = false;  ///< also runs under mpirun
};

template <class Model>
using Staged = PipelineParallel<Model>;
/// GPT: tied embeddings, rings of keys and values.
using DenseRing = FullyShardedDataParallel<ContextParallel<TensorParallel<Staged<models::BasicGpt<double>>>, Ring>>;
/// Llama: rotary positions, grouped heads, rows cut over tp between blocks, Ulysses.
using DenseUlysses = FullyShardedDataParallel<ContextParallel<SequenceParallel<Staged<models::BasicLlama<double>>>, Ulysses>>;
/// Mixtral on a folded mesh.
using RingExperts =
    FullyShardedDataParallel<ContextParallel<TensorParallel<ExpertParallel<Staged<models::BasicMixtral<double>>>>, Ring>>;
using SequenceExperts = FullyShardedDataParallel<SequenceParallel<ExpertParallel<Staged<models::BasicMixtral<double>>>>>;

using DenseMesh = Mesh<dp, cp, tp, pp>;
using FoldedMesh = Mesh<dp, cp, tp, pp, ep, etp, edp>;
using ExpertMesh = Mesh<dp, tp, pp, ep, etp, edp>;

inline const std::vector<MatrixEntry> dense_ring = {
    // one axis
    {1, {}, 4},
    {2, {}, 2, "1f1b", 0},
    {2, {}, 4, "1f1b", 1},
    {4, {}, 2, "1f1b", 2, true},
    {8, {}, 1, "1f1b", 3},
    {2, {.tp = 2}, 2},
    {4, {.tp = 4}, 1},
    {2, {.cp = 2}, 2},
    {4, {.cp = 4}, 1},
    {2, {.pp = 2}, 4, "gpipe"},
    {2, {.pp = 2}, 8, "1f1b"},
    {2, {.pp = 2}, 4, "interleaved"},
    {2, {.pp = 2}, 4, "zb-h1", 0, true},
    {2, {.pp = 2}, 8, "interleaved-zb"},
    {2, {.pp = 2}, 4, "zbv", 0, true},
    {2, {.pp = 2}, 4, "dualpipev"},
    {4, {.pp = 4}, 2, "1f1b"},  // fewer micro-batches than stages
    {4, {.pp = 4}, 8, "dualpipev", 0, true},
    // two axes
    {4, {.tp = 2}, 2, "1f1b", 1},
    {4, {.tp = 2}, 2, "1f1b", 3, true},
    {4, {.cp = 2}, 2, "1f1b", 2},
    {8, {.cp = 2}, 1, "1f1b", 3},
    {4, {.pp = 2}, 4, "gpipe", 1},
    {4, {.pp = 2}, 4, "interleaved", 2, true},
    {4, {.pp = 2}, 4, "zb-h1", 3},
    {4, {.pp = 2}, 4, "dualpipev", 3, true},
    {8, {.pp = 4}, 4, "zbv", 2},
    {4, {.tp = 2, .pp = 2}, 4, "zbv"},
    {8, {.tp = 2, .pp = 4}, 8, "zb-h1"},
    {4, {.tp = 2, .cp = 2}, 2, "1f1b", 0, true},
    {8, {.tp = 2, .cp = 4}, 2},
    {4, {.cp = 2, .pp = 2}, 4, "interleaved-zb"},
    {8, {.cp = 2, .pp = 4}, 8, "1f1b"},
    // three axes
    {8, {.tp = 2, .pp = 2}, 4, "zbv", 1},
    {8, {.tp = 2, .pp = 2}, 4, "interleaved", 2},
    {8, {.tp = 2, .pp = 2}, 4, "dualpipev", 3},
    {8, {.tp = 2, .cp = 2}, 2, "1f1b", 3},
    {8, {.cp = 2, .pp = 2}, 4, "zb-h1", 2},
    {8, {.tp = 2, .cp = 2, .pp = 2}, 4, "interleaved"},
};
inline const std::vector<MatrixEntry> dense_ulysses = {
    {2, {.tp = 2}, 2},
    {2, {.cp = 2}, 2},
    {4, {.tp = 2, .cp = 2}, 2, "1f1b", 0},
    {4, {.tp = 2}, 2, "1f1b", 2},
    {4, {.tp = 2, .pp = 2}, 4, "zb-h1"},
    {8, {.tp = 2, .pp = 2}, 4, "interleaved-zb", 3},
    {8, {.tp = 2, .cp = 2, .pp = 2}, 4, "zbv"},
    {8, {.tp = 2, .cp = 2}, 2, "1f1b", 1},
};
inline const std::vector<MatrixEntry> experts = {
    {2, {.ep = 2}, 2},
    {4, {.ep = 4}, 2},
    {2, {.etp = 2}, 2},
    {4, {.ep = 2}, 2, "1f1b", 3},
    {4, {.tp = 2, .ep = 4}, 2},
    {4, {.cp = 2, .ep = 4}, 2},
    {4, {.ep = 2, .pp = 2}, 4, "zbv"},
    {4, {.ep = 2, .etp = 2, .pp = 1}, 2, "1f1b", 1},
    {8, {.tp = 2, .cp = 2, .ep = 4}, 2, "1f1b", 2},
    {8, {.tp = 2, .ep = 2, .pp = 2}, 4, "interleaved", 2},
    {8, {.cp = 2, .ep = 2, .etp = 2, .pp = 2}, 4, "zb-h1", 0},
};
inline const std::vector<MatrixEntry> sequence_experts = {
    {4, {.tp = 2, .ep = 2}, 2, "1f1b", 3, true},        {4, {.tp = 2, .ep = 4}, 2, "1f1b", 1, true},
    {4, {.ep = 2, .pp = 2}, 4, "interleaved", 2, true}, {4, {.tp = 2, .ep = 2, .pp = 2}, 4, "dualpipev", 0, true},
    {8, {.tp = 2, .ep = 2, .etp = 2}, 2, "1f1b", 2},    {8, {.tp = 2, .ep = 2, .pp = 2}, 4, "zb-h1", 3},
};

/// Runs the entries that `wanted` accepts; returns their number.
template <class Composition, class Grid, class Backend = comm::Threads, class Wanted>
std::size_t check_matrix(const std::vector<MatrixEntry>& entries, const typename Composition::Config& config, Wanted wanted) {
  const Reference reference = reference_of<typename Composition::model_type>(config);
  std::size_t run = 0;
  for (const MatrixEntry& entry : entries) {
    if (!wanted(entry)) continue;
    ++run;
    INFO(std::string(entry.schedule) << ", ZeRO stage " << entry.zero);
    ModelOptions options;
    options.shard.stage = entry.zero;
    options.pipeline.schedule = schedule::choose(entry.schedule);
    check_folded<Composition, Backend, Grid>(config, reference, {entry.world, entry.degrees, entry.micro_batches}, 1e-12,
                                             options);
  }
  return run;
}

}  // namespace weft_test
