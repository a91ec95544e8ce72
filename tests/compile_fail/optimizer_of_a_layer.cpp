// SPDX-License-Identifier: Apache-2.0
// A layer has parameters, but no ranks to sum its gradients over.
// expect: an optimizer updates a model that is laid over ranks
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
void go(Linear<Column>& model) {
#else
void go(SingleDevice<models::Gpt>& model) {
#endif
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  optimizer.step();
}
