// SPDX-License-Identifier: Apache-2.0
// expect: weft: GraphedStep: a mixture of experts cannot be recorded: how many rows each expert gets is known in the step only
#include <weft/models/gpt.hpp>
#include <weft/models/mixtral.hpp>
#include <weft/parallel/cuda/graphed_step.hpp>
#include <weft/parallel/single_device.hpp>

void use(weft::DefaultDevice& device) {
#ifdef WEFT_FAIL
  weft::SingleDevice<weft::models::Mixtral> model(device, {});
#else
  weft::SingleDevice<weft::models::Gpt> model(device, {});
#endif
  weft::gpu::GraphedStep train_step(model);
}
