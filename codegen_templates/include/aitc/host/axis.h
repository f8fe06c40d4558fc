// The value of an axis whose size is an expression over the model's dims, as aitc_axis.text spells it: "past + seq",
// "(n + 1) // 2", "max(a, b)". For made-up inputs alone: the model itself has its sizes compiled in.
#pragma once
#include <cstring>
#include <string>

#include "aitc/host/abi.h"
#include "aitc/host/errors.h"

namespace aitc::host {

class AxisExpression {
 public:
  // The sizes of the model's symbols are in `dims`. Throws Error where `text` is no expression over them.
  static int64_t evaluate(const char* text, const aitc_model& model, const int64_t* dims) {
    AxisExpression expression{text, text, model, dims};
    const int64_t value = expression.sum();
    if (*expression.at_ != 0) expression.fail();
    return value;
  }

 private:
  AxisExpression(const char* text, const char* at, const aitc_model& model, const int64_t* dims)
      : text_(text), at_(at), model_(model), dims_(dims) {}

  int64_t sum() {
    const bool negative = accept("-");
    int64_t value = negative ? -term() : term();
    while (true) {
      if (accept("+")) value += term();
      else if (accept("-")) value -= term();
      else return value;
    }
  }

  int64_t term() {
    int64_t value = factor();
    while (true) {
      if (accept("*")) value *= factor();
      else if (accept("//")) value = divide(value, factor());
      else if (accept("%")) {
        const int64_t by = factor();
        value -= divide(value, by) * by;
      } else return value;
    }
  }

  int64_t factor() {
    if (accept("(")) {
      const int64_t value = sum();
      expect(")");
      return value;
    }
    if (accept("-")) return -factor();
    const std::string word(at_, strcspn(at_, " ()+-*/%,"));
    if (word.empty()) fail();
    at_ += word.size();
    if (word[0] >= '0' && word[0] <= '9') return std::stoll(word);
    const bool greatest = word == "max";
    if ((greatest || word == "min") && accept("(")) {
      int64_t value = sum();
      while (accept(",")) {
        const int64_t other = sum();
        if ((other > value) == greatest) value = other;
      }
      expect(")");
      return value;
    }
    for (int s = 0; s < model_.symbol_count; ++s)
      if (word == model_.symbols[s].name) return dims_[s];
    fail();
  }

  int64_t divide(int64_t a, int64_t b) const {
    if (b == 0) throw Error(AITC_BAD_INPUT, format("an axis has the size \"%s\", which divides by zero", text_));
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
  }

  bool accept(const char* sign) {
    at_ += strspn(at_, " ");
    if (strncmp(at_, sign, strlen(sign)) != 0) return false;
    at_ += strlen(sign);
    at_ += strspn(at_, " ");
    return true;
  }
  void expect(const char* sign) {
    if (!accept(sign)) fail();
  }
  [[noreturn]] void fail() const {
    throw Error(AITC_INTERNAL, format("an axis has the size \"%s\", which cannot be read", text_));
  }

  const char* const text_;
  const char* at_;
  const aitc_model& model_;
  const int64_t* const dims_;
};

}  // namespace aitc::host
