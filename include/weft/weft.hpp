// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything of weft that needs only Kokkos and the matmul library. A backend that needs more is a header of its own, chosen
// by including it: weft/comm/mpi.hpp.

#include <weft/comm/threads.hpp>
#include <weft/core/error.hpp>
#include <weft/core/philox.hpp>
#include <weft/core/scalar.hpp>
#include <weft/core/version.hpp>
#include <weft/data/batches.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/nn/gpt.hpp>
#include <weft/nn/llama.hpp>
#include <weft/nn/mixtral.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/learning_rate.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/context_parallel.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/expert_parallel.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/schedule/dualpipev.hpp>
#include <weft/parallel/schedule/gpipe.hpp>
#include <weft/parallel/schedule/interleaved.hpp>
#include <weft/parallel/schedule/one_forward_one_backward.hpp>
#include <weft/parallel/schedule/zbv.hpp>
#include <weft/parallel/schedule/zero_bubble.hpp>
#include <weft/parallel/sequence_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>
