// SPDX-License-Identifier: Apache-2.0
// A start that returns nothing to wait for.
// expect: this communication hook's start returns no Request
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
#ifdef WEFT_FAIL
  void start(hook::Bucket& bucket, const Communicator& data_ranks) { data_ranks.all_reduce(bucket.all()); }
#else
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) { return data_ranks.all_reduce_async(bucket.all()); }
#endif
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt> model(mesh, models::GptConfig{}, {.data = {.hook = hook::make<Own>()}});
  return model.train_step(batch);
}
