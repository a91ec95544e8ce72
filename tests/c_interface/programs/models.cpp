// SPDX-License-Identifier: Apache-2.0
// The C++ file of the C and Fortran programs beside it: the functions, and the model "mlp".
#include <weft/c_interface/define.hpp>
#include <weft/c_interface/mlp.hpp>
