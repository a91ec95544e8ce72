// SPDX-License-Identifier: Apache-2.0
// A finish with other arguments, which would never be called.
// expect: this communication hook's finish cannot be called with a bucket and the data ranks
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) { return data_ranks.all_reduce_async(bucket.all()); }
#ifdef WEFT_FAIL
  void finish(hook::Bucket&) {}
#else
  void finish(hook::Bucket&, const Communicator&) {}
#endif
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt, Own> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
