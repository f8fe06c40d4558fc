// A lane that touches memory nobody has (a page that faults) ends the launch with file, line and lane instead of the
// process. x86-64 Linux only, and not under AddressSanitizer, which reports such accesses itself.
#pragma once
#include "machine.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(AITC_EMULATOR_ASAN)
#define AITC_EMULATOR_FAULTS 1
#include <signal.h>
#include <ucontext.h>
#endif

namespace emu AITC_EMULATOR_HIDDEN {
#ifdef AITC_EMULATOR_FAULTS

struct Fault {
  uintptr_t address = 0, instruction = 0;
};
inline thread_local Fault fault;

[[noreturn]] inline void fault_landing() {
  void* instruction = reinterpret_cast<void*>(fault.instruction);
  fail(format("access to invalid address %p", reinterpret_cast<void*>(fault.address)) + source_lines(&instruction, 1),
       running.lane->site.file ? running.lane->site.named("(the last operation before it)")
                               : Site{"?", 0, "(before any operation)"});
}

inline void on_fault(int signal, siginfo_t* info, void* context) {
  if (!running.lane) {  // not ours: the default action, at the same instruction
    ::signal(signal, SIG_DFL);
    return;
  }
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  fault.address = reinterpret_cast<uintptr_t>(info->si_addr);
  fault.instruction = uintptr_t(registers[REG_RIP]);
  Dl_info here, there;  // in memcpy or its like, which keep no frame: its caller
  if (dladdr(reinterpret_cast<void*>(&on_fault), &here) && dladdr(reinterpret_cast<void*>(fault.instruction), &there) &&
      here.dli_fbase != there.dli_fbase)
    fault.instruction = *reinterpret_cast<uintptr_t*>(registers[REG_RSP]) - 1;
  // The lane is given up, so its stack is free for the report.
  registers[REG_RSP] = greg_t((reinterpret_cast<uintptr_t>(running.lane->stack) + kStack - 256) & ~uintptr_t(15)) - 8;
  registers[REG_RIP] = greg_t(reinterpret_cast<uintptr_t>(&fault_landing));
}

// Catches faults of this thread's lanes while it lives.
class FaultGuard {
 public:
  FaultGuard() : stack_(64 * 1024) {
    stack_t alternative = {};
    alternative.ss_sp = stack_.data();
    alternative.ss_size = stack_.size();
    sigaltstack(&alternative, &stack_before_);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &segv_before_);
    sigaction(SIGBUS, &action, &bus_before_);
  }
  ~FaultGuard() {
    sigaction(SIGSEGV, &segv_before_, nullptr);
    sigaction(SIGBUS, &bus_before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

 private:
  std::vector<char> stack_;
  stack_t stack_before_ = {};
  struct sigaction segv_before_ = {}, bus_before_ = {};
};

#else
struct FaultGuard {
  ~FaultGuard() {}
};
#endif
}  // namespace emu
