"""Which configuration a kernel runs in: measured tables first, then the kernel's own cost model."""
