// SPDX-License-Identifier: Apache-2.0
// A start without the ranks among its arguments.
// expect: this communication hook's start cannot be called with a bucket and the data ranks
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
#ifdef WEFT_FAIL
  Request start(hook::Bucket&) { return Request(); }
#else
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) { return data_ranks.all_reduce_async(bucket.all()); }
#endif
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt, Own> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
