// SPDX-License-Identifier: Apache-2.0
// A keep with other arguments: checkpoints would lack the hook's state.
// expect: this communication hook's keep cannot be called with a bucket and a keeper
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) { return data_ranks.all_reduce_async(bucket.all()); }
#ifdef WEFT_FAIL
  void keep(hook::Keeper&) {}
#else
  void keep(hook::Bucket&, hook::Keeper&) {}
#endif
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt, Own> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
