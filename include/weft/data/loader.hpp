// SPDX-License-Identifier: Apache-2.0
#pragma once
// The batches of a training run over any dataset. Every sample occurs once per epoch, in an order that is a pure function of seed
// and epoch (data/sampler.hpp): sample i of step s is the same in every layout, and a run resumes at any step. A data-parallel
// rank takes its contiguous share of each global batch; ranks of tp, pp and cp take the whole share. A thread, or several, loads
// the next batch while the current one is used.
//
//   struct Squares {                                          // a Dataset
//     using Fields = weft::FieldBatch<x, y>;
//     std::size_t size() const { return 1000; }
//     void load(std::size_t i, Fields::Sample& sample) const { sample[x][0] = float(i), sample[y][0] = float(i * i); }
//   };
//   for (auto&& batch : data::Loader(mesh, Squares{}, {.global_batch = 32, .epochs = 3})) model.train_step(batch);

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <weft/core/data_identity.hpp>
#include <weft/data/dataset.hpp>
#include <weft/data/fields.hpp>
#include <weft/data/load_ahead.hpp>
#include <weft/data/sample_threads.hpp>
#include <weft/data/sampler.hpp>

namespace weft::data {

/// The progress of a loader: the last batch that it returned.
struct LoaderProgress {
  std::uint64_t step = 0, end_step = 0;
  std::uint64_t epoch = 0, step_of_epoch = 0, steps_per_epoch = 0;  ///< counted from 0
  std::size_t samples_seen = 0, samples = 0;  ///< in this epoch including this step, over all data-parallel ranks
  double waited_s = 0;                        ///< time that steps waited for their batches, since begin()
};

/// One rank's share of each step's samples.
template <class D>
class Loader {
  static_assert(detail::NamesFields<D>, "weft: a Dataset names its fields: using Fields = weft::FieldBatch<...>");
  static_assert(!detail::NamesFields<D> || Dataset<D>,
                "weft: a Dataset has size() const and load(std::size_t index, Fields::Sample& sample) const");

 public:
  using Fields = typename detail::FieldsOf<D>::type;

  /// Throws the errors of Sampler. The dataset is moved, or shared if it is a shared_ptr.
  Loader(Share share, std::shared_ptr<const D> dataset, LoaderOptions options = {})
      : source_{dataset, Sampler(share, size_of(*dataset), options), {}} {
    if constexpr (requires { dataset->shapes(source_.shapes); }) dataset->shapes(source_.shapes);
  }
  template <class Mesh>
  requires(!std::is_same_v<Mesh, Share>) Loader(const Mesh& mesh, std::shared_ptr<const D> dataset, LoaderOptions options = {})
      : Loader(share_of(mesh), std::move(dataset), options) {
    source_.sampler.end_after(detail::most_steps(mesh));
  }
  Loader(Share share, D dataset, LoaderOptions options = {})
      : Loader(share, std::make_shared<const D>(std::move(dataset)), options) {}
  template <class Mesh>
  requires(!std::is_same_v<Mesh, Share>) Loader(const Mesh& mesh, D dataset, LoaderOptions options = {})
      : Loader(mesh, std::make_shared<const D>(std::move(dataset)), options) {}

  /// The range of steps. A batch is valid and writable until the next one is requested. If load() throws, begin() or ++ of its
  /// step throws weft::Error with the sample's index, with the exception nested in it.
  class iterator {
   public:
    using value_type = Fields;
    using difference_type = std::ptrdiff_t;
    explicit iterator(Loader* loader) : loader_(loader) {}
    Fields& operator*() const { return *loader_->batch_; }
    iterator& operator++() { return loader_->next(), *this; }
    void operator++(int) { loader_->next(); }
    bool operator==(std::default_sentinel_t) const { return loader_->batch_ == nullptr; }

