// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/hook/communication_hook.hpp weft/parallel/hook/compress.hpp weft/parallel/hook/hook_check.hpp
// covers: weft/parallel/hook/power_sgd.hpp weft/parallel/hook/reduce_option.hpp
// Communication hooks of DataParallel compared with oracles on the host: sums in bfloat16 bit by bit, PowerSGD with its algorithm
// written in double, and a user's hook with the bits of the plain all-reduce. In training, all ranks keep the same bits.
// covers: weft/engine/hook/bucket.hpp

#include "support/parity.hpp"

#include <deque>

#include <weft/engine/hook/bucket.hpp>
#include <weft/parallel/hook/communication_hook.hpp>
#include <weft/parallel/hook/compress.hpp>
#include <weft/parallel/hook/hook_check.hpp>
#include <weft/parallel/hook/power_sgd.hpp>
#include <weft/parallel/hook/reduce_option.hpp>

using namespace weft_test;

namespace {

using Model = models::BasicGpt<float>;

// A hook of the user's: gathers and adds in rank order.
struct GatherAndAdd {
  explicit GatherAndAdd(DefaultDevice& own_device) : device(&own_device) {}
  Request start(hook::Bucket& bucket, const Communicator& comm) {
    DefaultDevice::Buffer& all = gathered[bucket.index] =
        device->allocate(bucket.elements * sizeof(float) * std::size_t(comm.size()));
    return comm.all_gather_async(bucket.span<const float>(),
                                 std::span<float>(static_cast<float*>(all.get()), bucket.elements * std::size_t(comm.size())));
  }
  void finish(hook::Bucket& bucket, const Communicator& comm) {
    const float* all = static_cast<const float*>(gathered.at(bucket.index).get());
    const auto sum = bucket.span<float>();
    for (std::size_t i = 0; i < bucket.elements; ++i) {
      sum[i] = all[i];
      for (std::size_t rank = 1; rank < std::size_t(comm.size()); ++rank) sum[i] += all[rank * bucket.elements + i];
    }
  }
  DefaultDevice* device;
  std::map<std::size_t, DefaultDevice::Buffer> gathered;
};

// f(world, hook, bucket, gradients) on some ranks; the bucket has parameters of these shapes, one after the other.
template <class F>
void with_bucket(int ranks, const hook::Factory& recipe, const std::vector<Shape>& shapes, F&& f) {
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    std::deque<ParameterState> states;  // members point to them
    std::vector<detail::FlatMember> members;
    std::size_t size = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      states.emplace_back(ParameterInfo{.name = "parameter " + std::to_string(i), .global = shapes[i], .local = shapes[i]});
      members.push_back({&states[i], size});
      size += shapes[i].size();
    }
    auto made = recipe.make(world.device());
    detail::Buffer storage = world.device().allocate(size * sizeof(float));
    hook::Bucket bucket{0, DataType::float32, storage, size, members};
    f(world, *made, bucket, std::span<float>(static_cast<float*>(storage.get()), size));
  });
  CHECK(code == 0);
}

float gradient(int step, int rank, std::size_t i) {
  return float(Philox::normal(key_of(std::uint64_t(step), std::uint64_t(rank)), i));
}

