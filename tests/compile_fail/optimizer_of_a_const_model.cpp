// SPDX-License-Identifier: Apache-2.0
// An optimizer changes the model's parameters.
// expect: this model is const
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
void go(const SingleDevice<models::Gpt>& model) {
#else
void go(SingleDevice<models::Gpt>& model) {
#endif
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  optimizer.step();
}
