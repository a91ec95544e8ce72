// SPDX-License-Identifier: Apache-2.0
#pragma once
// The regular expression of a pre-tokeniser, by PCRE2. `tokenizers` uses Oniguruma, which interprets many expressions
// differently. Only expressions with the same meaning in both are supported: literal ASCII characters, \s \S \r \n \t, \p{X} and
// \P{X} with the properties of unicode.hpp, classes of them, (?: ) (?i: ) (?= ) (?! ), |, ? * + {m,n}. GPT-2, Llama 3, Qwen and
// o200k use nothing else. Others are refused by name.

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/hugging_face/tokenizer/unicode.hpp>

namespace weft::hugging_face::detail {

/// The reason why a pattern is refused.
struct PatternError {
  std::string why;
};

/// Translates an Oniguruma pattern (Ruby's syntax) to PCRE2; throws PatternError. PCRE2's own \s includes U+180E, and its letters
/// and numbers may belong to an older Unicode.
class PatternTranslation {
 public:
  static std::string of(std::string_view pattern) { return PatternTranslation(pattern).out_; }

 private:
  static constexpr std::size_t longest = 1024, most_repeats = 1000;

  explicit PatternTranslation(std::string_view pattern) : rest_(pattern) {
    if (pattern.size() > longest) throw PatternError{"has more than " + std::to_string(longest) + " characters"};
    while (!rest_.empty()) item();
  }

