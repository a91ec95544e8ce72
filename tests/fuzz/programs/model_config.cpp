// SPDX-License-Identifier: Apache-2.0
// A config.json of `transformers`, any text, for each of weft's models: refused in one line, or a config whose text parses to the
// same config.
#include <weft/hugging_face/config.hpp>

#include "fuzz/support/file.hpp"
#include "fuzz/support/fuzz.hpp"

using namespace weft;

namespace {

template <class Config>
void read(weft_test::MemoryFiles& files) {
  try {
    const Config config = hugging_face::read_config<Config>("folder", files);
    bool apart = false;  // the config has a separate head width
    if constexpr (requires { config.attention.head_width; }) apart = config.attention.head_width != 0;
    weft_test::expect(config.layers > 0 && config.width > 0 && config.heads > 0 && (apart || config.width % config.heads == 0));
    const std::string text = hugging_face::config_text(config, checkpoint::StoredType::f32);
    files.set(text);
    const Config again = hugging_face::read_config<Config>("folder", files);
    if constexpr (requires { config.auxiliary_loss; })
      if (config.auxiliary_loss != 0) return;  // a product of the stored coefficient, which is rounded again
    weft_test::expect(hugging_face::config_text(again, checkpoint::StoredType::f32) == text);
  } catch (const Error& error) {
    weft_test::expect_message(error.what());
  }
}

}  // namespace

void weft_test::target(Input input) {
  static MemoryFiles files;
  const std::string_view text = input.rest();
  files.set(text);
  read<models::GptConfig>(files);
  files.set(text);
  read<models::LlamaConfig>(files);
  files.set(text);
  read<models::MixtralConfig>(files);
}

std::vector<std::string> weft_test::seeds() {
  const auto f32 = checkpoint::StoredType::f32;
  return {
      hugging_face::config_text(models::GptConfig{.vocabulary = 64, .layers = 2, .width = 16, .heads = 4, .sequence = 8}, f32),
      hugging_face::config_text(models::LlamaConfig{.vocabulary = 64, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2}, f32),
      hugging_face::config_text(
          models::MixtralConfig{.vocabulary = 64, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .experts = 4},
          checkpoint::StoredType::bf16),
      R"({"model_type":"llama","vocab_size":8,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":16,"rope_scaling":{"rope_type":"llama3","factor":8.0}})",
      R"({"model_type":"qwen3","vocab_size":8,"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":16,"head_dim":6,"eos_token_id":[1,2],"use_sliding_window":true,"sliding_window":3,"layer_types":["full_attention","sliding_attention"],"rope_parameters":{"rope_type":"yarn","factor":4.0,"beta_fast":8,"truncate":false,"mscale":0.5,"mscale_all_dim":1}})",
      R"({"model_type":"mistral","vocab_size":8,"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":2,"intermediate_size":16,"sliding_window":3,"rope_scaling":{"type":"longrope","short_factor":[1,2],"long_factor":[2,3],"original_max_position_embeddings":4}})"};
}
