// Words that the operands of contractions are described in, for every back end.
#pragma once
#include "aitc/platform.h"

AITC_BEGIN

// Which axis of a matrix lies contiguous in memory. A is (batch, M, K): K or M; B is (batch, K, N): K or N; `none`: neither has stride 1.
enum class Major { K, M, N, none };

AITC_END