  [[noreturn]] static void refuse(std::string_view what) {
    throw PatternError{"has " + std::string(what) +
                       ", and weft reads \\s \\S \\r \\n \\t, \\p{} and \\P{} of L, N, M, Lu, Ll, Lt, Lm and Lo, classes of "
                       "them, (?:) (?i:) (?=) (?!), "
                       "|, ? * + {m,n} and ASCII characters"};
  }
  char take() {
    if (rest_.empty()) refuse("an end where something is missing");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (c < ' ' || c > '~') refuse("a character outside of ASCII's printable ones");
    return c;
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    out_ += text;
    return true;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  void item() {
    const char before = std::exchange(letter_, '\0');
    for (const std::string_view opening : {"(?:", "(?i:", "(?=", "(?!"})
      if (take(opening)) {
        folds_ = folds_ || opening == "(?i:";
        folding_.push_back(opening == "(?i:" || (!folding_.empty() && folding_.back()));
        return;
      }
    const char c = take();
    if (c == ')' && !folding_.empty()) folding_.pop_back();
    if (c == '(') refuse(rest_.starts_with('?') ? "a group of another kind" : "a group that captures");
    if (c == '[') return bracket();
    if (c == '?' || c == '*' || c == '+' || c == '{') return quantifier(c);
    if (c == '\\') {
      escape(false);
      return;
    }
    if (c == '.' || c == '^' || c == '$' || c == ']' || c == '}') refuse("a " + std::string(1, c));
    // Only Oniguruma's case folding maps these to one character (the ligatures, and ss to a sharp s).
    if (folds_ && ((before == 'f' && (c == 'f' || c == 'i' || c == 'l')) || (before == 's' && (c == 's' || c == 't'))))
      refuse("letters that have a ligature");
    letter_ = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    out_ += c;
  }

  void quantifier(char c) {
    out_ += c;
    if (c == '{') {
      const std::size_t least = number();
      if (take(",") && !rest_.starts_with('}') && number() < least) refuse("a repeat from more to less");
      if (!take("}")) refuse("a { that is no repeat");
    }
    if (rest_.starts_with('?') || rest_.starts_with('+') || rest_.starts_with('*') || rest_.starts_with('{'))
      refuse("a repeat that is lazy, possessive or of a repeat");
  }
  std::size_t number() {
    std::size_t value = 0;
    if (rest_.empty() || !is_digit(rest_.front())) refuse("a { that is no repeat");
    while (!rest_.empty() && is_digit(rest_.front())) {
      const char digit = take();
      out_ += digit;
      value = 10 * value + std::size_t(digit - '0');
      if (value > most_repeats) refuse("a repeat of more than " + std::to_string(most_repeats));
    }
    return value;
  }

  /// Parses an escape after its backslash. Returns the character if it is a literal, otherwise 0.
  char escape(bool in_class) {
    const char c = take();
    if (c == 's' || c == 'S') {
      out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      return '\0';
    }
    if (c == 'p' || c == 'P') {
      const std::string_view braced = rest_.substr(0, rest_.find('}') + 1);
      const auto of =
          std::find_if(std::begin(unicode_properties), std::end(unicode_properties), [&](const UnicodeProperty& property) {
            return braced.size() == property.name.size() + 2 && braced[0] == '{' &&
                   braced.substr(1, property.name.size()) == property.name;
          });
      const std::string spelled = "\\" + std::string(1, c) + std::string(braced.substr(0, 20));
      if (of == std::end(unicode_properties)) refuse("the property " + spelled);
      if (of->cased && !folding_.empty() && folding_.back()) refuse("the property " + spelled + " in (?i:)");
      if (in_class && c == 'P') refuse("\\P in a class");
      rest_.remove_prefix(braced.size());
      if (!in_class) out_ += c == 'p' ? "[" : "[^";
      out_ += "\\p" + std::string(braced);
      add(of->newer);
      if (!in_class) out_ += "]";
      return '\0';
    }
    if (is_digit(c) || (is_letter(c) && c != 'r' && c != 'n' && c != 't')) refuse("\\" + std::string(1, c));
    out_ += '\\';
    out_ += c;
    return c;
  }
  void add(std::span<const CodePoints> ranges) {
    static constexpr char digits[] = "0123456789abcdef";
    const auto append = [&](std::uint32_t code) {
      out_ += "\\x{";
      for (int shift = 20; shift >= 0; shift -= 4) out_ += digits[code >> shift & 15];
      out_ += "}";
    };
    for (const CodePoints& range : ranges) {
      append(range.first);
      if (range.last == range.first) continue;
      out_ += "-";
      append(range.last);
    }
  }

  void bracket() {
    out_ += '[';
    take("^");
    bool empty = true, range = false;
    char before = '\0';  // the literal that may begin a range
    for (;; empty = false) {
      const char c = take();
      if (c == ']') {
        if (empty) refuse("an empty class");
        if (range) refuse("a - at the edge of a class: write \\-");
        out_ += ']';
        return;
      }
      if (c == '[' || c == '^' || (c == '&' && rest_.starts_with('&'))) refuse("a " + std::string(1, c) + " in a class");
      if (c == '-') {
        if (before == '\0' || range) refuse("a - at the edge of a class: write \\-");
        range = true;
        out_ += '-';
        continue;
      }
      char literal = c;
      if (c == '\\') literal = escape(true);
      else out_ += c;
      if (range && (literal < before || !((is_digit(before) && is_digit(literal)) || (is_letter(before) && is_letter(literal)))))
        refuse("a range that is not of letters or digits");
      before = range ? '\0' : literal;
      range = false;
    }
  }

  std::string_view rest_;
  std::string out_;
  char letter_ = '\0';         // the previous literal, in lower case
  bool folds_ = false;         // the pattern contains (?i:
  std::vector<bool> folding_;  // of each open group: case is ignored
};

/// One thread's memory for matches, and the remaining work limit of the current text. PCRE2 counts steps, but not all steps of
/// compiled patterns, so the thread's time is limited, too.
class PatternMemory {
 public:
  /// Sets the limits of steps and of time for a text of `bytes` bytes.
  void set_limits(std::size_t bytes) {
    steps_left_ = 10'000'000 + 100 * std::uint64_t(bytes);
    end_s_ = thread_s() + 1 + 1e-5 * double(bytes);
    matches_ = 0;
  }

