// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors of a checkpoint, independent of the layout that wrote it.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <weft/checkpoint/checkpoint.hpp>

namespace weft_test {

namespace checkpoint = weft::checkpoint;

/// Every logical tensor of a checkpoint, whole.
inline std::map<std::string, std::vector<std::byte>> tensors_of(const std::string& folder) {
  const std::string path = checkpoint::find(folder);
  const checkpoint::Index index = checkpoint::read_index(path);
  checkpoint::detail::OpenFiles files(checkpoint::FileSystem::system(), path, index);
  std::map<std::string, std::vector<std::byte>> all;
  std::vector<std::byte> buffer;
  for (const auto& tensor : index.tensors) {
    checkpoint::detail::Item item;
    item.size = *checkpoint::detail::bytes_of(tensor.shape, tensor.type) / size_of(tensor.type);
    item.runs = {{0, 0, item.size}};
    auto& bytes = all[tensor.name];
    bytes.resize(item.size * size_of(tensor.type));
    checkpoint::detail::read_tensor(files, index, tensor, item, bytes.data(), buffer);
  }
  return all;
}

}  // namespace weft_test