// A matrix in double, row-major.
struct Dense {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values = {};
  Dense(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
  double& operator()(std::size_t i, std::size_t j) { return values[i * columns + j]; }
  double operator()(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};
Dense product(const Dense& a, const Dense& b, bool transpose_a, bool transpose_b) {
  const std::size_t n = transpose_a ? a.columns : a.rows, k = transpose_a ? a.rows : a.columns,
                    m = transpose_b ? b.rows : b.columns;
  Dense c(n, m);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < m; ++j)
      for (std::size_t l = 0; l < k; ++l) c(i, j) += (transpose_a ? a(l, i) : a(i, l)) * (transpose_b ? b(j, l) : b(l, j));
  return c;
}
void gram_schmidt(Dense& p) {
  for (std::size_t c = 0; c < p.columns; ++c) {
    for (std::size_t d = 0; d < c; ++d) {
      double along = 0;
      for (std::size_t i = 0; i < p.rows; ++i) along += p(i, c) * p(i, d);
      for (std::size_t i = 0; i < p.rows; ++i) p(i, c) -= along * p(i, d);
    }
    double norm = 0;
    for (std::size_t i = 0; i < p.rows; ++i) norm += p(i, c) * p(i, c);
    for (std::size_t i = 0; i < p.rows; ++i) p(i, c) /= std::sqrt(norm);
  }
}

template <class M, class T = float>
std::pair<std::vector<double>, std::vector<T>> trained(const ModelOptions& options = {}, int ranks = 2, int steps = 4) {
  std::pair<std::vector<double>, std::vector<T>> result;
  std::vector<std::vector<T>> weights(static_cast<std::size_t>(ranks));
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    Mesh<dp> mesh(world);
    M model(mesh, gpt_config(), options);
    optim::AdamW optimizer(model, {.learning_rate = 1e-2});
    for (int step = 0; step < steps; ++step) {
      const double loss = model.train_step(make_batch(step, world.rank(), world.size(), 2));
      optimizer.step();
      if (world.rank() == 0) result.first.push_back(loss);
    }
    auto& mine = weights[static_cast<std::size_t>(world.rank())];
    model.for_each_state([&](ParameterState& state) {
      mine.insert(mine.end(), static_cast<T*>(state.value().get()), static_cast<T*>(state.value().get()) + state.size());
    });
  });
  CHECK(code == 0);
  for (const auto& other : weights) CHECK(other == weights[0]);
  result.second = weights[0];
  return result;
}

}  // namespace

TEST_CASE("bfloat16: each rank's gradients rounded, added in float, rounded once") {
  with_bucket(4, *hook::make<hook::Compress<bfloat16>>(), {{16, 24}, {7}},
              [](World& world, hook::AnyHook& made, hook::Bucket& bucket, std::span<float> gradients) {
                for (int step = 0; step < 2; ++step) {
                  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = gradient(step, world.rank(), i);
                  made.start(bucket, world.communicator()).wait();
                  made.finish(bucket, world.communicator());
                  for (std::size_t i = 0; i < gradients.size(); ++i) {
                    float sum = 0;
                    for (int rank = 0; rank < 4; ++rank) sum += float(bfloat16(gradient(step, rank, i)));
                    REQUIRE(gradients[i] == float(bfloat16(sum)));
                  }
                }
              });
}

