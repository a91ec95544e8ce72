// SPDX-License-Identifier: Apache-2.0
// Update rules of optimizers.
#include <weft/weft.hpp>

using namespace weft;

// section: buffers_of_an_object
// A number of buffers that each object of the rule would have.
// expect: this update rule's buffers is not a constant
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
#ifdef WEFT_FAIL
  int buffers = 0;
#else
  static constexpr int buffers = 0;
#endif
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

// section: check_of_other_options
// A check that takes the options of another rule: it would never be called.
// expect: this update rule's check cannot be called with its Options
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
#ifdef WEFT_FAIL
  static void check(const optim::SgdOptions&) {}
#else
  static void check(const Options&) {}
#endif
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

// section: element_of_other_buffers
// The arithmetic of an element with a buffer, in a rule without buffers.
// expect: this update rule's element is not the arithmetic of an update in the model's accumulate type A
// mention: Own
template <class A>
struct Descent {
#ifdef WEFT_FAIL
  static constexpr int buffers = 1;
#else
  static constexpr int buffers = 0;
#endif
  A rate;
  template <class V>
  KOKKOS_FUNCTION void operator()(V gradient, V& value, V*) const {
    value = value - V(rate) * gradient;
  }
  bool operator==(const Descent&) const = default;
};

struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
  template <class A>
  static Descent<A> element(const ParameterState&, const Options&, double learning_rate, std::uint64_t) {
    return {A(learning_rate)};
  }
};

// section: elementwise_of_an_object
// `elementwise` as a member of each object of the rule: it would never be read.
// expect: this update rule's elementwise is not a constant
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
#ifdef WEFT_FAIL
  bool elementwise = true;
#else
  static constexpr bool elementwise = true;
#endif
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

// section: home_of_rows
// Arrays at the homes of matrices, in a rule of rows.
// expect: this update rule keeps arrays at the homes of matrices .*, and rows have no home: declare Needs::matrix
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
#ifdef WEFT_FAIL
  static constexpr optim::Needs needs = optim::Needs::rows;
#else
  static constexpr optim::Needs needs = optim::Needs::matrix;
#endif
  static constexpr int buffers = 0;
  static constexpr std::array<std::string_view, 1> home_names{"moments"};
  static std::array<std::size_t, 1> home_elements(const ParameterState& state) { return {state.global()[0]}; }
  template <class P, class Exec>
  static void prepare(Device<Exec>&, optim::Slot&, const Options&, double, std::uint64_t, accumulate_t<P>*) {}
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix& matrix, const Options&, A*) {
    matrix.array<A>(0)[0] += A(1);
  }
  template <class P, class Exec>
  static void apply(Device<Exec>&, optim::Slot&, const Options&, double, std::uint64_t, const accumulate_t<P>*) {}
};

// section: needs_of_an_object
// `needs` as a member of each object of the rule: it would never be read.
// expect: this update rule's needs is not a constant of type Needs
// mention: Own
struct Own : optim::MuonRule {
#ifdef WEFT_FAIL
  optim::Needs needs = optim::Needs::matrix;
#else
  static constexpr optim::Needs needs = optim::Needs::matrix;
#endif
};

// section: of_matrices_without_transform
// A rule that needs whole matrices and does nothing with them.
// expect: this update rule needs whole rows or matrices .*, so its update has three parts, and one of them is missing
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr optim::Needs needs = optim::Needs::matrix;
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void prepare(Device<Exec>&, optim::Slot&, const Options&, double, std::uint64_t, accumulate_t<P>*) {}
#ifndef WEFT_FAIL
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix&, const Options&, A*) {}
#endif
  template <class P, class Exec>
  static void apply(Device<Exec>&, optim::Slot&, const Options&, double, std::uint64_t, const accumulate_t<P>*) {}
};

// section: of_rows_of_doubles
// A part of a rule for one element type, and a model in another.
// expect: this update rule needs whole rows or matrices .*, so its update has three parts, and one of them is missing
// mention: Own
struct Own : optim::MuonRule {
  static constexpr optim::Needs needs = optim::Needs::rows;
#ifdef WEFT_FAIL
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix&, const Options&, double*) {}
#else
  template <class A, class Exec>
  static void transform(Device<Exec>&, const optim::Matrix&, const Options&, A*) {}
#endif
};

// section: options_without_clip
// Options without `clip`.
// expect: this update rule's Options have no clip.*write `double clip = 0;`
// mention: Own
struct Own {
#ifdef WEFT_FAIL
  struct Options {
    double learning_rate = 1e-3;
  };
#else
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
#endif
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

// section: options_without_learning_rate
// Options that call the learning rate otherwise.
// expect: this update rule's Options have no learning_rate.*write `double learning_rate = 1e-3;`
// mention: Own
struct Own {
#ifdef WEFT_FAIL
  struct Options {
    double rate = 1e-3, clip = 0;
  };
#else
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
#endif
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

// section: update_of_an_object
// An update that is not static.
// expect: this update rule's update is not one for parameters .*static and public
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
#ifdef WEFT_FAIL
  template <class P, class Exec>
  void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#else
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#endif
};

// section: update_of_double
// An update for parameters in double, of a model in float.
// expect: this update rule's update is not one for parameters of the model's element type P
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
#ifdef WEFT_FAIL
  template <std::same_as<double> P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#else
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#endif
};

// section: update_without_step
// An update without the step's number among its parameters.
// expect: this update rule's update is not one for parameters of the model's element type P
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
#ifdef WEFT_FAIL
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double) {}
#else
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#endif
};

// section: without_buffers
// A rule that does not declare its number of buffers.
// expect: this update rule has no buffers.*write `static constexpr int buffers = 1;`
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
#ifndef WEFT_FAIL
  static constexpr int buffers = 0;
#endif
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
};

// section: without_options
// A rule whose options type has another name.
// expect: this update rule has no Options: write `struct Options
// mention: Own
struct Own {
  struct Settings {
    double learning_rate = 1e-3, clip = 0;
  };
#ifndef WEFT_FAIL
  using Options = Settings;
#endif
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Settings&, double, double, std::uint64_t) {}
};

// section: without_update
// A rule that calls its update otherwise.
// expect: this update rule has no update: write `template <class P, class Exec> static void update
// mention: Own
struct Own {
  struct Options {
    double learning_rate = 1e-3, clip = 0;
  };
  static constexpr bool elementwise = true;
  static constexpr int buffers = 0;
#ifdef WEFT_FAIL
  template <class P, class Exec>
  static void step(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#else
  template <class P, class Exec>
  static void update(Device<Exec>&, optim::Slot&, const Options&, double, double, std::uint64_t) {}
#endif
};

// after each section
void go(SingleDevice<models::Gpt>& model) {
  optim::Optimizer<Own> optimizer(model, {});
  optimizer.step();
}
