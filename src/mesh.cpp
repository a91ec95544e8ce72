// SPDX-License-Identifier: Apache-2.0
// The definitions of hashes, texts and meshes.
#include <weft/core/data_identity_impl.hpp>
#include <weft/core/hash_impl.hpp>
#include <weft/core/input_file_impl.hpp>
#include <weft/core/json_writer_impl.hpp>
#include <weft/core/output_file_impl.hpp>
#include <weft/core/text_impl.hpp>
#include <weft/mesh/graph_parts_impl.hpp>
#include <weft/mesh/layout_impl.hpp>
#include <weft/mesh/mesh_impl.hpp>
#include <weft/mesh/rank_order_impl.hpp>
#include <weft/mesh/stage_layers_impl.hpp>
#include <weft/runtime/rehearsal_report_impl.hpp>
#include <weft/runtime/rehearse_impl.hpp>
#include <weft/runtime/signals_impl.hpp>
#include <weft/runtime/step_trace_impl.hpp>
