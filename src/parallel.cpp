// SPDX-License-Identifier: Apache-2.0
// The definitions of schedules and wrappers that are not templates.
#include <weft/parallel/fsdp/settings_impl.hpp>
#include <weft/parallel/hook/hook_check_impl.hpp>
#include <weft/parallel/hook/power_sgd_impl.hpp>
#include <weft/parallel/model_options_impl.hpp>
#include <weft/parallel/nonfinite_trace_impl.hpp>
#include <weft/parallel/same_inputs_impl.hpp>
#include <weft/parallel/same_parameters_impl.hpp>
#include <weft/parallel/wrapper_impl.hpp>
#include <weft/pipeline/schedule/csv_impl.hpp>
#include <weft/pipeline/schedule/named_impl.hpp>
#include <weft/pipeline/schedule/table_impl.hpp>
#include <weft/pipeline/schedule/timeline_impl.hpp>
#include <weft/pipeline/schedule/visualise_impl.hpp>
