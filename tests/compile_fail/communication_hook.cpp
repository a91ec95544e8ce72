// SPDX-License-Identifier: Apache-2.0
// Communication hooks.
#include <weft/weft.hpp>

using namespace weft;

// section: data_policy_of_a_copy
// A policy that sets options of a copy.
// expect: this policy's apply takes ModelOptions by value or const reference, so the options that it sets would be lost
// mention: Own
struct Own {
#ifdef WEFT_FAIL
  static void apply(ModelOptions options) { options.seed = 2; }
#else
  static void apply(ModelOptions& options) { options.seed = 2; }
#endif
};

double go(World& world, const Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<models::Gpt, Own> model(mesh, models::GptConfig{});
  return model.train_step(batch);
}

// section: finish_without_ranks
// A finish with other arguments, which would never be called.
// expect: this communication hook's finish cannot be called with a bucket and the data ranks
// mention: Own
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

// section: keep_without_bucket
// A keep with other arguments: checkpoints would lack the hook's state.
// expect: this communication hook's keep cannot be called with a bucket and a keeper
// mention: Own
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

// section: of_missing_arguments
// A hook that is constructed from a number, without one.
// expect: this communication hook cannot be made on a rank
// mention: Own
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

// section: start_without_ranks
// A start without the ranks among its arguments.
// expect: this communication hook's start cannot be called with a bucket and the data ranks
// mention: Own
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

// section: start_without_request
// A start that returns nothing to wait for.
// expect: this communication hook's start returns no Request
// mention: Own
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

// section: untyped_bucket
// A hook that treats a bucket's elements as floats, which they are not in a model in double.
// expect: a bucket's elements are float or double.*bucket.span<float>\(\)
struct Mine {
  Request start(hook::Bucket& bucket, const Communicator& data_ranks) {
#ifdef WEFT_FAIL
    return data_ranks.all_reduce_async(std::span<float>(static_cast<float*>(bucket.data()), bucket.elements));
#else
    return data_ranks.all_reduce_async(bucket.span<float>());
#endif
  }
};

// section: without_start
// A communication hook with a finish but no start.
// expect: this communication hook has no start: write `Request start
// mention: Own
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
