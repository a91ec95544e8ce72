// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a model of Hugging Face in any layout: all parameters, or only low-rank adapters (LoRA).
//
//   ./examples/run finetune --load gpt2 --data train.bin --export mine                        all parameters
//   ./examples/run finetune --load gpt2 --data train.bin --lora 8 --export-adapters mine      adapters, which PEFT loads
//   ./examples/run finetune --load llama --data train.bin --lora 8 --lora-layers q_proj v_proj --dp 2 --tp 2 --zero 3 \
//       --export merged
//
// It is the trainer of train_gpt (04_train_gpt) with other defaults and options for adapters.

#include "../04_train_gpt/program.hpp"

int main(int argc, char** argv) {
  train_gpt::Options defaults;
  defaults.program = "finetune";
  defaults.finetunes = true;
  defaults.output = "runs/finetune";
  defaults.steps = 100;
  defaults.learning_rate = 1e-4;
  defaults.beta2 = 0.999;
  defaults.weight_decay = 0;
  defaults.sample = 0;
  return train_gpt::run_program(defaults, argc, argv);
}
