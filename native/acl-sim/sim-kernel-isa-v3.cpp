// Inner loops for x86-64-v3 CPUs. Empty on other targets; see sim-kernel-isa.inl.
#if defined(__x86_64__) && defined(__AVX2__) && defined(__F16C__)

#include "sim-fp16.h"
#include "sim-kernel-isa.h"

#include <immintrin.h>

#define SIM_ISA v3
#include "sim-kernel-isa.inl"

#endif
