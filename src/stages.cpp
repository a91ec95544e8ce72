// SPDX-License-Identifier: Apache-2.0
// The definitions of the engine that runs a model's stages: training steps, forwards, decoding and user-written loops.
#include <weft/pipeline/decode_impl.hpp>
#include <weft/pipeline/learn_shapes_impl.hpp>
#include <weft/pipeline/logits_impl.hpp>
#include <weft/pipeline/loss_check_impl.hpp>
#include <weft/pipeline/model_aside_impl.hpp>
#include <weft/pipeline/own_loop_impl.hpp>
#include <weft/pipeline/predictions_impl.hpp>
#include <weft/pipeline/recheck_impl.hpp>
#include <weft/pipeline/stage_units_impl.hpp>
#include <weft/pipeline/stages_impl.hpp>
#include <weft/pipeline/tied_parameters_impl.hpp>
#include <weft/pipeline/unit_calls_impl.hpp>
