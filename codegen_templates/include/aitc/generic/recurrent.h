// Recurrent layers, what is sequential of them: for every direction and batch, step after step, a matrix-vector product with the recurrent
// weights and the cell. Once for cpu, CUDA and HIP: on GPUs a block takes one (direction, batch) and its threads share the units.
//
//   lstm(shape, x, r, state, act, out)     gates i o f c
//   gru(shape, x, r, state, act, out)      gates z r h
//   rnn(shape, x, r, state, act, out)
//
//   Shape    directions, steps, batch, hidden; static constexpr bool reverse[directions]; constexpr float clip (0: none);
//            bool input_forget (LSTM), linear_before_reset (GRU)
//   X        float operator()(int direction, int64_t t, int64_t b, int64_t gate_unit): the product of the input, with biases
//   R        float operator()(int direction, int64_t gate_unit, int64_t k): recurrent weights (D, G H, H)
//   State    int64_t length(int64_t b); float h0(d, b, u), c0(d, b, u), peephole(d, p) with p = u, H + u, 2 H + u for i, o, f; bias(d, gate_unit) of R (GRU)
//   Act      template <int which> float apply(int direction, float x): which = 0 f, 1 g, 2 h
//   Out      y(t, d, b, u, value), h(d, b, u, value), c(d, b, u, value)
//
// Work items: directions * batch. GPU: that many blocks; smem_bytes = (states + 2 + gates) * hidden * sizeof(float). A sequence that has ended
// keeps its state and gives 0; of one without steps the last state is 0, too, as in ONNX Runtime (ONNX says nothing of it).
#pragma once
#include "aitc/generic/element.h"

AITC_BEGIN

#if AITC_GPU
template <class Body> AITC_FN void each_unit(int64_t n, const Body& body) {
  for (int64_t u = threadIdx.x; u < n; u += blockDim.x) body(u);
  block_barrier();
}
template <class Body> AITC_FN void each_item(int64_t count, int64_t floats, const Body& body) {
  (void)floats;
  grid_dependency_wait();
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    body(i, reinterpret_cast<float*>(shared_memory()));
    block_barrier();
  }
  grid_dependency_launch();
}
#else
template <class Body> AITC_FN void each_unit(int64_t n, const Body& body) {
  for (int64_t u = 0; u < n; ++u) body(u);
}
template <class Body> AITC_FN void each_item(int64_t count, int64_t floats, const Body& body) {
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    float* memory = static_cast<float*>(scratch(2, size_t(floats) * sizeof(float)));
    for (int64_t i = begin; i < end; ++i) body(i, memory);
  });
}
#endif

