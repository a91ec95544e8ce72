// SPDX-License-Identifier: Apache-2.0
// The templates for the parameters of nearly every program: the host's execution space and memory, float, bfloat16 and double,
// AdamW and SGD.
#include <weft/comm/reduce.hpp>
#include <weft/device/arena.hpp>
#include <weft/device/device.hpp>
#include <weft/device/offload_store.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/engine/plain_accumulator.hpp>
#include <weft/engine/registry.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/optim/slot.hpp>
#include <weft/parallel/context_parallel.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/fsdp/flat_parameter_group.hpp>
#include <weft/parallel/fsdp/fully_sharded_hooks.hpp>
#include <weft/parallel/nonfinite_trace.hpp>
#include <weft/parallel/same_parameters.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/gradient_bits.hpp>
#include <weft/pipeline/stage_channel.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>
#include <weft/tensor/hash_elements.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/transfer.hpp>
#include <weft/weft.hpp>

template class std::vector<weft::detail::AxesInForce::One>;
template class std::vector<weft::detail::Registered>;
template class std::vector<weft::detail::Tie>;
template class std::vector<weft::optim::Slot>;
namespace weft {
template class Device<Kokkos::DefaultHostExecutionSpace>;
template struct schedule::detail::TypeSource<schedule::GPipe>;
template struct schedule::detail::TypeSource<schedule::OneForwardOneBackward>;
template struct schedule::detail::TypeSource<schedule::ZeroBubbleH1>;
template struct schedule::detail::TypeSource<schedule::Zbv>;
template struct schedule::detail::TypeSource<schedule::DualPipeV>;
template void detail::require_same_construction(const Communicator&, const ModelOptions&, const models::GptConfig&);
template void detail::require_same_construction(const Communicator&, const ModelOptions&, const models::LlamaConfig&);
template void detail::require_same_construction(const Communicator&, const ModelOptions&, const models::MixtralConfig&);
}  // namespace weft
namespace weft::comm {
template void combine<float>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
template void combine<double>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
template void combine<bfloat16>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
template void combine<std::int32_t>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
template void combine<std::int64_t>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
template void combine<std::uint64_t>(Reduction, std::span<const void* const>, std::span<void* const>, std::size_t, std::size_t);
}  // namespace weft::comm
namespace weft::detail {
template class Buckets<Kokkos::DefaultHostExecutionSpace>;
template class TensorGradientReducer<Kokkos::DefaultHostExecutionSpace>;
template class ContextGradientReducer<Kokkos::DefaultHostExecutionSpace>;
template class StageChannel<Kokkos::DefaultHostExecutionSpace>;
template void StageChannel<Kokkos::DefaultHostExecutionSpace>::send_elements(
    const Tensor<float, Kokkos::DefaultHostExecutionSpace>&, int, const StageMessage&);
template void StageChannel<Kokkos::DefaultHostExecutionSpace>::send_elements(
    const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&, int, const StageMessage&);
template class Executor<Kokkos::DefaultHostExecutionSpace>;
template class FlatParameterGroup<Kokkos::DefaultHostExecutionSpace>;
template class FlatGradients<Kokkos::DefaultHostExecutionSpace>;
template class GradientBits<Kokkos::DefaultHostExecutionSpace>;
template class RecordedGradients<Kokkos::DefaultHostExecutionSpace>;
template class RecomputedGradients<Kokkos::DefaultHostExecutionSpace>;
template class NonfiniteTrace<Kokkos::DefaultHostExecutionSpace>;
template class FlatValues<Kokkos::DefaultHostExecutionSpace>;
template class FullyShardedHooks<Kokkos::DefaultHostExecutionSpace>;
template class ParameterHashes<Kokkos::DefaultHostExecutionSpace>;
template std::uint64_t hash_elements(Device<Kokkos::DefaultHostExecutionSpace>&, const void*, std::size_t, std::size_t);
template void require_equal_copies(Device<Kokkos::DefaultHostExecutionSpace>&, const std::vector<ParameterState*>&,
                                   const std::vector<CopyAxis>&, std::size_t);
template void agree_on_unreduced(const Communicator&, Device<Kokkos::DefaultHostExecutionSpace>&, const Unit&, unsigned);
template class PlainAccumulator<Kokkos::DefaultHostExecutionSpace>;
template void all_reduce_in_pieces(const Communicator&, const Tensor<float, Kokkos::DefaultHostExecutionSpace>&,
 const Tensor<float, Kokkos::DefaultHostExecutionSpace>&);
template void all_reduce_in_pieces(const Communicator&, const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&,
 const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&);
template void reduce_scatter_in_pieces(const Communicator&, const Tensor<float, Kokkos::DefaultHostExecutionSpace>&,
 const Tensor<float, Kokkos::DefaultHostExecutionSpace>&);
template void reduce_scatter_in_pieces(const Communicator&, const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&,
 const Tensor<bfloat16, Kokkos::DefaultHostExecutionSpace>&);
template void open_layer_gradient(Device<Kokkos::DefaultHostExecutionSpace>&, ParameterState&);
template void next_term(Device<Kokkos::DefaultHostExecutionSpace>&, ParameterState&);
template void zero_gradient(Device<Kokkos::DefaultHostExecutionSpace>&, ParameterState&);
template void initialise_parameter<float>(Device<Kokkos::DefaultHostExecutionSpace>&, const ParameterState&, std::uint64_t);
template void initialise_parameter<bfloat16>(Device<Kokkos::DefaultHostExecutionSpace>&, const ParameterState&, std::uint64_t);
template void initialise_parameter<double>(Device<Kokkos::DefaultHostExecutionSpace>&, const ParameterState&, std::uint64_t);
template class Arena<Kokkos::HostSpace>;
template void run_pieces(Device<Kokkos::DefaultHostExecutionSpace>&, Traffic, const TeamLoop&);
template void share_on_host(Device<Kokkos::DefaultHostExecutionSpace>&, const HostLoop&);
template void run_on_host(Device<Kokkos::DefaultHostExecutionSpace>&, Traffic, const HostLoop&);
template operations::Elements make_elements(Device<Kokkos::DefaultHostExecutionSpace>&, const Shape&, std::size_t);
template void read_record(Device<Kokkos::DefaultHostExecutionSpace>&, const Store&, std::size_t, void*, std::size_t);
template void write_record(Device<Kokkos::DefaultHostExecutionSpace>&, Store&, std::size_t, const void*, std::size_t);
template void copy_on_host(const Kokkos::DefaultHostExecutionSpace&, void*, const void*, std::size_t);
}  // namespace weft::detail
#ifndef KOKKOS_ENABLE_CUDA
namespace weft::optim {
template class Optimizer<AdamWRule>;
template Slot Optimizer<AdamWRule>::make_slot<float>(ParameterState&);
template void update_slot<AdamWRule, float>(Device<Kokkos::DefaultHostExecutionSpace>&, Slot&, const AdamWOptions&, double,
                                            const kernels::GradientScale&, std::uint64_t);
template Slot Optimizer<AdamWRule>::make_slot<bfloat16>(ParameterState&);
template void update_slot<AdamWRule, bfloat16>(Device<Kokkos::DefaultHostExecutionSpace>&, Slot&, const AdamWOptions&, double,
                                               const kernels::GradientScale&, std::uint64_t);
template Slot Optimizer<AdamWRule>::make_slot<double>(ParameterState&);
template void update_slot<AdamWRule, double>(Device<Kokkos::DefaultHostExecutionSpace>&, Slot&, const AdamWOptions&, double,
                                               const kernels::GradientScale&, std::uint64_t);
template class Optimizer<SgdRule>;
template Slot Optimizer<SgdRule>::make_slot<float>(ParameterState&);
template Slot Optimizer<SgdRule>::make_slot<double>(ParameterState&);
}  // namespace weft::optim
#endif
