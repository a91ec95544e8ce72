// SPDX-License-Identifier: Apache-2.0
// NCCL.
#include <weft/comm/nccl/api.hpp>

// section: group_without_witness
// Calls inside an NCCL group take the open group: outside one, ranks that send first would wait for each other.
// expect: invalid initialization of reference|too few arguments
// mention: GroupCall
// needs: nccl.h
using namespace weft::comm;

void exchange(const void* in, void* out, std::size_t bytes, int other, ncclComm_t comm, cudaStream_t stream) {
#ifdef WEFT_FAIL
  nccl::send(in, bytes, other, comm, stream);
#else
  nccl::GroupCall group;
  nccl::send(group, in, bytes, other, comm, stream);
  nccl::receive(group, out, bytes, other, comm, stream);
  group.end();
#endif
  (void)out;
}
