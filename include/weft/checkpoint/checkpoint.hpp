// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checkpoints: the whole training state in files that any other layout can load. weft/weft.hpp does not include them, since they
// need xxhash.h and nlohmann's JSON. With CMake, link weft::checkpoint.
//
//   checkpoint::save("run", model, optimizer, step);                     // every few steps
//   const std::uint64_t step = checkpoint::load("run", model, optimizer);  // in the next run

#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/load.hpp>
#include <weft/checkpoint/safetensors.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/checkpoint/saver.hpp>
#include <weft/checkpoint/whole.hpp>
