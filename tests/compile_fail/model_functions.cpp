// SPDX-License-Identifier: Apache-2.0
// Models that lack a function or a type.
#include <weft/weft.hpp>

using namespace weft;

// section: blocks_without_config
// A number of blocks that does not depend on the config.
// expect: this model's blocks cannot be called with its Config
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
#ifdef WEFT_FAIL
  static std::size_t blocks() { return 2; }
#else
  static std::size_t blocks(const Config& config) { return config.layers; }
#endif
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: check_without_degrees
// A check that does not look at the degrees.
// expect: this model's check cannot be called with its Config and the degrees
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
#ifdef WEFT_FAIL
  static void check(const Config&) {}
#else
  static void check(const Config&, const ModelDegrees&) {}
#endif
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: make_back_of_another_type
// A make_back that does not return a Back.
// expect: this model's make_back returns something else than its Back
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
#ifdef WEFT_FAIL
  static LayerNorm make_back(const auto& context, const Config& config, Front*) {
    return LayerNorm(context / "norm", config.width);
  }
#else
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
#endif
};

// section: make_back_without_front
// A make_back without the front among its parameters.
// expect: this model's make_back cannot be called with the context, the config and the front
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
#ifdef WEFT_FAIL
  static Back make_back(const auto& context, const Config& config) {
    return Back(LayerNorm(context / "norm", config.width), Embedding(context / "head", config.vocabulary, config.width).table);
  }
#else
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
#endif
};

// section: make_block_of_another_type
// A make_block that forgets the Residual.
// expect: this model's make_block returns something else than its Block
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
#ifdef WEFT_FAIL
  static LayerNorm make_block(const auto& context, const Config& config, std::size_t index) {
    return LayerNorm(context / "blocks" / std::to_string(index), config.width);
  }
#else
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
#endif
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: make_block_without_index
// A make_block without the block's index among its parameters.
// expect: this model's make_block cannot be called with the context, the config and the block's index
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
#ifdef WEFT_FAIL
  static Block make_block(const auto& context, const Config& config) { return Block(LayerNorm(context / "block", config.width)); }
#else
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
#endif
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: make_front_of_an_object
// A make_front that is not static.
// expect: this model's make_front cannot be called with the context and the config
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
#ifdef WEFT_FAIL
  Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
#else
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
#endif
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: make_front_of_another_type
// A make_front that does not return a Front.
// expect: this model's make_front returns something else than its Front
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
#ifdef WEFT_FAIL
  static LayerNorm make_front(const auto& context, const Config& config) { return LayerNorm(context / "tokens", config.width); }
#else
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
#endif
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: scalar_of_integers
// A model that computes in whole numbers.
// expect: this model's scalar is no type in which layers compute
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
#ifdef WEFT_FAIL
  using scalar = int;
#else
  using scalar = float;
#endif
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: sequence_without_config
// A longest sequence with a wrong signature: lengths would not be checked.
// expect: this model's sequence cannot be called with its Config
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
#ifdef WEFT_FAIL
  static std::size_t sequence() { return 8; }
#else
  static std::size_t sequence(const Config&) { return 8; }
#endif
};

// section: vocabulary_of_an_object
// A vocabulary that is not static: tokens would not be checked.
// expect: this model's vocabulary cannot be called with its Config
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
#ifdef WEFT_FAIL
  std::size_t vocabulary(const Config& config) { return config.vocabulary; }
#else
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
#endif
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: without_back_type
// A model whose back has no name.
// expect: this model has no Back.*write `using Back
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
#ifndef WEFT_FAIL
  using Back = LanguageHead<LayerNorm>;
#endif
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static LanguageHead<LayerNorm> make_back(const auto& context, const Config& config, Front* front) {
    return LanguageHead<LayerNorm>(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: without_blocks
// A model that does not declare its number of blocks.
// expect: this model does not declare its number of blocks: write `static std::size_t blocks
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
#ifndef WEFT_FAIL
  static std::size_t blocks(const Config& config) { return config.layers; }
#endif
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: without_check
// A model that accepts every degree without a check.
// expect: this model has no check: write `static void check
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
#ifndef WEFT_FAIL
  static void check(const Config&, const ModelDegrees&) {}
#endif
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: without_config
// A model whose config type has another name.
// expect: this model has no Config: write `struct Config
// mention: Own
struct Own {
  struct Sizes {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
#ifndef WEFT_FAIL
  using Config = Sizes;
#endif
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Sizes& config) { return config.layers; }
  static std::size_t vocabulary(const Sizes& config) { return config.vocabulary; }
  static void check(const Sizes&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Sizes& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Sizes& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Sizes& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: without_front_type
// A model whose front has no name.
// expect: this model has no Front.*write `using Front = Embedding;`
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
#ifndef WEFT_FAIL
  using Front = Embedding;
#endif
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Embedding make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Embedding* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: without_make_back
// A model that makes no back.
// expect: this model has no make_back: write `static Back make_back\(const auto& context, const Config& config, Front. front\)`
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
#ifndef WEFT_FAIL
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
#endif
};

// section: without_make_block
// A model that makes no block.
// expect: this model has no make_block: write `static Block make_block\(const auto& context, const Config& config, std::size_t index\)`
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
#ifndef WEFT_FAIL
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
#endif
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// section: without_scalar
// A model that does not declare its scalar type.
// expect: this model has no scalar.*write `using scalar = float;`
// mention: Own
struct Own {
  struct Config {
    std::size_t vocabulary = 16, width = 8, layers = 2;
  };
#ifndef WEFT_FAIL
  using scalar = float;
#endif
  using Front = Embedding;
  using Block = Residual<LayerNorm>;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    return Block(LayerNorm(context / "blocks" / std::to_string(index), config.width));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

// after each section
double go(World& world, const Batch& batch) {
  Mesh<dp, tp> mesh(world, {.tp = 2});
  DataParallel<TensorParallel<Own>> model(mesh, {});
  optim::AdamW optimizer(model);
  const double loss = model.train_step(batch);
  optimizer.step();
  return loss;
}
