// SPDX-License-Identifier: Apache-2.0
// Safetensors files, any bytes: refused in one line, or tensors that are contiguous in the file, each as long as its shape
// requires; written again they are the same.
#include <weft/checkpoint/safetensors.hpp>

#include "fuzz/support/file.hpp"
#include "fuzz/support/fuzz.hpp"

using namespace weft;

void weft_test::target(Input input) {
  static MemoryFiles files;
  files.set(input.rest());
  try {
    const auto file = checkpoint::Safetensors::open("model.safetensors", {.system = &files});
    std::vector<checkpoint::StoredTensor> tensors = file.tensors();
    std::uint64_t at = file.data_begin();
    for (const auto& tensor : tensors) {
      expect(file.data_begin() + tensor.begin == at && file.find(tensor.name) != nullptr);
      std::vector<std::byte> bytes(tensor.bytes());
      file.read(tensor, bytes);
      at += tensor.bytes();
    }
    expect(at == files.length());
    const std::string header = checkpoint::safetensors_header(tensors, file.metadata());
    const auto again = checkpoint::parse_safetensors_header("again", std::string_view(header).substr(8), at - file.data_begin());
    expect(again.metadata == file.metadata() && again.tensors.size() == tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const checkpoint::StoredTensor &a = again.tensors[i], *b = file.find(a.name);
      expect(b != nullptr && a.type == b->type && a.shape == b->shape && a.bytes() == b->bytes());
    }
  } catch (const Error& error) {
    expect_message(error.what());
  }
}

std::vector<std::string> weft_test::seeds() {
  const auto file = [](std::vector<checkpoint::StoredTensor> tensors, const std::map<std::string, std::string>& metadata) {
    std::string bytes = checkpoint::safetensors_header(tensors, metadata);
    return bytes.append(tensors.empty() ? 0 : tensors.back().end, 'x');
  };
  using enum checkpoint::StoredType;
  return {file({}, {}), file({{"a", f32, {2, 3}, 0, 0}, {"b", bf16, {}, 0, 0}, {"c", f64, {0, 7}, 0, 0}}, {{"format", "pt"}}),
          file({{"wte.weight", f16, {4}, 0, 0}}, {{"a", "1"}, {"b", "2"}})};
}
