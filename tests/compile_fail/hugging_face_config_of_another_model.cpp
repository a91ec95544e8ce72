// SPDX-License-Identifier: Apache-2.0
// A config that no folder of `transformers` has.
// needs: xxhash.h
// expect: weft: read_config<Config>: Config is models::GptConfig, LlamaConfig or MixtralConfig
#include <weft/hugging_face/config.hpp>

using namespace weft;

struct Config {
  std::size_t layers = 2;
};

std::size_t layers(const std::string& folder) {
#ifdef WEFT_FAIL
  return hugging_face::read_config<Config>(folder).layers;
#else
  return hugging_face::read_config<models::LlamaConfig>(folder).layers;
#endif
}