TEST_CASE("PowerSGD is its algorithm: warm start, error feedback, small tensors whole") {
  for (const int r : {1, 2, 4}) {
    const std::vector<Shape> shapes{{16, 24}, {7}, {2, 3}, {4, 6, 8}};
    with_bucket(3, *hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = r, .seed = 5}), shapes,
                [&](World& world, hook::AnyHook& made, hook::Bucket& bucket, std::span<float> gradients) {
                  // One oracle for all ranks' work.
                  struct Oracle {
                    std::size_t first;
                    Dense q;
                    std::vector<Dense> error;
                  };
                  std::vector<Oracle> oracles;
                  std::vector<bool> compressed(shapes.size());
                  for (std::size_t i = 0; i < shapes.size(); ++i) {
                    const std::size_t rows = shapes[i].rank() > 1 ? shapes[i][0] : 1, columns = shapes[i].size() / rows;
                    if (shapes[i].rank() < 2 || std::size_t(r) * (rows + columns) >= rows * columns) continue;
                    compressed[i] = true;
                    Dense q(columns, std::size_t(r));
                    for (std::size_t k = 0; k < q.values.size(); ++k)
                      q.values[k] = Philox::normal(
                          key_of(std::uint64_t(5), site_of("parameter " + std::to_string(i)), std::uint64_t(0)), k);
                    oracles.push_back({bucket.members[i].first, q, std::vector<Dense>(3, Dense(rows, columns))});
                  }
                  double given = 0, received = 0;  // of one element, over all steps
                  for (int step = 0; step < 4; ++step) {
                    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = gradient(step, world.rank(), i);
                    made.start(bucket, world.communicator()).wait();
                    made.finish(bucket, world.communicator());
                    for (int rank = 0; rank < 3; ++rank) given += gradient(step, rank, 5);
                    received += gradients[5];
                    for (Oracle& oracle : oracles) {
                      std::vector<Dense> m = oracle.error;
                      Dense p(m[0].rows, std::size_t(r)), q(m[0].columns, std::size_t(r));
                      for (int rank = 0; rank < 3; ++rank) {
                        for (std::size_t k = 0; k < m[0].values.size(); ++k)
                          m[rank].values[k] += gradient(step, rank, oracle.first + k);
                        const Dense part = product(m[rank], oracle.q, false, false);
                        for (std::size_t k = 0; k < p.values.size(); ++k) p.values[k] += part.values[k];
                      }
                      gram_schmidt(p);
                      for (int rank = 0; rank < 3; ++rank) {
                        const Dense part = product(m[rank], p, true, false);
                        for (std::size_t k = 0; k < q.values.size(); ++k) q.values[k] += part.values[k];
                      }
                      oracle.q = q;
                      const Dense sum = product(p, q, false, true);
                      for (int rank = 0; rank < 3; ++rank)
                        for (std::size_t k = 0; k < sum.values.size(); ++k)
                          oracle.error[rank].values[k] = m[rank].values[k] - sum.values[k] / 3;
                      for (std::size_t k = 0; k < sum.values.size(); ++k)
                        REQUIRE(gradients[oracle.first + k] == doctest::Approx(sum.values[k]).epsilon(1e-3).scale(1));
                    }
                    for (std::size_t i = 0; i < shapes.size(); ++i)
                      for (std::size_t k = 0; !compressed[i] && k < shapes[i].size(); ++k) {
                        float sum = 0;
                        for (int rank = 0; rank < 3; ++rank) sum += gradient(step, rank, bucket.members[i].first + k);
                        REQUIRE(gradients[bucket.members[i].first + k] == sum);
                      }
                  }
                  // Values that were not sent are kept, not lost.
                  double left = 0;
                  for (int rank = 0; rank < 3; ++rank) left += oracles[0].error[rank].values[5];
                  CHECK(given == doctest::Approx(received + left).epsilon(1e-3));
                });
  }
}

TEST_CASE("PowerSGD hands a sum of few directions on whole, and starts again after zeros") {
  with_bucket(2, *hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = 2}), {{16, 24}},
              [](World& world, hook::AnyHook& made, hook::Bucket& bucket, std::span<float> gradients) {
                for (int step = 0; step < 6; ++step) {
                  const auto value = [&](int rank, std::size_t i) {
                    return step == 0 ? 0.0f : gradient(9, rank, i / 24) * gradient(10, rank, i % 24);
                  };
                  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = value(world.rank(), i);
                  made.start(bucket, world.communicator()).wait();
                  made.finish(bucket, world.communicator());
                  for (std::size_t i = 0; step > 3 && i < gradients.size(); ++i)
                    REQUIRE(gradients[i] == doctest::Approx(value(0, i) + value(1, i)).epsilon(2e-3).scale(1));
                }
              });
}

TEST_CASE("in training") {
  const auto plain = trained<DataParallel<Model>>();
  CHECK(trained<DataParallel<Model, GatherAndAdd>>() == plain);
  const auto narrow = trained<DataParallel<Model, hook::Compress<bfloat16>>>(),
             run_time = trained<DataParallel<Model>>({.data = {.hook = hook::make<hook::Compress<bfloat16>>()}});
  CHECK(narrow == run_time);
  CHECK(narrow != plain);
  for (std::size_t step = 0; step < plain.first.size(); ++step)
    CHECK(narrow.first[step] == doctest::Approx(plain.first[step]).epsilon(1e-2));
  const auto thin = trained<DataParallel<Model>>(
      {.data = {.bucket_bytes = 1u << 12,
                .hook = hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = 4, .plain_steps = 1})}},
      4, 12);
  CHECK(thin.first.back() < thin.first.front());
}

