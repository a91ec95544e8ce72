// SPDX-License-Identifier: Apache-2.0
#pragma once
// Defines the functions of weft/c_interface/weft.h. Exactly one file of a program includes this header; it registers the
// program's models (c_interface/models.hpp), and also includes c_interface/mpi.hpp if the program trains over MPI.
//
//   #include <weft/c_interface/define.hpp>
//   #include <weft/c_interface/mlp.hpp>       // the model "mlp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <Kokkos_Core.hpp>

#include <weft/c_interface/weft.h>
#include <weft/c_interface/models.hpp>
#include <weft/core/version.hpp>
#include <weft/runtime/ending.hpp>

/// A world of C, and the number of its models, which must end before it.
struct weft_world {
  weft::World world;
  int models = 0;
};
struct weft_model {
  weft_world* world;
  std::unique_ptr<weft::c_interface::AnyModel> model;
};

namespace weft::c_interface::detail {

inline thread_local std::string last_error;
inline bool started_kokkos = false;
/// Set by c_interface/mpi.hpp.
inline Communicator (*communicator_of_fortran)(int) = nullptr;

/// Calls f. An error becomes its exit code, and its text that of weft_error().
template <class F>
int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (...) {
    const runtime::detail::Report report(std::current_exception());
    last_error = report.text;
    return report.code;
  }
}
inline void require(const void* pointer, const char* function, const char* name) {
  if (pointer == nullptr) throw_error<UsageError>({function, ": ", name, " is a null pointer"});
}
template <class Model>
AnyModel& model_of(Model* model, const char* function) {
  require(model, function, "the model");
  return *model->model;
}
inline void make_world(Communicator communicator, weft_world** world, const char* function) {
  require(world, function, "the address of the world");
  if (!Kokkos::is_initialized()) throw_error<UsageError>({function, ": call weft_begin first"});
  *world = new weft_world{World(std::move(communicator))};
}
/// Copies values to C's array. Throws UsageError if it has another size.
inline void copy_out(const std::vector<double>& values, double* out, std::size_t count, const char* function) {
  require(out, function, "the output");
  if (values.size() != count)
    throw_error<UsageError>({function, ": there are ", values.size(), " elements, and the array has ", count});
  std::copy(values.begin(), values.end(), out);
}

/// weft_field and weft_field_copy.
inline int give_field(const char* function, weft_model* model, const char* field, const void* values, weft_type type,
                      std::size_t samples, int rank, const std::size_t* shape, bool copy) {
  return guarded([&] {
    require(field, function, "the field's name");
    if (rank < 0) throw_error<UsageError>({function, ": '", field, "' has rank ", rank});
    if (rank > 0) require(shape, function, "the shape");
    Shape extents = Shape::of_rank(std::size_t(rank));
    for (int dim = 0; dim < rank; ++dim) extents[std::size_t(dim)] = shape[dim];
    model_of(model, function).field(field, values, type, samples, extents, copy);
  });
}

