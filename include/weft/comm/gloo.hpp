// SPDX-License-Identifier: Apache-2.0
#pragma once
// comm::Tcp by its former name. Its connections were Gloo's once; programs that name comm::Gloo compile as before.
//
//   return weft::run<comm::Threads, comm::Gloo>(argc, argv, f);

#include <weft/comm/tcp.hpp>

namespace weft::comm {

/// The backend over TCP by the name that PyTorch's users know.
using Gloo = Tcp;

}  // namespace weft::comm
