// Fibers: each lane of a block runs on a stack of its own and hands the processor back when it has to wait.
#pragma once
#include "report.h"
#include <stdint.h>
#include <sys/mman.h>

#include <new>
#include <utility>
#include <vector>

#include "config.h"

#if defined(__x86_64__) && !defined(AITC_EMULATOR_UCONTEXT)  // the latter: to try what other processors do
#define AITC_EMULATOR_SWITCH 1
#else
#include <ucontext.h>
#endif
#ifdef AITC_EMULATOR_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void** fake, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake, const void** bottom, size_t* size);
void __asan_unpoison_memory_region(void const volatile* address, size_t size);
void __asan_poison_memory_region(void const volatile* address, size_t size);
}
#endif

#ifdef AITC_EMULATOR_SWITCH
// Saves the callee-saved registers on the running stack, its top in *save, and goes on from `load`.
extern "C" void aitc_emulator_switch(void** save, void* load);
asm(".text\n.weak aitc_emulator_switch\n.hidden aitc_emulator_switch\n.type aitc_emulator_switch,@function\n"
    "aitc_emulator_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size aitc_emulator_switch,.-aitc_emulator_switch\n");
#endif

namespace emu AITC_EMULATOR_HIDDEN {

// One side of a switch: a suspended stack.
struct Context {
#ifdef AITC_EMULATOR_SWITCH
  void* top = nullptr;
#else
  ucontext_t registers;
#endif
#ifdef AITC_EMULATOR_ASAN
  void* fake = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;
#endif
};

// `last`: the stack that is left will not be entered again.
inline void switch_context(Context& from, Context& to, bool last = false) {
#ifdef AITC_EMULATOR_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake, to.bottom, to.size);
#endif
  (void)last;
#ifdef AITC_EMULATOR_SWITCH
  aitc_emulator_switch(&from.top, to.top);
#else
  swapcontext(&from.registers, &to.registers);
#endif
#ifdef AITC_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}

// Makes `context` begin with entry() on `stack` (its lowest byte). `stagger` moves the tops apart: stacks that lie a
// power of two apart would fight for the same cache sets.
inline void start_context(Context& context, char* stack, int stagger, void (*entry)()) {
#ifdef AITC_EMULATOR_ASAN
  context.fake = nullptr;
  context.bottom = stack;
  context.size = kStack;
  __asan_unpoison_memory_region(stack, kStack);
#endif
#ifdef AITC_EMULATOR_SWITCH
  const uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + kStack - 256 - size_t(stagger) * 192) & ~uintptr_t(15);
  void** place = reinterpret_cast<void**>(top);
  place[0] = reinterpret_cast<void*>(entry);
  place[1] = nullptr;
  place -= 6;
  for (int i = 0; i < 6; ++i) place[i] = nullptr;
  context.top = place;
#else
  (void)stagger;
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = stack;
  context.registers.uc_stack.ss_size = kStack;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, entry, 0);
#endif
}

// Stacks with a page below each that faults, kept from launch to launch.
class Stacks {
 public:
  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() {
    for (char* s : stacks_) munmap(s - kGuard, kStack + kGuard);
  }
  char* operator[](size_t i) {
    while (stacks_.size() <= i) {
      void* p =
          mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) throw std::bad_alloc();
      mprotect(p, kGuard, PROT_NONE);
      stacks_.push_back(static_cast<char*>(p) + kGuard);
    }
    return stacks_[i];
  }
  // Gives back all but the first `count`: each is two mappings, a process has about 65,000, and every kernel's library
  // keeps stacks of its own.
  void keep(size_t count) {
    for (; stacks_.size() > count; stacks_.pop_back()) munmap(stacks_.back() - kGuard, kStack + kGuard);
  }

 private:
  static constexpr size_t kGuard = 4096;
  std::vector<char*> stacks_;
};

}  // namespace emu
