// SPDX-License-Identifier: Apache-2.0
// The definitions of layers, kernels, tensors, data and traces that are not templates, and of the offload store and the
// optimizers that use it.
#include <weft/data/batches_impl.hpp>
#include <weft/data/corpus_impl.hpp>
#include <weft/data/load_ahead_impl.hpp>
#include <weft/data/sampler_impl.hpp>
#include <weft/data/source_files_impl.hpp>
#include <weft/device/offload_store_impl.hpp>
#include <weft/dtensor/dtensor_impl.hpp>
#include <weft/dtensor/sharding_impl.hpp>
#include <weft/kernels/detail/convolution_onednn_impl.hpp>
#include <weft/kernels/detail/matmul_onednn_impl.hpp>
#include <weft/kernels/exact_sum_impl.hpp>
#include <weft/kernels/expert_assignments_impl.hpp>
#include <weft/layer/batch_impl.hpp>
#include <weft/layer/fields_impl.hpp>
#include <weft/layer/gradient_state_impl.hpp>
#include <weft/layer/loss_scale_impl.hpp>
#include <weft/layer/name_pattern_impl.hpp>
#include <weft/layer/operations/convolution_impl.hpp>
#include <weft/layer/operations/products_impl.hpp>
#include <weft/layer/operations/reductions_impl.hpp>
#include <weft/layer/parameter_impl.hpp>
#include <weft/layer/parameter_sharding_impl.hpp>
#include <weft/layer/reduction_tree_impl.hpp>
#include <weft/layer/registry_impl.hpp>
#include <weft/nn/expert_exchange_impl.hpp>
#include <weft/nn/router_impl.hpp>
#include <weft/optim/matrix_exchange_impl.hpp>
#include <weft/optim/offloaded.hpp>
#include <weft/tensor/to_impl.hpp>
#include <weft/trace/loss_curve_impl.hpp>
#include <weft/trace/progress_impl.hpp>
#include <weft/trace/table_impl.hpp>
