// SPDX-License-Identifier: Apache-2.0
// A communication hook with a finish but no start.
// expect: this communication hook has no start: write `Request start
// mention: Own
#include <weft/weft.hpp>

using namespace weft;

struct Own {
#ifndef WEFT_FAIL
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) { return data_ranks.all_reduce_async(bucket.all()); }
#endif
  void finish(hook::Bucket&, const Communicator&) {}
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt, Own> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}
