// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations on a whole checkpoint without a model: verification of every byte, and export into one file for other programs.
//
//   checkpoint::verify("run/step-00000010");
//   checkpoint::merge("run/step-00000010", "model.safetensors");

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weft/checkpoint/load.hpp>
#include <weft/core/output_file.hpp>

namespace weft::checkpoint {

struct Verified {
  std::size_t files = 0, tensors = 0;
  std::uint64_t bytes = 0;  ///< in all files
};

/// Reads every byte of the checkpoint at `path`. Throws Error for the first mismatch with the index.
inline Verified verify(const std::string& path, FileSystem& system = FileSystem::system()) {
  const Index index = read_index(path, system);
  detail::OpenFiles files(system, path, index);
  std::vector<std::byte> buffer(index.chunk_bytes);
  for (std::size_t i = 0; i < index.files.size(); ++i) {
    files.check_header(i);
    const detail::File& file = files[i];
    detail::Checksum sum;
    for (std::uint64_t at = 0; at < file.length(); at += buffer.size()) {
      const std::size_t some = std::size_t(std::min<std::uint64_t>(buffer.size(), file.length() - at));
      file.read(buffer.data(), some, at);
      sum.add(buffer.data(), some);
    }
    if (sum.value() != index.files[i].checksum)
      detail::refuse({file.path()}, {"is damaged: checksum ", detail::hex(sum.value()), ", and the index has ",
                                     detail::hex(index.files[i].checksum)});
    Safetensors::open(file.path(), {.follow_links = false, .system = &system});  // other programs can read the file
  }
  Verified verified{index.files.size(), index.tensors.size(), 0};
  for (const StoredFile& file : index.files) verified.bytes += file.bytes;
  for (const LogicalTensor& tensor : index.tensors)
    for (const StoredPiece& piece : tensor.pieces)
      for (std::size_t chunk = 0; chunk < piece.checksums.size(); ++chunk) {
        const std::uint64_t length = piece.block.elements() * size_of(tensor.type), begin = chunk * index.chunk_bytes;
        files.read_chunk(tensor, piece, chunk, buffer.data(), std::size_t(std::min(index.chunk_bytes, length - begin)));
      }
  return verified;
}

/// Options of merge.
struct MergeOptions {
  /// True: everything as stored, including master copies, optimizer state and buffers. False: the parameters, in the types of the
  /// layers.
  bool all = false;
  std::function<std::string(const std::string&)> name = {};  ///< maps a tensor's name to its name in the file; empty: unchanged
  FileSystem* system = &FileSystem::system();
};

/// Writes the tensors of the checkpoint at `path` into one safetensors file. Only one whole tensor is in memory at a time. Throws
/// Error, and UsageError if `file_path` is a device, a FIFO or a folder. The file appears only when it is complete.
inline void merge(const std::string& path, const std::string& file_path, const MergeOptions& options = {}) {
  weft::detail::require_output("checkpoint::merge", file_path);
  const Index index = read_index(path, *options.system);
  std::vector<const LogicalTensor*> tensors;
  std::vector<StoredTensor> headers;
  for (const LogicalTensor& tensor : index.tensors) {
    if (!options.all && tensor.kind != "parameter") continue;
    tensors.push_back(&tensor);
    headers.push_back(
        {options.name ? options.name(tensor.name) : tensor.name, options.all ? tensor.type : tensor.of, tensor.shape, 0, 0});
  }
  const std::string header = safetensors_header(headers, {{"format", "pt"}, {"step", std::to_string(index.step)}});
  const std::string unfinished = file_path + ".tmp-" + detail::nonce();
  struct Remove {
    FileSystem* system;
    const std::string* path;
    ~Remove() {
      if (path != nullptr) detail::remove_file(*system, *path);
    }
  };
  detail::File file = detail::File::make(*options.system, unfinished, file_path);
  Remove remove{options.system, &unfinished};
  file.write(header.data(), header.size());
  detail::OpenFiles files(*options.system, path, index);
  std::vector<std::byte> buffer;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    detail::Item item;
    item.size = std::size_t(*detail::bytes_of(tensors[i]->shape, tensors[i]->type) / size_of(tensors[i]->type));
    item.runs = {{0, 0, item.size}};
    const detail::Pages bytes(item.size * size_of(tensors[i]->type));
    detail::read_tensor(files, index, *tensors[i], item, bytes.data(), buffer);
    std::shared_ptr<std::byte[]> narrow;
    if (headers[i].type != tensors[i]->type)
      narrow = headers[i].type == StoredType::bf16 ? detail::narrowed<bfloat16>(bytes.data(), item.size)
                                                   : detail::narrowed<float16>(bytes.data(), item.size);
    file.write(narrow ? narrow.get() : bytes.data(), std::size_t(headers[i].bytes()));
  }
  file.finish();
  if (detail::rename(*options.system, unfinished, file_path) != 0) detail::refuse_call({file_path}, "cannot be named so", errno);
  remove.path = nullptr;
}

}  // namespace weft::checkpoint
