// Inner loops for any CPU of the target (NEON on aarch64), and the choice between them and the x86-64-v3 ones.
#include "sim-kernel-isa.h"

#include "sim-fp16.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#define SIM_ISA baseline
#include "sim-kernel-isa.inl"

namespace sim {

#if defined(__x86_64__)
namespace v3 {
extern const IsaLoops loops;
}
#endif

const IsaLoops & isa() {
#if defined(__x86_64__)
    static const bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                               __builtin_cpu_supports("f16c");
    return has_v3 ? v3::loops : baseline::loops;
#else
    return baseline::loops;
#endif
}

void fp16_row_to_float(const uint16_t * from, float * to, int64_t n) { isa().row_to_float(from, to, n); }
void float_row_to_fp16(const float * from, uint16_t * to, int64_t n) { isa().row_to_fp16(from, to, n); }

} // namespace sim
