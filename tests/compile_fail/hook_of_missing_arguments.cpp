// SPDX-License-Identifier: Apache-2.0
// A hook that is constructed from a number, without one.
// expect: this communication hook cannot be made on a rank
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  explicit Own(int) {}
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) { return data_ranks.all_reduce_async(bucket.all()); }
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt> model(mesh, models::GptConfig{},
                                  {.data = {.hook = hook::make<Own>(
#ifndef WEFT_FAIL
                                                3
#endif
                                                )}});
  return model.train_step(batch);
}