  PatternMemory()
      : match_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(32 << 10, most_stack, nullptr)) {
    if (!match_ || !context_) throw MemoryError("tokenizer: no memory for PCRE2");
    pcre2_set_heap_limit(context_.get(), most_stack >> 10);
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

 private:
  friend class Pattern;
  static constexpr std::uint64_t few_steps = 1000;  // enough for nearly every match; these are not counted

  /// Processor time of this thread, so that the machine's load does not change the limit.
  static double thread_s() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
  }
  /// Calls PCRE2's `match` with increasing step limits while the text has steps left, and returns its result.
  template <class F>
  int within_limits(F&& match) {
    for (std::uint64_t steps = few_steps;; steps *= 8) {
      const std::uint64_t most = std::min<std::uint64_t>({steps, steps_left_, std::numeric_limits<std::uint32_t>::max()});
      pcre2_set_match_limit(context_.get(), std::uint32_t(most));
      const int found = match();
      if (steps > few_steps || found == PCRE2_ERROR_MATCHLIMIT) steps_left_ -= most;
      const bool look = found == PCRE2_ERROR_MATCHLIMIT || steps > few_steps || ++matches_ % 64 == 0;
      if (look && (steps_left_ == 0 || thread_s() > end_s_)) return PCRE2_ERROR_MATCHLIMIT;
      if (found != PCRE2_ERROR_MATCHLIMIT) return found;
    }
  }

  static constexpr std::size_t most_stack = 64 << 20;
  struct Free {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
    void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
  };
  std::unique_ptr<pcre2_match_data, Free> match_;
  std::unique_ptr<pcre2_match_context, Free> context_;
  std::unique_ptr<pcre2_jit_stack, Free> stack_;
  std::uint64_t steps_left_ = 0, matches_ = 0;
  double end_s_ = 0;
};

class Pattern {
 public:
  /// GPT-2's pattern, the default of a ByteLevel pre-tokeniser.
  static constexpr std::string_view gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

  /// Throws PatternError for an unsupported pattern.
  explicit Pattern(std::string_view oniguruma) { compile(PatternTranslation::of(oniguruma)); }
  /// A word character: Unicode's \w (UTS #18, annex C).
  static Pattern word() {
    Pattern pattern;
    pattern.compile(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])");
    return pattern;
  }

  /// Calls `piece` with each match and each stretch between matches, in order. The text is UTF-8.
  template <class F>
  void split(std::string_view text, PatternMemory& memory, F&& piece) const {
    const auto* const begin = reinterpret_cast<PCRE2_SPTR>(text.data());
    std::size_t at = 0;
    while (at < text.size()) {
      const int found = memory.within_limits([&] {
        return (fast_ ? pcre2_jit_match : pcre2_match)(code_.get(), begin, text.size(), at, PCRE2_NO_UTF_CHECK,
                                                       memory.match_.get(), memory.context_.get());
      });
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0)
        throw Error("tokenizer: the pre-tokeniser's pattern gives up after byte " + std::to_string(at) +
                    " of a text: " + message(found));
      const std::size_t* const match = pcre2_get_ovector_pointer(memory.match_.get());
      const std::size_t from = match[0], to = match[1];
      if (from > at) piece(text.substr(at, from - at));
      piece(text.substr(from, to - from));
      at = to;
    }
    if (at < text.size()) piece(text.substr(at));
  }
  /// True if the pattern matches anywhere in the text.
  bool is_in(std::string_view text, PatternMemory& memory) const {
    return memory.within_limits([&] {
      return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, PCRE2_NO_UTF_CHECK,
                         memory.match_.get(), memory.context_.get());
    }) >= 0;
  }

 private:
  Pattern() = default;
  void compile(const std::string& pattern) {
    int error = 0;
    std::size_t at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr));
    if (!code_) throw PatternError{"is refused by PCRE2: " + message(error)};
    std::uint32_t matches_empty = 0;
    pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) throw PatternError{"may match no characters at all"};
    fast_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
  }
  static std::string message(int error) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
  }
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  bool fast_ = false;
};

}  // namespace weft::hugging_face::detail