template <class R> AITC_FN float recurrent_dot(const R& r, int direction, int64_t row, const float* h, int64_t n) {
  float sum[8] = {};
  int64_t k = 0;
  for (; k + 8 <= n; k += 8)
    AITC_UNROLL for (int j = 0; j < 8; ++j) sum[j] += r(direction, row, k + j) * h[k + j];
  for (; k < n; ++k) sum[0] += r(direction, row, k) * h[k];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

template <class Shape> AITC_FN float clipped(float x) {
  if constexpr (Shape::clip > 0) return x < -Shape::clip ? -Shape::clip : x > Shape::clip ? Shape::clip : x;
  else return x;
}

// What the data says, inside of what there is.
template <class Shape, class State> AITC_FN int64_t sequence_length(const Shape& shape, const State& state, int64_t b) {
  return max_of(min_of(int64_t(state.length(b)), int64_t(shape.steps)), int64_t(0));
}
// Where step `s` of a sequence of `length` lies, and what is left of `steps` once it has ended.
template <class Shape> AITC_FN int64_t step_place(int direction, int64_t s, int64_t length) {
  return Shape::reverse(direction) ? length - 1 - s : s;
}

template <class Shape, class X, class R, class State, class Act, class Out>
AITC_FN void lstm(const Shape& shape, const X& x, const R& r, const State& state, const Act& act, const Out& out) {
  const int64_t H = shape.hidden;
  each_item(int64_t(shape.directions) * shape.batch, 6 * H, [&](int64_t item, float* memory) {
    const int d = int(item / shape.batch);
    const int64_t b = item % shape.batch, length = sequence_length(shape, state, b);
    float *h = memory, *c = memory + H, *gates = memory + 2 * H;  // (H) (H) (4,H)
    each_unit(H, [&](int64_t u) { h[u] = state.h0(d, b, u), c[u] = state.c0(d, b, u); });
    for (int64_t s = 0; s < length; ++s) {
      const int64_t t = step_place<Shape>(d, s, length);
      each_unit(4 * H, [&](int64_t g) { gates[g] = x(d, t, b, g) + recurrent_dot(r, d, g, h, H); });
      each_unit(H, [&](int64_t u) {
        const float old = c[u];
        const float i = act.template apply<0>(d, clipped<Shape>(gates[u] + state.peephole(d, u) * old));
        const float f = Shape::input_forget ? 1 - i : act.template apply<0>(d, clipped<Shape>(gates[2 * H + u] + state.peephole(d, 2 * H + u) * old));
        const float now = f * old + i * act.template apply<1>(d, clipped<Shape>(gates[3 * H + u]));
        const float o = act.template apply<0>(d, clipped<Shape>(gates[H + u] + state.peephole(d, H + u) * now));
        c[u] = now;
        h[u] = o * act.template apply<2>(d, now);
        out.y(t, d, b, u, h[u]);
      });
    }
    each_unit(H, [&](int64_t u) {
      for (int64_t t = length; t < shape.steps; ++t) out.y(t, d, b, u, 0.0f);
      out.h(d, b, u, length > 0 ? h[u] : 0.0f);
      out.c(d, b, u, length > 0 ? c[u] : 0.0f);
    });
  });
}

template <class Shape, class X, class R, class State, class Act, class Out>
AITC_FN void gru(const Shape& shape, const X& x, const R& r, const State& state, const Act& act, const Out& out) {
  const int64_t H = shape.hidden;
  each_item(int64_t(shape.directions) * shape.batch, 6 * H, [&](int64_t item, float* memory) {
    const int d = int(item / shape.batch);
    const int64_t b = item % shape.batch, length = sequence_length(shape, state, b);
    float *h = memory, *reset = memory + H, *z = memory + 2 * H, *inner = memory + 3 * H;  // (H) each
    each_unit(H, [&](int64_t u) { h[u] = state.h0(d, b, u); });
    for (int64_t s = 0; s < length; ++s) {
      const int64_t t = step_place<Shape>(d, s, length);
      each_unit(H, [&](int64_t u) {
        z[u] = act.template apply<0>(d, clipped<Shape>(x(d, t, b, u) + recurrent_dot(r, d, u, h, H) + state.bias(d, u)));
        const float q = act.template apply<0>(d, clipped<Shape>(x(d, t, b, H + u) + recurrent_dot(r, d, H + u, h, H) + state.bias(d, H + u)));
        reset[u] = Shape::linear_before_reset ? q : q * h[u];
      });
      each_unit(H, [&](int64_t u) {
        const float product = recurrent_dot(r, d, 2 * H + u, Shape::linear_before_reset ? h : reset, H) + state.bias(d, 2 * H + u);
        const float fresh = act.template apply<1>(d, clipped<Shape>(x(d, t, b, 2 * H + u) + (Shape::linear_before_reset ? reset[u] * product : product)));
        inner[u] = (1 - z[u]) * fresh + z[u] * h[u];
      });
      each_unit(H, [&](int64_t u) {
        h[u] = inner[u];
        out.y(t, d, b, u, h[u]);
      });
    }
    each_unit(H, [&](int64_t u) {
      for (int64_t t = length; t < shape.steps; ++t) out.y(t, d, b, u, 0.0f);
      out.h(d, b, u, length > 0 ? h[u] : 0.0f);
    });
  });
}

template <class Shape, class X, class R, class State, class Act, class Out>
AITC_FN void rnn(const Shape& shape, const X& x, const R& r, const State& state, const Act& act, const Out& out) {
  const int64_t H = shape.hidden;
  each_item(int64_t(shape.directions) * shape.batch, 6 * H, [&](int64_t item, float* memory) {
    const int d = int(item / shape.batch);
    const int64_t b = item % shape.batch, length = sequence_length(shape, state, b);
    float *h = memory, *next = memory + H;  // (H) (H)
    each_unit(H, [&](int64_t u) { h[u] = state.h0(d, b, u); });
    for (int64_t s = 0; s < length; ++s) {
      const int64_t t = step_place<Shape>(d, s, length);
      each_unit(H, [&](int64_t u) { next[u] = act.template apply<0>(d, clipped<Shape>(x(d, t, b, u) + recurrent_dot(r, d, u, h, H))); });
      each_unit(H, [&](int64_t u) {
        h[u] = next[u];
        out.y(t, d, b, u, h[u]);
      });
    }
    each_unit(H, [&](int64_t u) {
      for (int64_t t = length; t < shape.steps; ++t) out.y(t, d, b, u, 0.0f);
      out.h(d, b, u, length > 0 ? h[u] : 0.0f);
    });
  });
}

AITC_END