TEST_CASE("refusals") {
  DefaultDevice device;
  CHECK_THROWS_WITH_AS(hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = 0})->make(device),
                       "weft: PowerSgd: rank 0 is less than 1", UsageError);
  const int code = runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
    Mesh<dp> mesh(world);
    CHECK_THROWS_WITH_AS(
        DataParallel<Model>(mesh, gpt_config(),
                            {.data = {.hook = hook::make<GatherAndAdd>()}, .numerics = {.reproducible = true}}),
        "weft: ModelOptions: numerics.reproducible fixes how gradients are added, so it cannot go with a communication "
        "hook; leave one of them out",
        UsageError);
  });
  CHECK(code == 0);
}

namespace {
// Written for float, as the guide's own hook once was.
struct OnlyFloat {
  Request start(hook::Bucket& bucket, const Communicator& comm) { return comm.all_reduce_async(bucket.span<float>()); }
};
struct OfBoth {
  Request start(hook::Bucket& bucket, const Communicator& comm) {
    return bucket.visit([&](auto gradients) { return comm.all_reduce_async(gradients); });
  }
};
struct OfAny {
  Request start(hook::Bucket& bucket, const Communicator& comm) { return comm.all_reduce_async(bucket.all()); }
};
}  // namespace

TEST_CASE("a hook sees a bucket in its own type") {
  using Wide = models::BasicGpt<double>;
  const int code = runtime::run(runtime::RunOptions{.ranks = 2}, [](World& world) {
    Mesh<dp> mesh(world);
    const Batch batch = make_batch(0, std::size_t(world.rank()), 2, 2);
    DataParallel<Wide> wrong(mesh, gpt_config(), {.data = {.hook = hook::make<OnlyFloat>()}});
    bool refused = false;
    try {
      wrong.train_step(batch);
    } catch (const UsageError& error) {
      const std::string text = error.what();
      refused = text.find("hook: bucket 0 holds ") != text.npos &&
                text.find(" float64, and float32 was asked for: ask for span<double>()") != text.npos;
    }
    CHECK(refused);
  });
  CHECK(code == 0);
  CHECK(trained<DataParallel<Model>>({.data = {.hook = hook::make<OnlyFloat>()}}) == trained<DataParallel<Model>>());
  const auto plain = trained<DataParallel<Wide>, double>();
  CHECK(trained<DataParallel<Wide>, double>({.data = {.hook = hook::make<OfBoth>()}}) == plain);
  CHECK(trained<DataParallel<Wide>, double>({.data = {.hook = hook::make<OfAny>()}}) == plain);
}

namespace {
struct Forgets {
  Request start(hook::Bucket&, const Communicator&) { return Request(); }
};
// Fails in bfloat16, too: the values that were not added are rounded.
struct ForgetsRounded {
  Request start(hook::Bucket& bucket, const Communicator&) {
    for (float& gradient : bucket.span<float>()) gradient = float(bfloat16(gradient));
    return Request();
  }
};
struct Averages {
  Request start(hook::Bucket& bucket, const Communicator& comm) {
    return comm.all_reduce_async(bucket.all(), Reduction::average);
  }
};
struct DividesFirst {
  Request start(hook::Bucket& bucket, const Communicator& comm) {
    for (float& gradient : bucket.span<float>()) gradient = float(bfloat16(gradient / float(comm.size())));
    return comm.all_reduce_async(bucket.all());
  }
};
struct AddsTwice {
  Request start(hook::Bucket& bucket, const Communicator& comm) {
    comm.all_reduce(bucket.all());
    return comm.all_reduce_async(bucket.all());
  }
};
// Right at first.
struct ForgetsLater {
  std::size_t* steps;
  Request start(hook::Bucket& bucket, const Communicator& comm) {
    return *steps > 0 ? Request() : comm.all_reduce_async(bucket.all());
  }
};

// The error on a rank for a bucket with these gradients; "" if it passes.
std::string said_of(const hook::Factory& recipe, int ranks, const std::function<float(int, std::size_t)>& gradient_of) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  with_bucket(ranks, recipe, {{16, 24}, {7}},
              [&](World& world, hook::AnyHook& made, hook::Bucket& bucket, std::span<float> gradients) {
                for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = gradient_of(world.rank(), i);
                try {
                  made.start(bucket, world.communicator()).wait();
                  made.finish(bucket, world.communicator());
                } catch (const UsageError& error) {
                  said[static_cast<std::size_t>(world.rank())] = error.what();
                }
              });
  for (const auto& other : said) CHECK(other.empty() == said[0].empty());
  return said[0];
}
}  // namespace