   private:
    Loader* loader_;
  };
  /// Starts at options().first_step. Calling it again restarts.
  iterator begin() {
    batch_ = nullptr;
    waited_s_ = 0;
    ahead_.start(source_, source_.sampler.options().first_step, source_.sampler.end_step(), source_.sampler.options().ahead);
    next();
    return iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

  /// This rank's share of any step, loaded by this call.
  Fields batch(std::uint64_t step) const {
    Fields batch;
    source_(batch, step);
    return batch;
  }

  LoaderProgress progress() const {
    const Sampler& sampler = source_.sampler;
    const auto part = sampler.part(step_);
    const std::size_t end = std::min(part.place + sampler.options().global_batch, sampler.samples());
    return {step_, sampler.end_step(), part.epoch, step_ % sampler.steps_per_epoch(), sampler.steps_per_epoch(),
            end,   sampler.samples(),  waited_s_};
  }
  std::uint64_t epoch() const { return source_.sampler.part(step_).epoch; }
  std::uint64_t steps_per_epoch() const { return source_.sampler.steps_per_epoch(); }
  const LoaderOptions& options() const { return source_.sampler.options(); }
  const D& dataset() const { return *source_.dataset; }
  /// The identity for SaveOptions::data and LoadOptions::data of checkpoints, if the dataset has an `identity()`, as weft's
  /// datasets do: the dataset, and the options that order its samples.
  DataIdentity identity() const requires requires(const D& dataset) { dataset.identity(); }
  {
    DataIdentity identity = dataset().identity();
    identity.set("seed", std::to_string(options().seed));
    identity.set("global-batch", std::to_string(options().global_batch));
    identity.set("shuffle", options().shuffle ? "on" : "off");
    identity.set("drop-last", options().drop_last ? "on" : "off");
    return identity;
  }

 private:
  /// Loads the share of a step. The thread has its own copy, so the Loader can be moved meanwhile.
  struct Source {
    std::shared_ptr<const D> dataset;
    Sampler sampler;
    typename Fields::Shapes shapes;

    void operator()(Fields& batch, std::uint64_t step) const {
      const auto part = sampler.part(step);
      batch.resize(part.samples, shapes);
      batch.micro_batches = sampler.options().micro_batches;
      batch.first_sample = part.first_sample;
      batch.step = step;
      const auto load = [&](std::size_t i) {
        const std::size_t index = sampler.index(part, i);
        try {
          auto sample = batch.sample(i);
          if constexpr (Dataset<D>) detail::load_sample(*dataset, index, sample, part.epoch);
        } catch (const std::exception& error) {
          detail::rethrow_with_sample(error, index, step);
        }
      };
      detail::for_each_sample(part.samples, sampler.options().threads, std::ref(load));  // which allocates nothing
    }
  };

  static std::size_t size_of([[maybe_unused]] const D& dataset) {
    if constexpr (Dataset<D>) return dataset.size();
    else return 0;
  }

  void next() {
    const auto before = std::chrono::steady_clock::now();
    batch_ = ahead_.next();
    waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    if (batch_ != nullptr) step_ = batch_->step;
  }

  Source source_;
  detail::LoadAhead<Fields, Source> ahead_;
  Fields* batch_ = nullptr;
  std::uint64_t step_ = source_.sampler.options().first_step;
  double waited_s_ = 0;
};

template <class Mesh, class D>
Loader(const Mesh&, D, LoaderOptions) -> Loader<D>;
template <class Mesh, class D>
Loader(const Mesh&, std::shared_ptr<const D>, LoaderOptions) -> Loader<D>;
template <class Mesh, class D>
Loader(const Mesh&, std::shared_ptr<D>, LoaderOptions) -> Loader<D>;
template <class Mesh, class D>
Loader(const Mesh&, D) -> Loader<D>;
template <class Mesh, class D>
Loader(const Mesh&, std::shared_ptr<const D>) -> Loader<D>;
template <class Mesh, class D>
Loader(const Mesh&, std::shared_ptr<D>) -> Loader<D>;

}  // namespace weft::data
