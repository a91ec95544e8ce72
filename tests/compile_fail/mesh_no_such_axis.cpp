// SPDX-License-Identifier: Apache-2.0
// A communicator of an axis that the mesh does not have.
// expect: use of deleted function|call to deleted member function
// mention: this_mesh_has_no_such_axis
#include <weft/mesh/mesh.hpp>

int pipeline_rank(const weft::Mesh<weft::dp, weft::tp, weft::pp>& mesh, const weft::Mesh<weft::dp, weft::tp>& flat) {
#ifdef WEFT_FAIL
  return mesh.size() + flat.comm(weft::pp{}).rank();
#else
  return flat.size() + mesh.comm(weft::pp{}).rank();
#endif
}
