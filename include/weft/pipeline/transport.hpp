// SPDX-License-Identifier: Apache-2.0
#pragma once
// The transport of a value between two stages of a pipeline, type-erased: a tensor, a tuple or a struct of them, or Nothing.
// Units of a model give these functions to the executor, which has no types.
//
//   const Transport<Exec>& transport = transport_of<Exec, Hidden>;
//   transport.send(channel, hidden, next_rank, {stage + 1, micro, true});

#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/struct_value.hpp>
#include <weft/pipeline/any_value.hpp>
#include <weft/pipeline/stage_channel.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

template <class Exec>
struct Transport {
  using Channel = StageChannel<Exec>;
  void (*expect)(Channel&, int from, const StageMessage&);
  AnyValue (*receive)(Channel&, int from, const StageMessage&);
  void (*send)(Channel&, const AnyValue&, int to, const StageMessage&);
};

/// Calls f(type of a tensor) for each tensor of an X, in order.
template <class X>
struct TensorsOf {
  template <class F>
  static void each(X& x, F&& f) {
    if constexpr (StructOfTensors<X>) with_parts(x, [&]<class... Part>(Part&... part) { (TensorsOf<Part>::each(part, f), ...); });
    else if constexpr (!std::is_same_v<X, Nothing>) f(x);
  }
};
template <class... X>
struct TensorsOf<std::tuple<X...>> {
  template <class F>
  static void each(std::tuple<X...>& x, F&& f) {
    std::apply([&](X&... parts) { (TensorsOf<X>::each(parts, f), ...); }, x);
  }
};

template <class Exec, class X>
struct TransportOf {
  using Channel = StageChannel<Exec>;
  static void expect(Channel& channel, int from, const StageMessage& message) {
    X types;
    int part = 0;
    TensorsOf<X>::each(types, [&]<class Y>(Y&) {
      channel.template expect<typename Y::value_type>(from, {message.stage, message.micro, message.forward, part++});
    });
  }
  static AnyValue receive(Channel& channel, int from, const StageMessage& message) {
    X x;
    int part = 0;
    TensorsOf<X>::each(x, [&]<class Y>(Y& y) {
      y = channel.template receive<Y>(from, {message.stage, message.micro, message.forward, part++});
    });
    return AnyValue(std::move(x));
  }
  static void send(Channel& channel, const AnyValue& value, int to, const StageMessage& message) {
    int part = 0;
    TensorsOf<X>::each(const_cast<AnyValue&>(value).as<X>(), [&](const auto& y) {
      channel.send(y, to, {message.stage, message.micro, message.forward, part++});
    });
  }
};

template <class Exec, class X>
inline constexpr Transport<Exec> transport_of{&TransportOf<Exec, X>::expect, &TransportOf<Exec, X>::receive,
                                              &TransportOf<Exec, X>::send};

}  // namespace weft::detail
