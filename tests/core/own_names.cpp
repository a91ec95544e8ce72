// SPDX-License-Identifier: Apache-2.0
// A program that is `using namespace std` and `using namespace weft` has its own types and functions at global scope, under names
// that are common there and inside weft. It uses them without qualification, together with a layer and a model of the guide: an
// ambiguous name would not compile. own_variables.cpp has variables with such names.

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace std;
using namespace weft;

// clang-format off
#define OWN_TYPES(X)                                                                                                                        \
  X(Action) X(Arena) X(Assignments) X(Axis) X(Bucket) X(Buffer) X(Candidate) X(Chunk) X(Elements) X(EngineState) X(Environment) X(Exchange)        \
  X(Executor) X(Experts) X(Field) X(ModelTypes) X(ExpertMeshAxis) X(Gathered) X(GradientPart) X(Graph) X(Grid) X(Group) X(Heads) X(Held) X(Hooks)         \
  X(Initial) X(Item) X(Layer) X(Layout) X(Level) X(Line) X(StageChannel) X(List) X(Maybe) X(Member) X(Message) X(Node) X(Option) X(Order) X(Owner)  \
  X(StageMessage) X(Piece) X(Place) X(Point) X(Position) X(Range) X(RankAxis) X(RankGrid) X(RankOrder) X(Real) X(Record) X(ResolvedLayout)        \
  X(Rotary) X(Router) X(Run) X(Scalar) X(Scores) X(Segment) X(Size) X(Slot) X(Stage) X(Stages) X(State) X(StepBuffer) X(Store) X(Stream)    \
  X(Table) X(Tie) X(Trace) X(Tree) X(TreeNode) X(Unit) X(Vector) X(Matrix) X(View) X(Weight) X(Word) X(Zigzag)
// clang-format on

#define DEFINE(name) \
  struct name {      \
    int value = 7;   \
  };
OWN_TYPES(DEFINE)
enum class Kind { one, two };
enum class Drop { often, never };
using scalar_t = long;
using input_t = vector<int>;

int add(int a, int b) { return a + b; }
int subtract(int a, int b) { return a - b; }
int times(int a, int b) { return a * b; }
int divide(int a, int b) { return a / b; }
double scale(double x, double by) { return x * by; }
int square(int x) { return x * x; }
double sigmoid(double x) { return x < 0 ? 0 : 1; }
int dot(const vector<int>& a, const vector<int>& b) { return a.front() * b.front(); }
int chain(int x) { return x + 1; }
int softmax(int x) { return x; }
vector<int> slice(const vector<int>& x, size_t first, size_t count) {
  return {x.begin() + long(first), x.begin() + long(first + count)};
}
vector<int> reshape(vector<int> x) { return x; }
bool contains(const vector<int>& all, int one) { return all.front() == one; }
template <class To, class From>
To narrow(From value) {
  return To(value);
}
string joined(const string& a, const string& b) { return a + b; }
void append_to(string& text, const string& more) { text += more; }
int resolve(const Layout& layout) { return layout.value; }
int place_of(const Place& place) { return place.value; }
template <class F>
auto dispatch(F&& f) {
  return f();
}
template <class T, class F>
void erase_if(vector<T>& all, F&& unwanted) {
  if (!all.empty() && unwanted(all.back())) all.pop_back();
}

namespace {

// The guide's layer, with the operations that have the names of functions above.
struct Scale {
  Parameter<> gain;
  Scale(const auto& context, size_t width) : gain(context, "gain", {width}, ones) {}
  auto forward(const auto&, const auto& x) const { return Result{times_row(scale(add(x, x), 0.5), gain.for_operand(x)), x}; }
  auto backward(const auto& context, auto x, const auto& g) {
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
};

struct ByteMixer {
  struct Config {
    size_t vocabulary = 8, layers = 1, width = 4, sequence = 4;
  };
  using scalar = double;
  using Front = Embedding;
  using Block = Residual<Sequential<LayerNorm, Linear<Column>, Gelu, Linear<Row, StoredAs::in_out>, Scale>>;
  using Back = LanguageHead<LayerNorm>;

  static size_t blocks(const Config& config) { return config.layers; }
  static size_t vocabulary(const Config& config) { return config.vocabulary; }
  static size_t sequence(const Config& config) { return config.sequence; }
  static void check(const Config& config, const ModelDegrees& degrees) {
    if (config.width % degrees.tp != 0) throw LayoutError("width % tp != 0");
  }
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width);
  }
  static Block make_block(const auto& context, const Config& config, size_t index) {
    const auto here = context / "blocks" / to_string(index);
    return Residual(Sequential(
        LayerNorm(here / "norm", config.width), Linear<Column>(here / "up", config.width, 2 * config.width), Gelu{},
        Linear<Row, StoredAs::in_out>(here / "down", 2 * config.width, config.width), Scale(here / "scale", config.width)));
  }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front ? front->table : make_front(context, config).table);
  }
};

}  // namespace

TEST_CASE("a program's own types and functions of common names") {
#define USE(name) CHECK(name{}.value == 7);
  OWN_TYPES(USE)
  const map<Kind, string> names{{Kind::two, "two"}};
  CHECK(names.at(Kind::two) == "two");
  CHECK(Drop::never != Drop::often);
  CHECK(is_same_v<scalar_t, long>);
  input_t all{3, 4};
  CHECK(add(2, 3) == 5);
  CHECK(subtract(2, 3) == -1);
  CHECK(times(2, 3) == 6);
  CHECK(divide(6, 3) == 2);
  CHECK(scale(2, 0.5) == 1);
  CHECK(square(3) == 9);
  CHECK(sigmoid(3) == 1);
  CHECK(dot(all, all) == 9);
  CHECK(chain(2) == 3);
  CHECK(softmax(2) == 2);
  CHECK(slice(all, 1, 1).front() == 4);
  CHECK(reshape(all).size() == 2);
  CHECK(contains(all, 3));
  CHECK(narrow<int>(5L) == 5);
  string text = joined("a", "b");
  append_to(text, "c");
  CHECK(text == "abc");
  CHECK(resolve(Layout{}) == 7);
  CHECK(place_of(Place{}) == 7);
  CHECK(dispatch([] { return 1; }) == 1);
  ::erase_if(all, [](int i) { return i == 4; });  // of a std::vector std has one, too
  CHECK(all.size() == 1);
}

TEST_CASE("beside them a layer and a model") {
  CHECK_NOTHROW(testing::check_layer([](const auto& context) { return Scale(context / "scale", 4); }, {4, 4}));
  DefaultDevice device;
  SingleDevice<ByteMixer> model(device, {});
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  Batch batch;
  batch.sequences = 2;
  batch.length = 4;
  for (int i = 0; i < 8; ++i) {
    batch.tokens.push_back(i);
    batch.targets.push_back(i * 3 % 8);
  }
  const double before = model.train_step(batch);
  optimizer.step();
  CHECK(model.evaluate(batch) < before);
}
