// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checkpoints: the whole training state in files that any other layout can load. Not part of weft/weft.hpp, since it needs
// xxhash.h and nlohmann's JSON; with CMake link weft::checkpoint.
//
//   checkpoint::save("run", model, optimizer, step);                     // every so many steps
//   const std::uint64_t step = checkpoint::load("run", model, optimizer);  // in the next run

#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/load.hpp>
#include <weft/checkpoint/safetensors.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/checkpoint/saver.hpp>
#include <weft/checkpoint/whole.hpp>
