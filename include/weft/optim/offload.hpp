// SPDX-License-Identifier: Apache-2.0
#pragma once
// The option `offload`: a store for parameters and optimizer state between their uses. Its type refers to the code, so only
// programs that offload compile it.
//
//   DataParallel<models::Gpt> model(mesh, config, {.shard = {.offload = Offload::file("/scratch/run")}});
//   // rank 0 uses /scratch/run.0

#include <memory>
#include <string>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/device/offload_store.hpp>

namespace weft {

namespace optim {
struct OffloadParts;
namespace detail {
/// The functions by which an optimizer with offloaded state steps (optim/offloaded.hpp).
template <class Device>
const OffloadParts& offload_parts();
}  // namespace detail
}  // namespace optim

/// The storage of a rank's parameters and optimizer state between their uses.
struct Offload {
  using Make = std::shared_ptr<detail::Store> (*)(const std::string& path, int rank);
  Make make = nullptr;  ///< null: on the device
  std::string path = {};
  std::shared_ptr<detail::Store> store = nullptr;  ///< this rank's, created with the model
  const optim::OffloadParts* optimizer = nullptr;

  Offload() {}
  Offload(Make how, std::string where)
      : make(how), path(std::move(where)), optimizer(&optim::detail::offload_parts<DefaultDevice>()) {}
  static Offload host();
  /// Files PATH.RANK, one per rank of the world. They must not exist, and are removed when the program ends.
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

/// Creates the store of one rank of the world; null if nothing is offloaded. Throws StorageError if a file cannot be made.
inline std::shared_ptr<Store> make_store(const Offload& offload, int rank) {
  return offload.make ? offload.make(offload.path, rank) : nullptr;
}

}  // namespace detail

}  // namespace weft
