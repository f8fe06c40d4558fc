// CUDA's and HIP's short vectors.
#pragma once
#if !defined(__VECTOR_TYPES_H__)
#define AITC_EMULATOR_VECTORS(T, name)                                               \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                 \
  struct name##3 { T x, y, z; };                                                     \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; }; \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                 \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
AITC_EMULATOR_VECTORS(float, float)
AITC_EMULATOR_VECTORS(double, double)
AITC_EMULATOR_VECTORS(int, int)
AITC_EMULATOR_VECTORS(unsigned, uint)
AITC_EMULATOR_VECTORS(short, short)
AITC_EMULATOR_VECTORS(unsigned short, ushort)
AITC_EMULATOR_VECTORS(signed char, char)
AITC_EMULATOR_VECTORS(unsigned char, uchar)
#undef AITC_EMULATOR_VECTORS
#endif
