// SPDX-License-Identifier: Apache-2.0
// covers: weft/device/number_to_host.hpp weft/optim/element_update.hpp
// The updates of an optimizer on a device with separate memory, run on the host: many parameters in one launch have the bits of
// one after the other, the device clips and skips without the host, and the host waits for the norm only after the updates are
// queued.
#include <Kokkos_Core.hpp>

#include <weft/device/parallel_for.hpp>

template <>
inline constexpr bool weft::detail::on_host<Kokkos::DefaultExecutionSpace> = false;

#include <cstdint>

#include <weft/device/number_to_host.hpp>

namespace {
std::uint64_t launches = 0;  // of this program's kernels
struct {
  std::uint64_t started = 0, waited = 0;  // launches when the norm began its way to the host, and when the host waited for it
  int numbers = 0;
} seen;
}  // namespace

template <>
class weft::detail::NumberToHost<Kokkos::DefaultExecutionSpace> {
 public:
  void start(Device<Kokkos::DefaultExecutionSpace>& device, const double* number, const Buffer&) {
    value_ = device.rehearsal() == nullptr ? *number : 0;
    seen.started = launches;
    ++seen.numbers;
  }
  double wait(Device<Kokkos::DefaultExecutionSpace>&) {
    seen.waited = launches;
    return value_;
  }

 private:
  double value_ = 0;
};

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/engine/loss_scale.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/element_update.hpp>
#include <weft/optim/muon.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

/// Parameters of many sizes, with gradients that a test writes.
template <class S>
struct Parameters {
  struct model_type {
    using scalar = S;
  };
  using A = accumulate_t<S>;

  explicit Parameters(Communicator of = {}, std::shared_ptr<LossScale> with = nullptr)
      : everyone(std::move(of)), scale(std::move(with)) {
    make();
    for (ParameterState& state : states)
      for (std::size_t i = 0; i < state.size(); ++i)
        static_cast<S*>(state.value().get())[i] = S(A(Philox::normal(site_of(state.name()), i)));
  }
  /// Only addresses.
  explicit Parameters(Rehearsal& notes) {
    the_device.rehearse(notes);
    make();
  }
  void make() {
    const Shape shapes[] = {{7, 5}, {11}, {1, 4096}, {4097}, {3, 1400}, {1}, {2050, 2}};
    for (const Shape& shape : shapes) {
      ParameterInfo info{.name = "p" + std::to_string(states.size()),
                         .global = shape,
                         .local = shape,
                         .type = data_type_of<S>,
                         .gradient_type = data_type_of<A>};
      info.runs = {{0, 0, shape.size()}};
      ParameterState& state = states.emplace_back(std::move(info));
      state.storage().set_value(the_device.allocate(state.bytes()));
    }
  }
  A* gradient(std::size_t p) { return static_cast<A*>(states[p].gradient().get()); }
  void set_gradients(std::uint64_t step) {
    for (ParameterState& state : states) {
      if (!state.gradient()) state.gradients().set_buffer(the_device.allocate(state.gradient_bytes()));
      for (std::size_t i = 0; i < state.size(); ++i)
        static_cast<A*>(state.gradient().get())[i] = A(Philox::normal(key_of(site_of(state.name()), step), i));
    }
  }
  template <class F>
  void for_each_state(F&& f) {
    for (ParameterState& state : states) f(state);
  }
  Communicator communicator() const { return everyone; }
  DefaultDevice& device() { return the_device; }
  std::shared_ptr<LossScale> loss_scale() const { return scale; }

  DefaultDevice the_device;
  std::deque<ParameterState> states;  // their addresses are stable
  Communicator everyone;
  std::shared_ptr<LossScale> scale;
};

/// All bytes that a step may change.
template <class Optimizer>
std::string everything(const Optimizer& optimizer) {
  std::string bytes;
  for (const auto& slot : optimizer.slots()) {
    const std::size_t wide = slot.state->gradient_bytes();
    const auto add = [&](const detail::Buffer& buffer, std::size_t size) {
      if (buffer) bytes.append(static_cast<const char*>(buffer.get()), size);
    };
    add(slot.state->value(), slot.state->kept() * size_of(slot.state->kept_type()));
    add(slot.master, wide);
    for (const auto& kept : slot.kept) add(kept, wide);
  }
  return bytes;
}

/// The same rule as a user's rule, which updates slot by slot with a factor on the host.
template <class Rule>
struct OneByOne {
  using Options = typename Rule::Options;
  static constexpr bool elementwise = true;
  static constexpr int buffers = Rule::buffers;
  template <class P, class Exec>
  static void update(Device<Exec>& device, optim::Slot& slot, const Options& options, double learning_rate, double gradient_scale,
                     std::uint64_t step) {
    optim::update_slot<Rule, P>(device, slot, options, learning_rate, {.value = gradient_scale}, step);
  }
};

