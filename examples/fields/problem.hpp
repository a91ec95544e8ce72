// SPDX-License-Identifier: Apache-2.0
#pragma once
// The function of each model that trains it: each is compiled in a file of its own. Also the models' names.

#include <weft/mesh/world.hpp>

#include "options.hpp"

namespace fields {

/// These return the program's exit code.
int train_unet(weft::World& world, const Options& o);
int train_pinn(weft::World& world, const Options& o);
int train_mesh(weft::World& world, const Options& o);
int train_fno(weft::World& world, const Options& o);
int train_potential(weft::World& world, const Options& o);
int train_diffusion(weft::World& world, const Options& o);

}  // namespace fields
