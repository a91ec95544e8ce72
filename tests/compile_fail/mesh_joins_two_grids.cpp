// SPDX-License-Identifier: Apache-2.0
// Axes of the dense and of the expert mesh are not orthogonal: no communicator joins them.
// expect: use of deleted function|call to deleted member function
// mention: this_mesh_has_no_such_axis
#include <weft/mesh/mesh.hpp>

int ranks(const weft::Mesh<weft::dp, weft::tp, weft::ep, weft::edp>& mesh) {
#ifdef WEFT_FAIL
  return mesh.comm(weft::dp{}, weft::ep{}).size();
#else
  return mesh.comm(weft::dp{}, weft::tp{}).size() * mesh.comm(weft::edp{}, weft::ep{}).size();
#endif
}
