// SPDX-License-Identifier: Apache-2.0
#pragma once
// A stack: the units of a model in their order, as functions that make them. The layers may be of any types, and so may the
// values between them; layers of one type that follow each other are one entry, whose number is known when the program runs.
// Functions and not layers, because each rank of a pipeline keeps some units only, and because the engine notes which parameters
// each unit makes.
//
//   static auto stack(const auto& context, const Config& config) {
//     return Stack([=] { return Patches(context / "patches", config.width); },
//                  repeated(config.layers, [=](std::size_t i) { return Block(context / "blocks" / std::to_string(i), config); }),
//                  [=] { return Classes(context / "classes", config.width); });
//   }

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/core/standard.hpp>

namespace weft {

template <class Self>
class Module;

namespace detail {
template <class Make>
struct Repeated {
  std::size_t count = 0;
  Make make;
};
}  // namespace detail

/// `count` units of one type, made by make(index); their output has the type of their input.
template <class Make>
detail::Repeated<Make> repeated(std::size_t count, Make make) {
  return {count, std::move(make)};
}

/// The units of a model. Each argument is a function without parameters that returns a layer, or repeated(count, function of the
/// index). They are called in their order, once on every rank. The first unit takes the batch's inputs, every other one the
/// output of the one before it, and the last one the inputs as well: it returns the loss.
template <class... Make>
struct Stack {
  explicit Stack(Make... make) : makes(std::move(make)...) {}
  std::tuple<Make...> makes;
};

namespace detail {

template <class Make>
inline constexpr bool is_repeated = false;
template <class Make>
inline constexpr bool is_repeated<Repeated<Make>> = true;
template <class S>
inline constexpr bool is_stack = false;
template <class... Make>
inline constexpr bool is_stack<Stack<Make...>> = true;

/// The layer that an argument of Stack makes; void if it is no such function.
template <class Make>
struct MadeBy {
  using type = void;
};
template <class Make>
requires(!std::is_base_of_v<Module<Make>, Make>)  // a Module is called, too, and makes nothing
    && std::is_invocable_v<Make&> struct MadeBy<Make> {
  using type = std::invoke_result_t<Make&>;
};
template <class Make>
requires std::is_invocable_v<Make&, std::size_t>
struct MadeBy<Repeated<Make>> {
  using type = std::invoke_result_t<Make&, std::size_t>;
};

}  // namespace detail

}  // namespace weft