// C's functions; in this namespace they are those of weft.h.
extern "C" {

int weft_begin(int threads) {
  return guarded([&] {
    if (Kokkos::is_finalized()) throw UsageError("weft_begin: Kokkos has ended in this process, and cannot start again");
    if (Kokkos::is_initialized()) return;
    Kokkos::InitializationSettings settings;
    if (threads > 0) settings.set_num_threads(threads);
    Kokkos::initialize(settings);
    started_kokkos = true;
  });
}
int weft_end(void) {
  return guarded([] {
    if (std::exchange(started_kokkos, false) && Kokkos::is_initialized()) Kokkos::finalize();
  });
}
const char* weft_version(void) { return version(); }
const char* weft_error(void) { return last_error.c_str(); }

int weft_world_single(weft_world** world) {
  return guarded([&] { make_world(Communicator(), world, "weft_world_single"); });
}
int weft_world_mpi(int fortran_communicator, weft_world** world) {
  return guarded([&] {
    if (communicator_of_fortran == nullptr)
      throw UsageError("weft_world_mpi: this program's C++ file does not include weft/c_interface/mpi.hpp");
    make_world(communicator_of_fortran(fortran_communicator), world, "weft_world_mpi");
  });
}
int weft_world_rank(const weft_world* world) { return world == nullptr ? -1 : world->world.rank(); }
int weft_world_size(const weft_world* world) { return world == nullptr ? -1 : world->world.size(); }
int weft_world_free(weft_world* world) {
  return guarded([&] {
    if (world != nullptr && world->models > 0)
      throw UsageError("weft_world_free: the world has models: call weft_model_free first");
    delete world;
  });
}

int weft_model_count(void) { return int(factories().size()); }
const char* weft_model_name(int index) {
  const auto& all = factories();
  return index < 0 || index >= int(all.size()) ? nullptr : std::next(all.begin(), index)->first.c_str();
}
int weft_model_new(weft_world* world, const char* name, const char* options, weft_model** model) {
  return guarded([&] {
    require(world, "weft_model_new", "the world");
    require(name, "weft_model_new", "the name");
    require(model, "weft_model_new", "the address of the model");
    const auto& all = factories();
    const auto found = all.find(name);
    if (found == all.end()) {
      std::string names;
      for (const auto& [known, factory] : all) names += (names.empty() ? "" : ", ") + known;
      throw_error<UsageError>({"weft_model_new: no model is registered as '", name, "'; there are: ", names});
    }
    const Options given(std::string("model ") + name, options == nullptr ? "" : options);
    auto made = std::make_unique<weft_model>(weft_model{world, found->second(world->world, given)});
    ++world->models;
    *model = made.release();
  });
}
int weft_model_free(weft_model* model) {
  return guarded([&] {
    if (model == nullptr) return;
    weft_world* const world = model->world;
    delete model;
    --world->models;
  });
}

int weft_optimizer(weft_model* model, const char* name, const char* options) {
  return guarded([&] {
    require(name, "weft_optimizer", "the name");
    model_of(model, "weft_optimizer")
        .optimizer(name, Options(std::string("optimizer ") + name, options == nullptr ? "" : options));
  });
}
int weft_learning_rate(weft_model* model, double rate) {
  return guarded([&] { model_of(model, "weft_learning_rate").learning_rate(rate); });
}
int weft_field(weft_model* model, const char* field, const void* values, weft_type type, size_t samples, int rank,
               const size_t* shape) {
  return give_field("weft_field", model, field, values, type, samples, rank, shape, false);
}
int weft_field_copy(weft_model* model, const char* field, const void* values, weft_type type, size_t samples, int rank,
                    const size_t* shape) {
  return give_field("weft_field_copy", model, field, values, type, samples, rank, shape, true);
}
int weft_train(weft_model* model, double* loss) {
  return guarded([&] {
    const double value = model_of(model, "weft_train").train();
    if (loss != nullptr) *loss = value;
  });
}
int weft_evaluate(weft_model* model, double* loss) {
  return guarded([&] {
    require(loss, "weft_evaluate", "the loss");
    *loss = model_of(model, "weft_evaluate").evaluate();
  });
}
int weft_predict(weft_model* model, double* outputs, size_t count) {
  return guarded([&] { copy_out(model_of(model, "weft_predict").predict(), outputs, count, "weft_predict"); });
}
int weft_gradient_norm(const weft_model* model, double* norm) {
  return guarded([&] {
    require(norm, "weft_gradient_norm", "the norm");
    *norm = model_of(model, "weft_gradient_norm").gradient_norm();
  });
}
int weft_steps(const weft_model* model, uint64_t* steps) {
  return guarded([&] {
    require(steps, "weft_steps", "the number");
    *steps = model_of(model, "weft_steps").steps();
  });
}

int weft_save(weft_model* model, const char* folder) {
  return guarded([&] {
    require(folder, "weft_save", "the folder");
    model_of(model, "weft_save").save(folder);
  });
}
int weft_load(weft_model* model, const char* folder) {
  return guarded([&] {
    require(folder, "weft_load", "the folder");
    model_of(model, "weft_load").load(folder);
  });
}

int weft_parameter_count(const weft_model* model) { return model == nullptr ? -1 : int(model->model->parameter_names().size()); }
const char* weft_parameter_name(const weft_model* model, int index) {
  if (index < 0 || index >= weft_parameter_count(model)) return nullptr;
  return model->model->parameter_names()[std::size_t(index)].c_str();
}
int weft_parameter_size(weft_model* model, const char* name, size_t* size) {
  return guarded([&] {
    require(name, "weft_parameter_size", "the name");
    require(size, "weft_parameter_size", "the size");
    *size = model_of(model, "weft_parameter_size").parameter(name).size();
  });
}
int weft_parameter_get(weft_model* model, const char* name, double* values, size_t count) {
  return guarded([&] {
    require(name, "weft_parameter_get", "the name");
    copy_out(model_of(model, "weft_parameter_get").parameter(name), values, count, "weft_parameter_get");
  });
}
int weft_parameter_set(weft_model* model, const char* name, const double* values, size_t count) {
  return guarded([&] {
    require(name, "weft_parameter_set", "the name");
    require(values, "weft_parameter_set", "the values");
    model_of(model, "weft_parameter_set").set_parameter(name, std::span(values, count));
  });
}

}  // extern "C"

}  // namespace weft::c_interface::detail
