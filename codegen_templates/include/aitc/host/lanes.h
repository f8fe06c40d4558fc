// Launches side by side: streams that a recorded run forks into and joins from, so that the graph has parallel branches.
#pragma once
#include <memory>
#include <vector>

#include "aitc/host/gpu_api.h"

namespace aitc::host {

// While a run is recorded: which stream a launch goes to. `count` lanes at the most; the first is the stream that is
// recorded.
class Lanes {
 public:
  explicit Lanes(int count) {
    for (int lane = 1; lane < count; ++lane) sides_.emplace_back(new Side);
  }

  // Before a run: what was recorded last does not matter any more.
  void begin() {
    open_ = 0, lane_ = 0;
    first_ = false;
  }
  // `count` lanes begin behind what `main` has so far. The first goes on as if nothing had happened.
  void fork(gpu::Stream main, int count) {
    begin_.record(main);
    for (open_ = 0; open_ + 1 < count; ++open_) begin_.hold_back(sides_[size_t(open_)]->stream.get());
    lane_ = 0;
  }
  // The launches from here on go to this lane.
  void lane(int number) {
    lane_ = number;
    first_ = true;
  }
  // What comes next in `main` waits for all lanes.
  void join(gpu::Stream main) {
    for (int side = 0; side < open_; ++side) {
      sides_[size_t(side)]->end.record(sides_[size_t(side)]->stream.get());
      sides_[size_t(side)]->end.hold_back(main);
    }
    open_ = 0;
    lane(0);
  }

  gpu::Stream stream(gpu::Stream main) const { return lane_ == 0 ? main : sides_[size_t(lane_ - 1)]->stream.get(); }
  // Whether the next launch is the first behind a fork or a join: it waits for all of what is before it.
  bool first() {
    const bool now = first_;
    first_ = false;
    return now;
  }

 private:
  struct Side {
    gpu::OwnStream stream;
    gpu::Mark end{false};
  };
  gpu::Mark begin_{false};
  std::vector<std::unique_ptr<Side>> sides_;
  int open_ = 0;  // side lanes of the fork that is open
  int lane_ = 0;
  bool first_ = false;
};

}  // namespace aitc::host
