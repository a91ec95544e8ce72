// SPDX-License-Identifier: Apache-2.0
// A checkpoint's index.json, any text with a correct checksum: refused in one line, or an index whose pieces are inside its files
// and cover its tensors once, and whose text parses to the same index.
#include <weft/checkpoint/index.hpp>

#include "fuzz/support/fuzz.hpp"

using namespace weft;

void weft_test::target(Input input) {
  // A wrong checksum would end every parse at once, so this tests the code after it.
  std::string text(input.rest());
  if (const std::size_t end = text.rfind(checkpoint::detail::checksum_key); end != text.npos) text.resize(end);
  const std::string sum = checkpoint::detail::hex(checkpoint::detail::checksum_of(text.data(), text.size()));
  weft::detail::append_to(text, {checkpoint::detail::checksum_key, sum, checkpoint::detail::checksum_end});
  try {
    const checkpoint::Index index = checkpoint::parse_index("index.json", text);
    for (const auto& tensor : index.tensors) {
      std::uint64_t elements = 0;
      for (const auto& piece : tensor.pieces) {
        expect(piece.file < index.files.size() && piece.offset <= index.files[piece.file].bytes);
        expect(piece.block.elements() * size_of(tensor.type) <= index.files[piece.file].bytes - piece.offset);
        elements += piece.block.elements();
      }
      expect(elements * size_of(tensor.type) == *checkpoint::detail::bytes_of(tensor.shape, tensor.type));
    }
    const std::string written = checkpoint::index_text(index);
    expect(checkpoint::index_text(checkpoint::parse_index("again.json", written)) == written);
  } catch (const Error& error) {
    expect_message(error.what());
  }
}

std::vector<std::string> weft_test::seeds() {
  checkpoint::Index index;
  index.step = 7;
  index.optimizer_steps = 7;
  index.loss_scale = {1024, 3};
  index.begun["b"] = 2;
  index.notes["--seed"] = "5";
  index.files = {{"rank-0.safetensors", 160, 64, 1, 2}, {"rank-1.safetensors", 96, 64, 3, 4}};
  index.chunk_bytes = 64;
  using enum checkpoint::StoredType;
  index.tensors = {{"a",
                    "parameter",
                    f32,
                    bf16,
                    {4, 6},
                    {{0, {0, 12, 1, 12}, 64, {1}}, {0, {12, 3, 2, 6}, 112, {2}}, {1, {15, 3, 2, 6}, 64, {3}}}},
                   {"b", "buffer", f64, f64, {1}, {{1, {0, 1, 1, 1}, 88, {4}}}},
                   {"c", "optimizer", f32, f32, {}, {{0, {0, 1, 1, 1}, 136, {5}}}}};
  checkpoint::Index small;
  return {checkpoint::index_text(index), checkpoint::index_text(small)};
}
