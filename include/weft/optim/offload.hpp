// SPDX-License-Identifier: Apache-2.0
#pragma once
// The option `offload`: a store for parameters and optimizer state between their uses. Its type brings the code along, so that
// only programs that offload compile it.
//
//   DataParallel<models::Gpt> model(mesh, config, {.shard = {.offload = Offload::file("/scratch/run")}});   // rank 0:
//   /scratch/run.0

#include <memory>
#include <string>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/device/offload_store.hpp>

namespace weft {

namespace optim {
struct OffloadParts;
/// The functions by which an optimizer steps if its state is offloaded (optim/offloaded.hpp).
template <class Device>
const OffloadParts& offload_parts();
}  // namespace optim

/// The place of a rank's parameters and optimizer state between their uses.
struct Offload {
  using Make = std::shared_ptr<detail::Store> (*)(const std::string& path, int rank);
  Make make = nullptr;  ///< null: on the device
  std::string path = {};
  std::shared_ptr<detail::Store> store = nullptr;  ///< of this rank, made with the model
  const optim::OffloadParts* optimizer = nullptr;

  Offload() {}
  Offload(Make how, std::string where) : make(how), path(std::move(where)), optimizer(&optim::offload_parts<DefaultDevice>()) {}
  static Offload host();
  /// Files PATH.RANK, one for each rank of the world; they must not exist, and are removed when the program ends.
  static Offload file(std::string path);
};

inline Offload Offload::host() {
  return {[](const std::string&, int) -> std::shared_ptr<detail::Store> { return std::make_shared<detail::HostStore>(); }, ""};
}
inline Offload Offload::file(std::string path) {
  return {[](const std::string& of_all, int rank) -> std::shared_ptr<detail::Store> {
            return std::make_shared<detail::FileStore>(detail::joined({of_all, ".", rank}));
          },
          std::move(path)};
}

namespace detail {

/// The store of one rank of the world; null if nothing is offloaded. Throws StorageError if a file cannot be made.
inline std::shared_ptr<Store> make_store(const Offload& offload, int rank) {
  return offload.make ? offload.make(offload.path, rank) : nullptr;
}

}  // namespace detail

}  // namespace weft
