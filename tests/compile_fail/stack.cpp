// SPDX-License-Identifier: Apache-2.0
// Stacks of blocks.
#include <weft/weft.hpp>

using namespace weft;

inline constexpr data::Field<"input", float> input;

struct Stem : Module<Stem> {
  Parameter<> weight;
  Stem(const auto& context, std::size_t width) : weight(context, "weight", {width, width}, ones) {}
  auto forward(const auto& batch) const { return matmul(batch[input], weight); }
};

struct Twice : Module<Twice> {
  auto forward(const auto& x) const { return std::tuple(x, x); }
};

struct Loss : Module<Loss> {
  Parameter<> weight;
  Loss(const auto& context, std::size_t width) : weight(context, "weight", {1, width}, ones) {}
  auto forward(const auto& x, const auto&) const { return sum_losses(matmul(x, weight)); }
};

// section: error_in_a_unit
// A C++ mistake in the forward of a stack's unit gives only the compiler's error, and none for its neighbours.
// expect: no member named .no_such_member
// mention: stack.cpp:
struct Sum : Module<Sum> {
#ifdef WEFT_FAIL
  auto forward(const auto& x, const auto& y) const { return x + y.no_such_member(); }
#else
  auto forward(const auto& x, const auto& y) const { return x + y; }
#endif
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return Stem(context / "stem", config.width); }, [] { return Twice(); }, [] { return Sum(); },
                 [=] { return Loss(context / "loss", config.width); });
  }
};

// section: of_layers
// A stack of layers instead of functions that make them.
// expect: a Stack is made of functions that make layers
struct Sum : Module<Sum> {
  auto forward(const auto& x, const auto& y) const { return x + y; }
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
#ifdef WEFT_FAIL
    return Stack(Stem(context / "stem", config.width), [=] { return Loss(context / "loss", config.width); });
#else
    return Stack([=] { return Stem(context / "stem", config.width); }, [=] { return Loss(context / "loss", config.width); });
#endif
  }
};

// section: of_no_stack
// A stack function that returns one of its parts.
// expect: this model's stack returns something else than a Stack
struct Sum : Module<Sum> {
  auto forward(const auto& x, const auto& y) const { return x + y; }
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
#ifdef WEFT_FAIL
    return Stem(context / "stem", config.width);
#else
    return Stack([=] { return Stem(context / "stem", config.width); }, [=] { return Loss(context / "loss", config.width); });
#endif
  }
};

// section: of_strange_neighbours
// Two neighbours of a stack that do not share a hidden type: a tuple of two, and a layer of one.
// expect: two neighbouring units of this stack do not share a hidden type
struct Sum : Module<Sum> {
  auto forward(const auto& x, const auto& y) const { return x + y; }
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
#ifdef WEFT_FAIL
    return Stack([=] { return Stem(context / "stem", config.width); }, [] { return Twice(); },
                 [=] { return Loss(context / "loss", config.width); });
#else
    return Stack([=] { return Stem(context / "stem", config.width); }, [] { return Twice(); }, [] { return Sum(); },
                 [=] { return Loss(context / "loss", config.width); });
#endif
  }
};

// section: repeats_a_change
// A repeated unit of a stack that returns another type than it takes.
// expect: a repeated block must return what it takes
struct Sum : Module<Sum> {
  auto forward(const auto& x, const auto& y) const { return x + y; }
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
#ifdef WEFT_FAIL
    return Stack([=] { return Stem(context / "stem", config.width); }, repeated(2, [](std::size_t) { return Twice(); }),
                 [] { return Sum(); }, [=] { return Loss(context / "loss", config.width); });
#else
    return Stack([=] { return Stem(context / "stem", config.width); }, [] { return Twice(); }, [] { return Sum(); },
                 [=] { return Loss(context / "loss", config.width); });
#endif
  }
};

// section: without_loss
// A stack whose last unit returns a tensor.
// expect: the last unit of this stack must return a loss
struct Sum : Module<Sum> {
  auto forward(const auto& x, const auto& y) const { return x + y; }
};

struct Again : Module<Again> {
  auto forward(const auto& x, const auto&) const { return x + x; }
};

struct Net {
  using scalar = float;
  struct Config {
    std::size_t width = 4;
  };
  using Batch = FieldBatch<input>;
  static auto stack(const auto& context, const Config& config) {
#ifdef WEFT_FAIL
    return Stack([=] { return Stem(context / "stem", config.width); }, [] { return Again(); });
#else
    return Stack([=] { return Stem(context / "stem", config.width); }, [=] { return Loss(context / "loss", config.width); });
#endif
  }
};

// after each section
double go(World& world, const Net::Batch& batch) {
  Mesh<dp> mesh(world);
  DataParallel<Net> model(mesh, {});
  return model.train_step(batch);
}
