// SPDX-License-Identifier: Apache-2.0
#pragma once
// The secret of ranks without WEFT_SECRET: 256 random bits in a file of this user, which no other user can read. It separates the
// ranks of different users on one machine; the names of jobs separate those of one user. Ranks on several machines need
// WEFT_SECRET.
//
//   store::Server server(launch.host, launch.port, who, secret_of(launch.host, launch.secret));

#include <string>

#include <weft/comm/store/socket.hpp>

namespace weft::comm::store {

/// The text of /tmp/weft-UID/secret, which is made if it is missing. Throws StoreError if it cannot be made or is not this user's
/// alone.
std::string user_secret();

/// `given`, or the user's own secret where none is given and the address is this machine's alone.
inline std::string secret_of(const std::string& host, const std::string& given) {
  return given.empty() && resolve(host, 0).loopback() ? user_secret() : given;
}

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/secret_impl.hpp>
#endif
