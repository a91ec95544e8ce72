// SPDX-License-Identifier: Apache-2.0
// Trains a GPT, Llama or Mixtral, byte-level or on tokens, over a mesh of ranks: every axis and wrapper of weft, fp32 or bf16.
//
//   ./examples/run train_gpt                                  two thread ranks, weft's own text
//   ./examples/run train_gpt --tp 2 --pp 2 --data novel.txt   four thread ranks
//   ./examples/run train_gpt --data train.bin --vocabulary 50257        tokens, as nanoGPT and llm.c write them
//   mpirun -np 4 ./examples/run train_gpt --tp 2              the launcher's ranks
//   torchrun --no-python --nproc-per-node 4 ./examples/run train_gpt --tp 2      the same over TCP
//
// The options are in options.cpp, the loop in loop.hpp, the model's type in composition.hpp.

#include "program.hpp"

// A model that two cores train in about a minute and a half, until its lines resemble the text.
int main(int argc, char** argv) {
  train_gpt::Options defaults;
  defaults.width = 128;
  defaults.sequence = 128;
  defaults.steps = 1000;
  defaults.optimizer = "muon";
  defaults.learning_rate = 8e-3;
  return train_gpt::run_program(defaults, argc, argv);
}
