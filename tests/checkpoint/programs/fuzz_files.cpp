// SPDX-License-Identifier: Apache-2.0
// A target for libFuzzer: headers of safetensors files (inputs that begin with 's') and indexes with a correct checksum (all
// others). An accepted input is consistent; any other throws checkpoint::Error.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/safetensors.hpp>

using namespace weft::checkpoint;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void header(std::string_view text) {
  const std::uint64_t data = text.empty() ? 0 : std::uint64_t(std::uint8_t(text.back())) * 4;
  const SafetensorsHeader read = parse_safetensors_header("file", text.substr(0, text.empty() ? 0 : text.size() - 1), data);
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : read.tensors) {
    require(tensor.begin == at && tensor.end >= at && *detail::bytes_of(tensor.shape, tensor.type) == tensor.bytes());
    at = tensor.end;
  }
  require(at == data);
  // A parsed header can be written and parsed again.
  std::vector<StoredTensor> again = read.tensors;
  const std::string written = safetensors_header(again, read.metadata);
  require(parse_safetensors_header("file", std::string_view(written).substr(8), data).tensors.size() == again.size());
}

void index(std::string_view text) {
  std::string sealed = "{\"weft_checkpoint\":" + std::string(text);
  const std::string sum = detail::hex(detail::checksum_of(sealed.data(), sealed.size()));
  sealed.append(detail::checksum_key).append(sum).append(detail::checksum_end);
  const Index read = parse_index("file", sealed);
  for (const LogicalTensor& tensor : read.tensors) {
    std::uint64_t elements = 0;
    for (const StoredPiece& piece : tensor.pieces) {
      const StoredFile& file = read.files.at(piece.file);
      require(detail::plain_name(file.name));
      require(piece.offset + piece.block.elements() * size_of(tensor.type) <= file.bytes);
      elements += piece.block.elements();
    }
    require(elements * size_of(tensor.type) == *detail::bytes_of(tensor.shape, tensor.type));
  }
  const Index again = parse_index("file", index_text(read));
  require(again.tensors.size() == read.tensors.size() && again.files.size() == read.files.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (text.starts_with('s')) header(text.substr(1));
    else index(text);
  } catch (const Error&) {}
  return 0;
}