/// The bytes after each of five steps: gradients above the clip and below it, a parameter frozen and later trained again, one
/// without a gradient, a written value, another rate.
template <class Rule, class S>
std::vector<std::string> course(const typename Rule::Options& options, std::vector<double>* norms) {
  Parameters<S> model({}, std::make_shared<LossScale>(LossScaleOptions{.initial = 8, .growth = 1}));
  optim::Optimizer<Rule> optimizer(model, options);
  std::vector<std::string> all;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    model.scale->apply();
    model.states[4].set_trainable(step != 2);
    model.set_gradients(step);
    model.states[1].gradients().set_touched(step != 3);
    if (step == 4) static_cast<S*>(model.states[3].value().get())[4096] = S(typename Parameters<S>::A(3));
    if (step == 5)
      for (std::size_t p = 0; p < model.states.size(); ++p) std::fill_n(model.gradient(p), model.states[p].size(), 1e-4f);
    norms->push_back(optimizer.step(step == 5 ? 0.5 : 1e-2).gradient_norm);
    all.push_back(everything(optimizer));
  }
  CHECK(optimizer.steps() == 5);
  return all;
}

template <class Rule, class S>
void check_course(const typename Rule::Options& options) {
  std::vector<double> norms, want_norms;
  seen.numbers = 0;
  const auto got = course<Rule, S>(options, &norms);
  CHECK(seen.numbers == 5);  // each step went behind its norm
  const auto want = course<OneByOne<Rule>, S>(options, &want_norms);
  CHECK(seen.numbers == 5);  // and a user's update needed none
  CHECK((norms == want_norms));
  CHECK(norms[0] / options.clip > 1);
  CHECK(norms[4] / options.clip < 1);
  for (std::size_t step = 0; step < want.size(); ++step) {
    INFO("step " << step);
    CHECK((got[step] == want[step]));
    if (step > 0) CHECK((got[step] != got[step - 1]));
  }
}

void count(const char*, const std::uint32_t, std::uint64_t*) { ++launches; }

struct CountLaunches {
  CountLaunches() { Kokkos::Tools::Experimental::set_begin_parallel_for_callback(&count); }
  ~CountLaunches() { Kokkos::Tools::Experimental::set_begin_parallel_for_callback(nullptr); }
};

}  // namespace

TEST_CASE_TEMPLATE("many parameters at once have the bits of one after the other", S, double, float, bfloat16, float16) {
  for (const bool decay_vectors : {true, false}) {
    optim::AdamWOptions options{.weight_decay = 0.1, .decay_vectors = decay_vectors, .clip = 1};
    check_course<optim::AdamWRule, S>(options);
    options.groups = {
        {.match = "p3", .weight_decay = 0}, {.match = "p6", .learning_rate = 1}, {.match = "p0", .learning_rate = 1e-4}};
    check_course<optim::AdamWRule, S>(options);
  }
  check_course<optim::SgdRule, S>({.momentum = 0.9, .weight_decay = 0.01, .nesterov = true, .clip = 1});
  check_course<optim::SgdRule, S>({.clip = 1, .groups = {{.match = "p2", .learning_rate = 1}}});
}

TEST_CASE("the device has the updates before the host waits for the norm, in one launch for each set of options") {
  CountLaunches counted;
  const auto updates_of = [](const optim::AdamWOptions& options) {
    Parameters<float> model;
    optim::AdamW optimizer(model, options);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      model.set_gradients(step);
      optimizer.step();
    }
    CHECK(seen.waited == launches);  // the wait comes after all launches
    return seen.waited - seen.started;
  };
  CHECK(updates_of({.clip = 1}) == 1);
  CHECK(updates_of({.decay_vectors = false}) == 2);
  CHECK(updates_of({.groups = {{.match = "p1", .learning_rate = 1}, {.match = "p2", .weight_decay = 0.5}}}) == 3);
  CHECK(updates_of({.groups = {{.match = "p1", .weight_decay = 0.01}}}) == 1);  // the same options as the others
}

TEST_CASE_TEMPLATE("a step that one rank's gradient stops writes nothing on any rank", S, float, bfloat16) {
  constexpr double bad[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()};
  for (const int ranks : {1, 2}) {
    std::atomic<int> wrong = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
            const auto scale = std::make_shared<LossScale>(LossScaleOptions{.initial = 8});
            Parameters<S> model(world.communicator(), scale);
            for (ParameterState& state : model.states)
              if (world.rank() != 0) state.storage().count_elsewhere();  // copies of rank 0's
            optim::AdamW optimizer(model, {.clip = 1});
            scale->apply();
            model.set_gradients(1);
            wrong += optimizer.step().skipped;
            const std::string before = everything(optimizer);
            const int victim = ranks - 1;
            for (const double value : bad) {
              scale->apply();
              const double factor = scale->value();
              model.set_gradients(2);
              if (world.rank() == victim) model.gradient(4)[4096 + 17] = typename Parameters<S>::A(value);
              const optim::StepReport report = optimizer.step();
              wrong += !report.skipped || std::isfinite(report.gradient_norm);
              wrong += everything(optimizer) != before;
              wrong += optimizer.steps() != 1 || scale->value() != factor / 2;
            }
            scale->apply();
            model.set_gradients(3);
            wrong += optimizer.step().skipped || everything(optimizer) == before || optimizer.steps() != 2;
          }) == 0);
    CHECK(wrong == 0);
  }
}

