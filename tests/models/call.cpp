// Two models in one C++ program, each from two threads. c++ call.cpp -I out -L out -lhand -lother -Wl,-rpath,out
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "hand.h"
#include "other.h"

// Any compiled model, through its table of functions.
class Model {
 public:
  explicit Model(const aitc_model* table) : table_(table) { check(table_->create(0, nullptr, &instance_)); }
  ~Model() { table_->destroy(instance_); }
  Model(const Model&) = delete;

  // {y, n} for x of (batch, 4) and one id.
  std::pair<std::vector<float>, int64_t> operator()(std::vector<float>& x, int64_t id) const {
    const int64_t shape[] = {int64_t(x.size() / 4), 4}, one[] = {1};
    std::vector<float> y(x.size()), again(x.size());
    int64_t n = 0;
    const aitc_tensor in[] = {{x.data(), shape, 2, AITC_F32, AITC_MEMORY_AUTO}, {&id, one, 1, AITC_I64, AITC_MEMORY_AUTO}};
    const aitc_tensor out[] = {{y.data(), shape, 2, AITC_F32, AITC_MEMORY_AUTO}, {&n, one, 1, AITC_I64, AITC_MEMORY_AUTO}, {again.data(), nullptr, 0, AITC_F32, AITC_MEMORY_AUTO}};
    check(table_->run(instance_, in, 2, out, 3, nullptr));
    if (again != x) throw std::runtime_error("the third output is not the input");
    return {y, n};
  }

 private:
  void check(aitc_status status) const {
    if (status != AITC_OK) throw std::runtime_error(table_->last_error());
  }
  const aitc_model* table_;
  aitc_instance* instance_ = nullptr;
};

int main() {
  const Model hand(hand_model()), other(other_model()), again(hand_model());
  std::vector<float> ones(8, 1.0f);
  const auto a = hand(ones, 1), b = other(ones, 1), c = again(ones, 1);
  if (a != c || a.first == b.first) return 1;

  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Model& model = t % 2 ? hand : other;
      std::vector<float> x(size_t(4 * (t + 1)), 1.0f);
      for (int i = 0; i < 500; ++i) {
        const auto result = model(x, i);
        if (result.second != i + 1 || result.first[0] != (t % 2 ? a : b).first[0]) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();

  std::vector<float> many(9 * 4);
  try {
    hand(many, 0);
    return 2;
  } catch (const std::runtime_error& e) {
    std::printf("%s\n", e.what());
  }
  return wrong;
}
