// Resize along one axis: which input elements an output element is made of, and their weights (ONNX Resize, opset 19).
//
//   ResizeAxis<mode, coordinates, nearest, antialias, exclude_outside> z(i, size_in, size_out, scale, cubic_a, roi_begin, roi_end);
//   for (int t = 0; t < z.count(); ++t) sum += z.weight(t) * x[z.index(t)];
//
// Nearest has one tap of weight 1. `inside()` tells whether tf_crop_and_resize reads within the input.
#pragma once
#include "aitc/generic/element.h"

AITC_BEGIN

enum class ResizeMode { nearest, linear, cubic };
enum class ResizeCoordinates {
  half_pixel, half_pixel_symmetric, pytorch_half_pixel, tf_half_pixel_for_nn, align_corners, asymmetric, tf_crop_and_resize
};
enum class ResizeNearest { round_prefer_floor, round_prefer_ceil, floor, ceil, outward };  // outward: ceil where the axis shrinks, else floor

template <ResizeMode mode, ResizeCoordinates coordinates, ResizeNearest nearest, bool antialias, bool exclude_outside>
struct ResizeAxis {
  float x;          // the place in the input
  float stretch;    // how many input elements wide the filter is in units of its own width: 1, or 1 / scale with antialias
  float cubic_a;
  float total;      // of the weights
  int64_t first, size;
  int taps;
  bool shrinks;

  AITC_FN ResizeAxis(int64_t i, int64_t size_in, int64_t size_out, float scale, float a, float roi_begin = 0, float roi_end = 1)
      : cubic_a(a), total(1), size(size_in) {
    const float out = float(i), in_size = float(size_in), length = scale * in_size;
    if constexpr (coordinates == ResizeCoordinates::asymmetric) {
      x = out / scale;
    } else if constexpr (coordinates == ResizeCoordinates::align_corners) {
      x = length == 1 ? 0.0f : out * (in_size - 1) / (length - 1);
    } else if constexpr (coordinates == ResizeCoordinates::tf_crop_and_resize) {
      x = size_out > 1 ? roi_begin * (in_size - 1) + out * (roi_end - roi_begin) * (in_size - 1) / (float(size_out) - 1)
                       : 0.5f * (roi_begin + roi_end) * (in_size - 1);
    } else if constexpr (coordinates == ResizeCoordinates::half_pixel_symmetric) {
      const float adjustment = float(size_out) / length, centre = in_size / 2;
      x = centre * (1 - adjustment) + (out + 0.5f) / scale - 0.5f;
    } else if constexpr (coordinates == ResizeCoordinates::tf_half_pixel_for_nn) {
      x = (out + 0.5f) / scale;
    } else if constexpr (coordinates == ResizeCoordinates::pytorch_half_pixel) {
      x = size_out > 1 ? (out + 0.5f) / scale - 0.5f : 0.0f;
    } else {
      x = (out + 0.5f) / scale - 0.5f;
    }
    shrinks = scale < 1;
    stretch = antialias && shrinks ? 1 / scale : 1.0f;
    if constexpr (mode == ResizeMode::nearest) {
      taps = 1, first = 0;
    } else {
      const float reach = (mode == ResizeMode::linear ? 1.0f : 2.0f) * stretch;
      if (stretch == 1) {
        first = int64_t(floor_(x)) - (mode == ResizeMode::linear ? 0 : 1);
        taps = mode == ResizeMode::linear ? 2 : 4;
      } else {
        first = int64_t(ceil_(x - reach));
        taps = int(int64_t(floor_(x + reach)) - first) + 1;
      }
      if (exclude_outside || antialias) {
        float sum = 0;
        for (int t = 0; t < taps; ++t) sum += raw(t);
        total = sum;
      }
    }
  }
  AITC_FN int count() const { return taps; }
  AITC_FN bool inside() const { return x >= 0 && x <= float(size - 1); }
  AITC_FN int64_t index(int t) const {
    if constexpr (mode == ResizeMode::nearest) {
      float r;
      if constexpr (nearest == ResizeNearest::floor) r = floor_(x);
      else if constexpr (nearest == ResizeNearest::ceil) r = ceil_(x);
      else if constexpr (nearest == ResizeNearest::outward) r = shrinks ? ceil_(x) : floor_(x);
      else if constexpr (nearest == ResizeNearest::round_prefer_floor) r = ceil_(x - 0.5f);
      else r = floor_(x + 0.5f);
      return clamp_index(int64_t(r), size);
    } else {
      return clamp_index(first + t, size);
    }
  }
  AITC_FN float weight(int t) const { return raw(t) / total; }

 private:
  AITC_FN float raw(int t) const {
    if constexpr (mode == ResizeMode::nearest) return 1;
    const int64_t place = first + t;
    if (exclude_outside && (place < 0 || place >= size)) return 0;
    float d = (float(place) - x) / stretch;
    d = d < 0 ? -d : d;
    if constexpr (mode == ResizeMode::linear) return d < 1 ? 1 - d : 0.0f;
    else return d <= 1 ? ((cubic_a + 2) * d - (cubic_a + 3)) * d * d + 1
                       : d < 2 ? ((cubic_a * d - 5 * cubic_a) * d + 8 * cubic_a) * d - 4 * cubic_a : 0.0f;
  }
};

AITC_END