TEST_CASE("ranks clip by the norm of all") {
  std::vector<double> norms(2);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Parameters<float> model(world.communicator());
          optim::Sgd optimizer(model, {.learning_rate = 1, .clip = 0.5});
          model.set_gradients(1);
          double own = 0;
          for (std::size_t p = 0; p < model.states.size(); ++p)
            for (std::size_t i = 0; i < model.states[p].size(); ++i) own += std::pow(double(model.gradient(p)[i]), 2);
          const float before = *static_cast<float*>(model.states[0].value().get());
          const double norm = optimizer.step().gradient_norm;
          const float after = *static_cast<float*>(model.states[0].value().get());
          CHECK(norm == doctest::Approx(std::sqrt(2 * own)).epsilon(1e-6));
          CHECK(before - after == doctest::Approx(0.5 / norm * double(model.gradient(0)[0])).epsilon(1e-4));
          norms[std::size_t(world.rank())] = norm;
        }) == 0);
  CHECK(norms[0] == norms[1]);
}

TEST_CASE("parts of sharded parameters on a rank: only master copies, some with gradients in 16 bits") {
  CountLaunches counted;
  detail::Hooks sharder;
  const auto course_of = [&](auto rule, std::uint64_t* updates) {
    Parameters<bfloat16> model;
    for (std::size_t p = 0; p < model.states.size(); ++p) {
      ParameterState& state = model.states[p];
      const auto* value = static_cast<const bfloat16*>(state.value().get());
      const detail::Buffer master = model.the_device.allocate(state.size() * sizeof(float));
      std::copy_n(value, state.size(), static_cast<float*>(master.get()));
      state.shard(sharder);
      state.storage().set_value(master);
      state.storage().keep({.size = state.size(),
                            .type = DataType::float32,
                            .gradient_type = p < 5 ? DataType::float32 : DataType::bfloat16,
                            .runs = state.info().runs});
    }
    optim::Optimizer<decltype(rule)> optimizer(model, {.clip = 1});
    for (std::uint64_t step = 1; step <= 3; ++step) {
      model.set_gradients(step);
      for (std::size_t p = 5; p < model.states.size(); ++p) {
        const detail::Buffer narrow = model.the_device.allocate(model.states[p].size() * sizeof(bfloat16));
        for (std::size_t i = 0; i < model.states[p].size(); ++i)
          static_cast<bfloat16*>(narrow.get())[i] = bfloat16(model.gradient(p)[i]);
        model.states[p].gradients().set_buffer(narrow);
      }
      CHECK(!optimizer.step().skipped);
      for (std::size_t p = 5; p < model.states.size(); ++p) model.states[p].gradients().set_buffer(nullptr);
    }
    *updates = seen.waited - seen.started;
    return everything(optimizer);
  };
  std::uint64_t updates = 0, none = 0;
  const std::string got = course_of(optim::AdamWRule(), &updates);
  CHECK(updates == 1 + 2 * 2);  // five at once; the others are widened first, one after the other
  CHECK((got == course_of(OneByOne<optim::AdamWRule>(), &none)));
}

TEST_CASE("launches and bytes of a model's optimizer, in a rehearsal") {
  const auto step_of = [](auto rule, const auto& options) {
    Rehearsal notes;
    Parameters<bfloat16> model(notes);
    optim::Optimizer<decltype(rule)> optimizer(model, options);
    for (ParameterState& state : model.states) state.gradients().set_buffer(model.the_device.allocate(state.gradient_bytes()));
    for (int step = 0; step < 2; ++step) {
      notes.kernels.clear();
      optimizer.step();
    }
    return notes;
  };
  constexpr std::size_t elements = 7 * 5 + 11 + 4096 + 4097 + 4200 + 1 + 4100;
  const Rehearsal adamw = step_of(optim::AdamWRule(), optim::AdamWOptions{.clip = 1});
  CHECK(adamw.of("optimizer").launches == 1);
  CHECK(adamw.of("optimizer").bytes == double(elements * (4 + 4 * 4 + 2 * 4 + 2 * 2)));  // tests/plan/traffic.cpp: of one
  CHECK(adamw.of("gradient_norm").launches == 3);
  const Rehearsal muon = step_of(optim::MuonRule(), optim::MuonOptions{.groups = {{.match = "*", .rule = "adamw"}}});
  CHECK(muon.of("optimizer").launches == 1);  // the parameters that are not orthogonalised are updated together, too
}
