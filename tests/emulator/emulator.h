// Runs aitc's GPU kernels on the CPU: the third back end of aitc/gpu/core/gpu.h. Header only, C++17, g++ or clang++.
//
// Every thread of a block is a fiber. One that reaches an operation of its whole warp (a shuffle, a matrix instruction)
// parks its registers; when the other lanes stand at the same place a resolver runs once over all of them. A launch
// that does what hardware forbids or leaves undefined throws emu::Error with file, line and lane. README.md lists what
// is detected.
#pragma once
#include "config.h"
#include "report.h"
#include "dependency.h"
#include "warp.h"
#include "ubsan.h"
#include "vector_types.h"
#include "launch.h"
