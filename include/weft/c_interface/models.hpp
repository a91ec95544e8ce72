// SPDX-License-Identifier: Apache-2.0
#pragma once
// The models that C and Fortran create by name. A global object of the program registers a Module with named fields.
//
//   struct Rod : Module<Rod> { ... };
//   const c_interface::Registered<Rod> rod("rod", [](const c_interface::Options& options) {
//     return Rod::Config{.cells = options.number<std::size_t>("cells", 32)};
//   });

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/c_interface/weft.h>
#include <weft/c_interface/options.hpp>
#include <weft/checkpoint/load.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/data/fields.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/mesh/world.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>

namespace weft::c_interface {

/// A model and its optimizer behind the C interface.
class AnyModel {
 public:
  virtual ~AnyModel() = default;
  virtual void optimizer(const std::string& name, const Options& options) = 0;
  virtual void learning_rate(double rate) = 0;
  /// `copy`: also values that could be read where they lie.
  virtual void field(std::string_view name, const void* values, weft_type type, std::size_t samples, const Shape& shape,
                     bool copy) = 0;
  virtual double train() = 0;
  virtual double evaluate() = 0;
  virtual std::vector<double> predict() = 0;
  virtual double gradient_norm() const = 0;
  virtual std::uint64_t steps() const = 0;
  virtual void save(const std::string& folder) = 0;
  virtual void load(const std::string& folder) = 0;
  virtual const std::vector<std::string>& parameter_names() = 0;
  virtual std::vector<double> parameter(std::string_view name) = 0;
  virtual void set_parameter(std::string_view name, std::span<const double> values) = 0;
};

using Factory = std::function<std::unique_ptr<AnyModel>(World&, const Options&)>;
/// The registered models by name.
inline std::map<std::string, Factory>& factories() {
  static std::map<std::string, Factory> all;
  return all;
}

namespace detail {

/// An optimizer of a model.
template <class Model>
class AnyOptimizer {
 public:
  virtual ~AnyOptimizer() = default;
  virtual optim::StepReport step(double rate) = 0;
  virtual void save(const std::string& folder, Model& model, std::uint64_t step) = 0;
  virtual std::uint64_t load(const std::string& folder, Model& model) = 0;
};
template <class Model, class Optimizer>
class OptimizerOf : public AnyOptimizer<Model> {
 public:
  OptimizerOf(Model& model, const typename Optimizer::Options& options) : optimizer_(model, options) {}
  optim::StepReport step(double rate) override { return optimizer_.step(rate); }
  void save(const std::string& folder, Model& model, std::uint64_t step) override {
    checkpoint::save(folder, model, optimizer_, step);
  }
  std::uint64_t load(const std::string& folder, Model& model) override { return checkpoint::load(folder, model, optimizer_); }

 private:
  Optimizer optimizer_;
};

inline const char* name_of(weft_type type) {
  return type == WEFT_FLOAT32 ? "float32" : type == WEFT_FLOAT64 ? "float64" : type == WEFT_INT32 ? "int32" : "no type";
}
template <class T>
constexpr weft_type type_of() {
  return std::is_same_v<T, float> ? WEFT_FLOAT32 : std::is_same_v<T, double> ? WEFT_FLOAT64 : WEFT_INT32;
}
template <class From, class To>
std::vector<To> converted(const void* values, std::size_t size) {
  std::vector<To> out(size);
  std::transform(static_cast<const From*>(values), static_cast<const From*>(values) + size, out.begin(),
                 [](From value) { return To(value); });
  return out;
}

}  // namespace detail

template <class M>
class ModelOf : public AnyModel {
 public:
  using Model = FullyShardedDataParallel<M>;
  using Batch = typename M::Batch;

  ModelOf(World& world, const typename M::Config& config, const ModelOptions& options)
      : rank_(std::size_t(world.rank())), mesh_(world), model_(mesh_, config, options) {}

  void optimizer(const std::string& name, const Options& o) override {
    if (name == "adamw") {
      const optim::AdamWOptions options{.learning_rate = o.number("learning_rate", 1e-3),
                                        .beta1 = o.number("beta1", 0.9),
                                        .beta2 = o.number("beta2", 0.999),
                                        .epsilon = o.number("epsilon", 1e-8),
                                        .weight_decay = o.number("weight_decay", 0.01),
                                        .clip = o.number("clip", 0.0)};
      make_optimizer<optim::AdamWRule>(o, options);
    } else if (name == "sgd") {
      const optim::SgdOptions options{.learning_rate = o.number("learning_rate", 1e-2),
                                      .momentum = o.number("momentum", 0.0),
                                      .weight_decay = o.number("weight_decay", 0.0),
                                      .clip = o.number("clip", 0.0)};
      make_optimizer<optim::SgdRule>(o, options);
    } else {
      throw_error<UsageError>({"weft_optimizer: there is no optimizer '", name, "'; there are adamw and sgd"});
    }
  }
  void learning_rate(double rate) override {
    optim::require_option("learning rate", rate);
    rate_ = rate;
  }

