// mma_sm80.h: the sm_80 instructions that the tensor-core kernels use, each with an emulated twin
// (tests/emulator/mma_sm80.h).
//
//   shared_address                     a place in shared memory; + int moves it by bytes; to_shared(char*)
//   copy_async<4|8|16>(to, from, valid)      cp.async: global to shared without registers; zeros if !valid (`from` is
//                                      not read then)
//   copy_async_commit() copy_async_wait<n>() groups, as in PTX
//   load_matrix_x4(r, address)         ldmatrix: lane l gives the address of row l % 8 (16 bytes) of matrix l / 8; r[i]
//                                      of lane l = row l / 4 of matrix i, bytes 4 * (l % 4) .. + 3
//   load_matrix_x4_trans(r, address)   the same of the transposed 8 x 8 matrices of 16-bit elements
//   load_shared_u32(address)
//   Mma<T>::k                          16 for half_t and bfloat16_t, 8 for float (as TF32)
//   Mma<T>::run(d, a, b)               D(16,8) += A(16,k) B(k,8), summed in float. With g = lane / 4, t = lane % 4:
//       16 bits  a[0] = A[g][2t, 2t+1]   a[1] = A[g+8][2t ..]   a[2] = A[g][2t+8 ..]   a[3] = A[g+8][2t+8 ..]
//                b[0] = B[2t, 2t+1][g]   b[1] = B[2t+8, 2t+9][g]
//       TF32     a[0] = A[g][t]   a[1] = A[g+8][t]   a[2] = A[g][t+4]   a[3] = A[g+8][t+4]
//                b[0] = B[t][g]   b[1] = B[t+4][g]
//       both     d[0], d[1] = D[g][2t, 2t+1]   d[2], d[3] = D[g+8][2t, 2t+1]
//   round_operand<T>(r)                float to TF32, nearest (the instruction would truncate); nothing for 16 bits
//   pack<T>(lo, hi)                    two floats to one register of 16-bit elements
#pragma once
#include "aitc/types.h"

#if defined(AITC_EMULATOR)
#include <mma_sm80.h>  // tests/emulator/: the twins
#elif !defined(AITC_CUDA)
#error "mma_sm80.h is for CUDA (and the emulator)"
#endif

AITC_BEGIN

#if defined(AITC_CUDA)
using shared_address = uint32_t;
AITC_FN shared_address to_shared(char* p) { return uint32_t(__cvta_generic_to_shared(p)); }

template <int Bytes> AITC_FN void copy_async(shared_address to, const void* from, bool valid) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async moves 4, 8 or 16 bytes");
  const int bytes = valid ? Bytes : 0;
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes), "r"(bytes)
                 : "memory");
}
AITC_FN void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Groups> AITC_FN void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

AITC_FN void load_matrix_x4(uint32_t (&r)[4], shared_address address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
AITC_FN void load_matrix_x4_trans(uint32_t (&r)[4], shared_address address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
AITC_FN uint32_t load_shared_u32(shared_address address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

template <class T> struct Mma;
template <> struct Mma<half_t> {
  static constexpr int k = 16;
  static AITC_FN void run(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct Mma<bfloat16_t> {
  static constexpr int k = 16;
  static AITC_FN void run(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct Mma<float> {
  static constexpr int k = 8;
  static AITC_FN void run(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <class T> AITC_FN void round_operand(uint32_t& r) {
  if constexpr (is_same<T, float>) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(bits_float(r)));
}

#endif

template <class T> AITC_FN uint32_t pack(float lo, float hi) {
  if constexpr (is_same<T, half_t>) return floats_to_half2(lo, hi);
  else return floats_to_bfloat162(lo, hi);
}

AITC_END
