// Made-up inputs that fit a port's type and use. Deterministic: the same seed gives the same data.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "aitc/host/npy.h"

namespace aitc::host {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  double uniform() { return double(next() >> 11) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  uint64_t state_;
};

inline uint16_t to_half(float value) {  // round to nearest even; small numbers only, no special cases beyond them
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude < 0x38800000) {
    float scaled;
    memcpy(&scaled, &magnitude, 4);
    return uint16_t(sign | uint32_t(std::lrint(scaled * 0x1p24f)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | (rounded - 0x38000000) >> 13);
}
inline uint16_t to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Floats: normal, or uniform in [0, 1) for images and what is positive, 0 or 1 for masks. Integers: below the limit of ids, bytes for
// images, else 0 or 1.
inline Array random_array(const aitc_port& port, const std::vector<int64_t>& shape, int item_bytes, Random& random) {
  Array array;
  array.dtype = port.dtype;
  array.shape = shape;
  const size_t count = size_t(element_count(shape));
  array.data.resize(count * size_t(item_bytes));
  const bool mask = strcmp(port.use, "mask") == 0, image = strcmp(port.use, "image") == 0;
  const bool one = mask || strcmp(port.use, "count") == 0 || strncmp(port.use, "length:", 7) == 0;
  const int64_t limit = strncmp(port.use, "ids:", 4) == 0 ? std::max<int64_t>(1, atoll(port.use + 4)) : image ? 256 : 2;
  const bool positive = strcmp(port.use, "positive") == 0;
  for (size_t i = 0; i < count; ++i) {
    char* to = &array.data[i * size_t(item_bytes)];
    const double real = mask ? double(random.next() & 1) : image || positive ? random.uniform() : random.normal();
    const int64_t whole = one ? 1 : int64_t(random.next() % uint64_t(limit));
    const float narrow = float(real);
    switch (port.dtype) {
      case AITC_F32: memcpy(to, &narrow, 4); break;
      case AITC_F64: memcpy(to, &real, 8); break;
      case AITC_F16: {
        const uint16_t bits = to_half(narrow);
        memcpy(to, &bits, 2);
        break;
      }
      case AITC_BF16: {
        const uint16_t bits = to_bfloat16(narrow);
        memcpy(to, &bits, 2);
        break;
      }
      case AITC_C64: {
        const float pair[2] = {narrow, float(random.normal())};
        memcpy(to, pair, 8);
        break;
      }
      case AITC_C128: {
        const double pair[2] = {real, random.normal()};
        memcpy(to, pair, 16);
        break;
      }
      case AITC_F8E4M3FN:
      case AITC_F8E4M3FNUZ:
      case AITC_F8E5M2:
      case AITC_F8E5M2FNUZ:
      case AITC_F8E8M0:
      case AITC_F4E2M1:     *to = char(random.next() & 0x07); break;        // small positive numbers
      default:              memcpy(to, &whole, size_t(item_bytes)); break;  // integers and bool, little-endian
    }
  }
  return array;
}

}  // namespace aitc::host