  void field(std::string_view name, const void* values, weft_type type, std::size_t samples, const Shape& shape,
             bool copy) override {
    bool found = false;
    std::string names;
    batch_.for_each([&](auto field, auto&) {
      names += (names.empty() ? "" : ", ") + std::string(decltype(field)::name);
      found = found || decltype(field)::name == name;
    });
    if (!found) throw_error<UsageError>({"weft_field: the model has no field '", name, "'; it has ", names});
    if (samples != batch_.samples) batch_ = Batch{};  // another number begins another batch
    batch_.for_each([&](auto field, auto& of_field) {
      if (decltype(field)::name == name) set_values(name, of_field, values, type, samples, shape, copy);
    });
    batch_.samples = samples;
    batch_.first_sample = rank_ * samples;
    given_ = true;
  }

  double train() override {
    if (!optimizer_) throw_error<UsageError>({"weft_train: the model has no optimizer: call weft_optimizer first"});
    require_all_fields("weft_train");
    batch_.step = steps_;
    const double loss = model_.train_step(batch_);
    report_ = optimizer_->step(rate_);
    ++steps_;
    return loss;
  }
  double evaluate() override {
    require_all_fields("weft_evaluate");
    return model_.evaluate(batch_);
  }
  std::vector<double> predict() override { return model_.predict(batch_).values; }
  double gradient_norm() const override { return report_.gradient_norm; }
  std::uint64_t steps() const override { return steps_; }

  void save(const std::string& folder) override { stored("weft_save").save(folder, model_, steps_); }
  void load(const std::string& folder) override { steps_ = stored("weft_load").load(folder, model_); }

  const std::vector<std::string>& parameter_names() override { return model_.parameter_names(); }
  std::vector<double> parameter(std::string_view name) override { return model_.parameter(name); }
  void set_parameter(std::string_view name, std::span<const double> values) override { model_.set_parameter(name, values); }

 private:
  void require_all_fields(const char* function) const {
    batch_.for_each([&](auto field, const auto& of_field) {
      if (of_field.samples() == 0 && (batch_.samples != 0 || !given_))  // a rank may have no samples
        throw_error<UsageError>({function, ": the field '", decltype(field)::name, "' has no values: call weft_field first"});
    });
  }
  // The earlier optimizer stays if the options are refused.
  template <class Rule>
  void make_optimizer(const Options& given, const typename Rule::Options& options) {
    given.require_all_read();
    Rule::check(options);
    optim::require_option("learning rate", options.learning_rate);
    optim::require_option("clip", options.clip);
    optimizer_.reset();  // a parameter has one optimizer
    optimizer_ = std::make_unique<detail::OptimizerOf<Model, optim::Optimizer<Rule>>>(model_, options);
    rate_ = options.learning_rate;
  }
  detail::AnyOptimizer<Model>& stored(const char* function) {
    if (!optimizer_) throw_error<UsageError>({function, ": a checkpoint holds model and optimizer: call weft_optimizer first"});
    return *optimizer_;
  }
  // The field's values: a view of memory of the same type, or a converted copy.
  template <class Values>
  static void set_values(std::string_view name, Values& field, const void* values, weft_type type, std::size_t samples,
                         const Shape& shape, bool copy) {
    using T = typename Values::scalar;
    const std::size_t size = samples * shape.size();
    if (values == nullptr && size > 0) throw_error<UsageError>({"weft_field: the values of '", name, "' are a null pointer"});
    const bool same = type == detail::type_of<T>();
    if (same && copy) field.assign(detail::converted<T, T>(values, size), shape);
    else if (same) field.view(std::span(static_cast<const T*>(values), size), shape);
    else if (std::is_floating_point_v<T> && type == WEFT_FLOAT32) field.assign(detail::converted<float, T>(values, size), shape);
    else if (std::is_floating_point_v<T> && type == WEFT_FLOAT64) field.assign(detail::converted<double, T>(values, size), shape);
    else
      throw_error<UsageError>(
          {"weft_field: '", name, "' holds ", detail::name_of(detail::type_of<T>()), ", not ", detail::name_of(type)});
  }

  std::size_t rank_;
  bool given_ = false;  // a field
  Mesh<dp> mesh_;
  Model model_;
  Batch batch_{};
  std::unique_ptr<detail::AnyOptimizer<Model>> optimizer_;
  double rate_ = 0;
  std::uint64_t steps_ = 0;
  optim::StepReport report_;
};

/// Registers M under a name. `config(options)` returns M::Config; without it, the model has no options.
/// Two models of one name are an error at the first weft_model_new of that name.
template <class M>
class Registered {
 public:
  template <class F>
  Registered(const std::string& name, F config) {
    const bool taken = factories().count(name) != 0;
    factories()[name] = [=](World& world, const Options& options) -> std::unique_ptr<AnyModel> {
      if (taken) throw_error<UsageError>({"weft_model_new: two models are registered as '", name, "'"});
      const typename M::Config made = config(options);
      const ModelOptions model{.seed = options.number<std::uint64_t>("seed", 1),
                               .shard = {.stage = options.number<int>("zero", 0)}};
      options.require_all_read();
      return std::make_unique<ModelOf<M>>(world, made, model);
    };
  }
  explicit Registered(const std::string& name) : Registered(name, [](const Options&) { return typename M::Config{}; }) {}
};

}  // namespace weft::c_interface
