// SPDX-License-Identifier: Apache-2.0
// Reads the safetensors files whose paths are on standard input, one per line, and prints one line for each: "accepted" with its
// tensors (name in hexadecimal digits, type, shape, first and last byte of the data), or "refused" with the message.
//
//   ls *.safetensors | read_files

#include <cstdio>
#include <iostream>
#include <string>

#include <weft/checkpoint/safetensors.hpp>

using namespace weft::checkpoint;

namespace {

std::string text_of(const Safetensors& file) {
  std::string text = "accepted";
  for (const StoredTensor& tensor : file.tensors()) {
    text += " ";
    for (const unsigned char c : tensor.name) {
      text += "0123456789abcdef"[c >> 4];
      text += "0123456789abcdef"[c & 15];
    }
    text += ":" + std::string(name_of(tensor.type)) + ":";
    for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) text += (dim ? "," : "") + std::to_string(tensor.shape[dim]);
    text += ":" + std::to_string(tensor.begin) + ":" + std::to_string(tensor.end);
  }
  return text;
}

}  // namespace

int main() {
  std::string path;
  while (std::getline(std::cin, path)) {
    std::string said;
    try {
      said = text_of(Safetensors::open(path));
    } catch (const Error& error) {
      said = std::string("refused ") + error.what();
    }
    std::printf("%s\n", said.c_str());
  }
}
