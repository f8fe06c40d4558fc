// Programmatic dependent launch: a launch that may begin while the one before it still runs.
//
// Here it begins before the other has begun at all, which then runs when a lane first waits for it, and no earlier than
// that: what a kernel reads before it waits is old, and what it writes then is written over.
#pragma once
#include "machine.h"

namespace emu AITC_EMULATOR_HIDDEN {

// griddepcontrol.wait: until the launch before this one has ended.
inline void grid_dependency_wait(Site site = Site::here()) {
  site = site.named("griddepcontrol.wait");
  self(site);
  Worker& worker = *running.worker;
  if (!worker.dependency || worker.dependency->done) return;
  worker.wants_dependency = true;
  wait_until([](const Lane&) { return running.worker->dependency->done.load(); }, nullptr, 0, site);
}
inline void grid_dependency_launch() {}

}  // namespace emu
