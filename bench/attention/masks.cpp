// SPDX-License-Identifier: Apache-2.0
// Times of attention under each mask, compared with causal attention in the same run: hidden keys must not cost time. `work` is
// the number of visible keys divided by causal's, which is the expected ratio of the times.
//
//   bench_attention_masks [tokens 4096] [repeats 9]

#include <Kokkos_Core.hpp>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/kernels/attention.hpp>

namespace {

using namespace weft;
using Exec = Kokkos::DefaultHostExecutionSpace;

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

struct Case {
  std::string name;
  AttentionMask mask = {};
  std::vector<std::int32_t> documents = {};
  std::vector<std::uint8_t> visible = {};  // per key
  double seen = 0;                         // visible pairs of query and key
  std::vector<double> forward = {}, backward = {};
};

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <class T>
void measure(Device<Exec>& device, const char* name, std::size_t tokens, std::size_t repeats) {
  using A = accumulate_t<T>;
  constexpr std::size_t heads = 2, head_width = 64, width = heads * head_width;
  std::vector<T> x(tokens * 3 * width), d(x.size()), out(tokens * width), g(tokens * width);
  std::vector<A> lse(heads * tokens);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = T(A(Philox::normal(1, i)));
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = T(A(Philox::normal(2, i)));
  const kernels::AttentionExtents extents{.length = tokens, .heads = heads, .kv_heads = heads, .head_width = head_width};
  const auto operands = [](auto* of) {
    return kernels::AttentionOperands<std::remove_pointer_t<decltype(of)>>{
        .q = of, .k = of + width, .v = of + 2 * width, .q_stride = 3 * width, .k_stride = 3 * width, .v_stride = 3 * width};
  };

  std::vector<Case> cases{{"causal"}, {"full", {.causal = false}}};
  for (const std::size_t window : {tokens / 4, tokens / 16, tokens / 64})
    cases.push_back({"causal, window " + std::to_string(window), {.window = window}});
  for (const std::size_t count : {4, 16, 64}) {
    std::vector<std::int32_t> documents;
    for (std::size_t i = 0; i < tokens; ++i) documents.push_back(std::int32_t(i * count / tokens));
    cases.push_back({"causal, " + std::to_string(count) + " documents", {}, documents});
  }
  std::vector<std::uint8_t> half(tokens, 1);
  std::fill(half.begin() + std::ptrdiff_t(tokens / 2), half.end(), std::uint8_t(0));
  cases.push_back({"full, half of the keys padding", {.causal = false}, {}, half});
  for (Case& c : cases)
    for (std::size_t i = 0; i < tokens; ++i) {
      std::size_t first = c.mask.window != 0 && i + 1 > c.mask.window ? i + 1 - c.mask.window : 0,
                  end = c.mask.causal ? i + 1 : tokens;
      while (!c.documents.empty() && c.documents[first] != c.documents[i]) ++first;
      c.seen += double(c.visible.empty() ? end - first : tokens / 2);
    }

  for (std::size_t repeat = 0; repeat < repeats + 1; ++repeat)  // the first one warms up
    for (Case& c : cases) {
      const kernels::MaskArrays<A> arrays{.documents = c.documents.empty() ? nullptr : c.documents.data(),
                                          .visible = c.visible.empty() ? nullptr : c.visible.data()};
      const double start = thread_seconds();
      kernels::attention_forward<T>(device, extents, operands(static_cast<const T*>(x.data())), {out.data(), width}, lse.data(),
                                    c.mask, arrays);
      const double middle = thread_seconds();
      kernels::attention_backward<T>(device, extents, operands(static_cast<const T*>(x.data())), {out.data(), width},
                                     {g.data(), width}, lse.data(), operands(d.data()), c.mask, arrays);
      const double end = thread_seconds();
      if (repeat == 0) continue;
      c.forward.push_back(middle - start);
      c.backward.push_back(end - middle);
    }
  std::printf("%s, %zu tokens, %zu heads of width %zu, median of %zu\n", name, tokens, heads, head_width, repeats);
  std::printf("%-32s %9s %12s %9s %12s %9s\n", "", "work", "forward, ms", "of causal", "backward, ms", "of causal");
  for (const Case& c : cases)
    std::printf("%-32s %9.3f %12.2f %9.3f %12.2f %9.3f\n", c.name.c_str(), c.seen / cases[0].seen, 1e3 * median(c.forward),
                median(c.forward) / median(cases[0].forward), 1e3 * median(c.backward),
                median(c.backward) / median(cases[0].backward));
}

}  // namespace

int main(int count, char** arguments) {
  const Kokkos::ScopeGuard guard;
  const std::size_t tokens = count > 1 ? std::size_t(std::atoll(arguments[1])) : 4096,
                    repeats = count > 2 ? std::size_t(std::atoll(arguments[2])) : 9;
  Device<Exec> device(Kokkos::Experimental::partition_space(Exec(), 1, 1)[0]);
  measure<float>(device, "float", tokens, repeats);
  measure<bfloat16>(device, "bfloat16", tokens, repeats);
}
