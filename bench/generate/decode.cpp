// SPDX-License-Identifier: Apache-2.0
// Greedy generation by a Llama from a folder on one rank of one thread. Prints JSON: seconds of the prompt and of each later
// token, the best of some rounds, and the tokens.
//
//   bench_generate_decode FOLDER PROMPT_TOKENS NEW_TOKENS [ROUNDS [SEQUENCES]]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <weft/generation/generate.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/runtime/run.hpp>

int main(int argc, char** argv) {
  using namespace weft;
  if (argc < 4) return std::fprintf(stderr, "bench_generate_decode FOLDER PROMPT_TOKENS NEW_TOKENS [ROUNDS [SEQUENCES]]\n"), 2;
  const std::string folder = argv[1];
  const std::size_t length = std::size_t(std::atoi(argv[2])), more = std::size_t(std::atoi(argv[3])),
                    rounds = argc > 4 ? std::size_t(std::atoi(argv[4])) : 5,
                    sequences = argc > 5 ? std::size_t(std::atoi(argv[5])) : 1;
  return runtime::run(runtime::RunOptions{.ranks = 1}, [&](World& world) {
    const auto config = hugging_face::read_config<models::LlamaConfig>(folder);
    SingleDevice<models::Llama> model(world.device(), config);
    hugging_face::load(folder, model);
    std::vector<std::vector<std::int32_t>> prompts(sequences), made;
    for (std::size_t s = 0; s < sequences; ++s)
      for (std::size_t i = 0; i < length; ++i) prompts[s].push_back(std::int32_t((1 + 7 * i + 13 * s) % config.vocabulary));
    using Clock = std::chrono::steady_clock;
    double first = 1e300, each = 1e300;
    for (std::size_t round = 0; round < rounds; ++round) {
      const auto started = Clock::now();
      Clock::time_point prefilled;
      std::size_t count = 0;
      made = generate(model, prompts, {.max_new_tokens = more, .each = [&](std::size_t, std::int32_t) {
                                         if (++count == sequences) prefilled = Clock::now();
                                         return true;
                                       }});
      first = std::min(first, std::chrono::duration<double>(prefilled - started).count());
      each = std::min(each, std::chrono::duration<double>(Clock::now() - prefilled).count() / double(more - 1));
    }
    std::printf("{\"first_s\": %.6f, \"each_s\": %.6f, \"tokens\": [", first, each);
    for (std::size_t i = 0; i < made[0].size(); ++i) std::printf("%s%d", i ? ", " : "", made[0][i]);
    std::printf("]}\n");
  });
}
