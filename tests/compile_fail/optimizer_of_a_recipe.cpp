// SPDX-License-Identifier: Apache-2.0
// A model without a wrapper is a recipe without parameters.
// expect: an optimizer updates a model that is laid over ranks
// mention: Trainable
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
void go(models::Gpt& model) {
#else
void go(SingleDevice<models::Gpt>& model) {
#endif
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  optimizer.step();
}
