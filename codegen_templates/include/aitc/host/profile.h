// What a profile says of launches: sums over its spans.
#pragma once
#include <vector>

#include "aitc/host/abi.h"

namespace aitc::host {

// The mean time of each launch over `runs` runs; one that ran several times in a run counts with their sum.
inline void mean_seconds(const std::vector<aitc_span>& spans, int runs, double* seconds, int launches) {
  for (int i = 0; i < launches; ++i) seconds[i] = 0;
  for (const aitc_span& span : spans) seconds[span.launch] += (span.end - span.begin) / runs;
}

}  // namespace aitc::host
