// Table of the inner loops that exist once per instruction set (sim-kernel-isa.inl).
#pragma once

#include <cstdint>

namespace sim {

struct IsaLoops {
    void (*row_to_float)(const uint16_t * from, float * to, int64_t n);
    void (*row_to_fp16)(const float * from, uint16_t * to, int64_t n);
    void (*dot4_fp16)(const float * a, const uint16_t * const b[4], int64_t k, float out[4]);
    void (*multiply_packed)(const float * a, int64_t lda, const float * b, int64_t ldb, float * c,
                            int64_t ldc, int64_t m, int64_t n, int64_t k);
    void (*multiply_strip)(const float * a, int64_t lda, const uint16_t * b, float * c, int64_t ldc,
                           int64_t m, int64_t k);
    void (*add_block)(const float * a, int64_t lda, const uint16_t * b, float * sums, int64_t m, int64_t n);
    void (*fold_sums)(const float * sums, float * c, int64_t n);
};

// The best table this CPU can run.
const IsaLoops & isa();

} // namespace sim
