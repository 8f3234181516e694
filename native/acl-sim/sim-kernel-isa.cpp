// Inner loops for any CPU of the target (NEON on aarch64), and the choice between them and the x86-64-v3
// ones.
#include "sim-kernel-isa.h"

#include "sim-fp16.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#define SIM_ISA baseline
#include "sim-kernel-isa.inl"

namespace sim {

#if defined(__x86_64__)
namespace v3 {
extern const IsaLoops loops;
}
#endif

#if defined(__x86_64__)
namespace {

bool has_v3() {
    constexpr unsigned kF16c = 1U << 29; // leaf 1, ECX; not a name that every compiler's cpu_supports knows
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0 && __builtin_cpu_supports("avx2") != 0 &&
           __builtin_cpu_supports("fma") != 0;
}

} // namespace
#endif

const IsaLoops & isa() {
#if defined(__x86_64__)
    static const bool fast = has_v3();
    return fast ? v3::loops : baseline::loops;
#else
    return baseline::loops;
#endif
}

void fp16_row_to_float(const uint16_t * from, float * to, int64_t n) {
    isa().row_to_float(from, to, n);
}
void float_row_to_fp16(const float * from, uint16_t * to, int64_t n) {
    isa().row_to_fp16(from, to, n);
}

} // namespace sim