TEST_CASE("a hook that forgets the sum, or averages, is refused in the first step") {
  const auto random = [](int rank, std::size_t i) { return gradient(0, rank, i); };
  const auto alike = [](int, std::size_t i) { return gradient(0, 0, i); };
  const auto first_alone = [](int rank, std::size_t i) { return rank == 0 ? gradient(0, 0, i) : 0.0f; };
  const auto opposed = [](int rank, std::size_t i) { return (rank == 0 ? 1 : -1) * gradient(0, 0, i); };
  const auto zero = [](int, std::size_t) { return 0.0f; };
  const char *forgot = "did not add the ranks' gradients: after it bucket 0 on world rank 0 of 2 still holds this rank's own",
             *averages =
                 "the communication hook averages: after it bucket 0 on world holds the sum of 2 ranks' gradients divided by 2";
  for (const auto& made : {hook::make<Forgets>(), hook::make<ForgetsRounded>()})
    for (const auto& of : {std::function<float(int, std::size_t)>(random), std::function<float(int, std::size_t)>(alike),
                           std::function<float(int, std::size_t)>(first_alone)})
      CHECK(said_of(*made, 2, of).find(forgot) != std::string::npos);
  for (const auto& made : {hook::make<Averages>(), hook::make<DividesFirst>()}) {
    CHECK(said_of(*made, 2, random).find(averages) != std::string::npos);
    CHECK(said_of(*made, 2, first_alone).find(averages) != std::string::npos);
    CHECK(said_of(*made, 4, alike) != "");  // each rank returns a different mean
  }
  for (const int ranks : {2, 3, 4})
    for (const auto& of : {std::function<float(int, std::size_t)>(random), std::function<float(int, std::size_t)>(alike),
                           std::function<float(int, std::size_t)>(first_alone)})
      CHECK(said_of(*hook::make<AddsTwice>(), ranks, of)
                .find("the communication hook adds too often: after it bucket 0 on world holds the sum of " +
                      std::to_string(ranks)) != std::string::npos);
  for (const auto& right : {hook::make<OfAny>(), hook::make<GatherAndAdd>(), hook::make<hook::Compress<bfloat16>>(),
                            hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = 1}),
                            hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = 4})})
    for (const int ranks : {2, 3, 4})
      for (const auto& of : {std::function<float(int, std::size_t)>(random), std::function<float(int, std::size_t)>(alike),
                             std::function<float(int, std::size_t)>(first_alone), std::function<float(int, std::size_t)>(opposed),
                             std::function<float(int, std::size_t)>(zero)})
        CHECK(said_of(*right, ranks, of) == "");
  for (const auto& wrong : {hook::make<Forgets>(), hook::make<Averages>()})
    CHECK(said_of(*wrong, 2, zero) == "");  // zeros cannot reveal the mistake
}

TEST_CASE("the check runs in the first step, and in a requested one") {
  const int code = runtime::run(runtime::RunOptions{.ranks = 2}, [](World& world) {
    Mesh<dp> mesh(world);
    std::size_t steps = 0;
    DataParallel<Model> model(mesh, gpt_config(), {.data = {.hook = hook::make<ForgetsLater>(&steps)}});
    const auto step = [&] { model.train_step(make_batch(steps, std::size_t(world.rank()), 2, 2)); };
    step();
    ++steps;
    step();
    model.check_hook();
    CHECK_THROWS_AS(step(), UsageError);
  });
  CHECK(code == 0);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [](World& world) {
          Mesh<dp> mesh(world);
          std::size_t steps = 0;
          DataParallel<Model> model(mesh, gpt_config(),
                                    {.data = {.hook = hook::make<ForgetsLater>(&steps)}, .numerics = {.compare_every = 3}});
          const auto step = [&] { model.train_step(make_batch(steps, std::size_t(world.rank()), 2, 2)); };
          step();
          ++steps;
          step();
          CHECK_THROWS_AS(step(), UsageError);
        }) == 0);
}
