// SPDX-License-Identifier: Apache-2.0
// A layer has parameters, but no ranks that save it together.
// expect: checkpoint::save takes a folder, a model in its wrapper
#include <weft/checkpoint/checkpoint.hpp>
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
void go(Linear<Column>& model) {
#else
void go(SingleDevice<models::Gpt>& model) {
#endif
  checkpoint::save("run", model, 100);
}
