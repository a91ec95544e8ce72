// SPDX-License-Identifier: Apache-2.0
#pragma once
// The main header: everything that most programs use and that needs only Kokkos and the matmul library. Other headers are
// included as needed: backends with further dependencies (weft/comm/mpi.hpp, tcp.hpp, nccl.hpp),
// weft/pipeline/schedule/dynamic.hpp (a schedule by name or from a file), weft/parallel/hook/compress.hpp and power_sgd.hpp
// (communication hooks), weft/dtensor/dtensor.hpp (placements at run time), weft/testing/check_layer.hpp.
//
//   #include <weft/weft.hpp>

#include <weft/core/standard.hpp>  // before Kokkos: the error for an older standard is ours

#include <weft/autograd/kept_values.hpp>
#include <weft/autograd/module.hpp>
#include <weft/autograd/recompute.hpp>
#include <weft/autograd/shared_layer.hpp>
#include <weft/autograd/stack.hpp>
#include <weft/comm/agree.hpp>
#include <weft/comm/threads.hpp>
#include <weft/core/error.hpp>
#include <weft/core/philox.hpp>
#include <weft/core/scalar.hpp>
#include <weft/core/version.hpp>
#include <weft/data/batches.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/models/mixtral.hpp>
#include <weft/nn/add_norm.hpp>
#include <weft/nn/noise.hpp>
#include <weft/nn/sequential.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/attention.hpp>
#include <weft/operations/batched.hpp>
#include <weft/operations/einsum.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/grad.hpp>
#include <weft/operations/heads.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/losses.hpp>
#include <weft/operations/moves.hpp>
#include <weft/operations/own_loss.hpp>
#include <weft/operations/parts.hpp>
#include <weft/operations/samples.hpp>
#include <weft/operations/segments.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/operations/softmax.hpp>
#include <weft/operations/sort.hpp>
#include <weft/operations/special_functions.hpp>
#include <weft/operations/variable_rows.hpp>
#include <weft/operations/variables.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/learning_rate.hpp>
#include <weft/optim/muon.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/context_parallel.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/parallel/expert_parallel.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/sequence_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/parallel/user_wrapper.hpp>
#include <weft/pipeline/field_inputs.hpp>
#include <weft/pipeline/schedule/custom.hpp>
#include <weft/pipeline/schedule/dualpipev.hpp>
#include <weft/pipeline/schedule/gpipe.hpp>
#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/pipeline/schedule/zbv.hpp>
#include <weft/pipeline/schedule/zero_bubble.hpp>
#include <weft/runtime/run.hpp>
#include <weft/tensor/transfer.hpp>

#ifdef WEFT_COMPILED
namespace weft {
extern template struct schedule::detail::TypeSource<schedule::GPipe>;
extern template struct schedule::detail::TypeSource<schedule::OneForwardOneBackward>;
extern template struct schedule::detail::TypeSource<schedule::ZeroBubbleH1>;
extern template struct schedule::detail::TypeSource<schedule::Zbv>;
extern template struct schedule::detail::TypeSource<schedule::DualPipeV>;
extern template void detail::require_same_construction(const Communicator&, const ModelOptions&, const models::GptConfig&);
extern template void detail::require_same_construction(const Communicator&, const ModelOptions&, const models::LlamaConfig&);
extern template void detail::require_same_construction(const Communicator&, const ModelOptions&, const models::MixtralConfig&);
}  // namespace weft
#endif
