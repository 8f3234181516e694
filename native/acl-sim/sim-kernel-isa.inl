// Inner loops that are compiled once per instruction set: included by sim-kernel-isa.cpp (baseline, NEON on
// aarch64) and sim-kernel-isa-v3.cpp (AVX2, FMA, F16C). The includer defines SIM_ISA, the namespace.
// No function of the standard library is used here: a comdat copy compiled for AVX2 could be chosen by the
// linker for code that runs on an older CPU.
//
// Matrix loops keep FP32 sums (the chip's L0C) over FP16 operands; the caller rounds once at the end.

namespace sim {
namespace SIM_ISA {
namespace {

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v8a __attribute__((vector_size(32)));

#if defined(__F16C__)
#define LOAD8(to, from) (to) = (v8a) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (from)))
#elif defined(__aarch64__)
#define LOAD8(to, from)                                                                                      \
    do {                                                                                                     \
        const float16x8_t load8_h = vreinterpretq_f16_u16(vld1q_u16(from));                                  \
        float load8_f[8];                                                                                    \
        vst1q_f32(load8_f, vcvt_f32_f16(vget_low_f16(load8_h)));                                             \
        vst1q_f32(load8_f + 4, vcvt_high_f32_f16(load8_h));                                                  \
        (to) = *(const v8 *) load8_f;                                                                        \
    } while (false)
#else
#define LOAD8(to, from)                                                                                      \
    do {                                                                                                     \
        float load8_f[8];                                                                                    \
        for (int load8_i = 0; load8_i < 8; ++load8_i) {                                                      \
            load8_f[load8_i] = fp16_to_float((from)[load8_i]);                                               \
        }                                                                                                    \
        (to) = *(const v8 *) load8_f;                                                                        \
    } while (false)
#endif

inline float sum8(const v8a & v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

void row_to_float(const uint16_t * from, float * to, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        v8a x;
        LOAD8(x, from + i);
        *(v8 *) (to + i) = x;
    }
    for (; i < n; ++i) {
        to[i] = fp16_to_float(from[i]);
    }
}

void row_to_fp16(const float * from, uint16_t * to, int64_t n) {
    int64_t i = 0;
#if defined(__F16C__)
    const __m256 high = _mm256_set1_ps(kFp16Max), low = _mm256_set1_ps(-kFp16Max);
    for (; i + 8 <= n; i += 8) {
        const __m256 x       = _mm256_loadu_ps(from + i);
        const __m256 clamped = _mm256_min_ps(_mm256_max_ps(x, low), high);
        const __m256 no_nan  = _mm256_and_ps(clamped, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
        _mm_storeu_si128((__m128i *) (to + i), _mm256_cvtps_ph(no_nan, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; ++i) {
        to[i] = float_to_fp16(from[i]);
    }
}

// One row of A against four rows of B that are contiguous along K, B converted on the way.
void dot4_fp16(const float * a, const uint16_t * const b[4], int64_t k, float out[4]) {
    v8a s0 = {}, s1 = {}, s2 = {}, s3 = {};
    int64_t i = 0;
    for (; i + 8 <= k; i += 8) {
        const v8a x = *(const v8 *) (a + i);
        v8a w;
        LOAD8(w, b[0] + i);
        s0 += x * w;
        LOAD8(w, b[1] + i);
        s1 += x * w;
        LOAD8(w, b[2] + i);
        s2 += x * w;
        LOAD8(w, b[3] + i);
        s3 += x * w;
    }
    out[0] = sum8(s0);
    out[1] = sum8(s1);
    out[2] = sum8(s2);
    out[3] = sum8(s3);
    for (; i < k; ++i) {
        for (int j = 0; j < 4; ++j) {
            out[j] += a[i] * fp16_to_float(b[j][i]);
        }
    }
}

// c[R][4] += a[R][k] . b[4][k]; k is a multiple of 8, rows padded with zeros.
template <int R>
void tile(const float * a, int64_t lda, const float * b, int64_t ldb, float * c, int64_t ldc, int64_t k) {
    v8a s[R][4] = {};
    for (int64_t i = 0; i < k; i += 8) {
        const v8a b0 = *(const v8 *) (b + i), b1 = *(const v8 *) (b + ldb + i);
        const v8a b2 = *(const v8 *) (b + 2 * ldb + i), b3 = *(const v8 *) (b + 3 * ldb + i);
        for (int r = 0; r < R; ++r) {
            const v8a x = *(const v8 *) (a + r * lda + i);
            s[r][0] += x * b0;
            s[r][1] += x * b1;
            s[r][2] += x * b2;
            s[r][3] += x * b3;
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int j = 0; j < 4; ++j) {
            c[r * ldc + j] += sum8(s[r][j]);
        }
    }
}

void multiply_packed(const float * a, int64_t lda, const float * b, int64_t ldb, float * c, int64_t ldc,
                     int64_t m, int64_t n, int64_t k) {
    int64_t i = 0;
    for (; i + 2 < m; i += 3) {
        for (int64_t j = 0; j < n; j += 4) {
            tile<3>(a + i * lda, lda, b + j * ldb, ldb, c + i * ldc + j, ldc, k);
        }
    }
    for (; i < m; ++i) {
        for (int64_t j = 0; j < n; j += 4) {
            tile<1>(a + i * lda, lda, b + j * ldb, ldb, c + i * ldc + j, ldc, k);
        }
    }
}

// A block of 16 columns of a [K,N] weight in FRACTAL_NZ: k rows of 16 contiguous FP16.
template <int R>
void strip(const float * a, int64_t lda, const uint16_t * b, int64_t k, float * c, int64_t ldc) {
    v8a s[R][2] = {};
    for (int64_t i = 0; i < k; ++i) {
        v8a w0, w1;
        LOAD8(w0, b + i * 16);
        LOAD8(w1, b + i * 16 + 8);
        for (int r = 0; r < R; ++r) {
            const float x = a[r * lda + i];
            s[r][0] += w0 * x;
            s[r][1] += w1 * x;
        }
    }
    for (int r = 0; r < R; ++r) {
        *(v8 *) (c + r * ldc)     = s[r][0];
        *(v8 *) (c + r * ldc + 8) = s[r][1];
    }
}

// One row of A hides its latency behind four chains of k.
template <> void strip<1>(const float * a, int64_t, const uint16_t * b, int64_t k, float * c, int64_t) {
    v8a s[4][2] = {};
    for (int64_t i = 0; i < k; i += 4) { // K is a multiple of 16 in this format
        for (int u = 0; u < 4; ++u) {
            v8a w0, w1;
            LOAD8(w0, b + (i + u) * 16);
            LOAD8(w1, b + (i + u) * 16 + 8);
            s[u][0] += w0 * a[i + u];
            s[u][1] += w1 * a[i + u];
        }
    }
    *(v8 *) c       = (s[0][0] + s[1][0]) + (s[2][0] + s[3][0]);
    *(v8 *) (c + 8) = (s[0][1] + s[1][1]) + (s[2][1] + s[3][1]);
}

void multiply_strip(const float * a, int64_t lda, const uint16_t * b, float * c, int64_t ldc, int64_t m,
                    int64_t k) {
    int64_t i = 0;
    for (; i + 4 <= m; i += 4) {
        strip<4>(a + i * lda, lda, b, k, c + i * ldc, ldc);
    }
    for (; i + 2 <= m; i += 2) {
        strip<2>(a + i * lda, lda, b, k, c + i * ldc, ldc);
    }
    for (; i < m; ++i) {
        strip<1>(a + i * lda, lda, b, k, c + i * ldc, ldc);
    }
}

// A packed [N,K] weight in FRACTAL_NZ: for one block of 16 k, n rows of 16 contiguous FP16.
// sums[m][n][8] keeps eight partial sums per output, folded by the caller with fold_sums.
void add_block(const float * a, int64_t lda, const uint16_t * b, float * sums, int64_t m, int64_t n) {
    for (int64_t r = 0; r < m; ++r) {
        const v8a x0 = *(const v8 *) (a + r * lda), x1 = *(const v8 *) (a + r * lda + 8);
        float * s = sums + r * n * 8;
        for (int64_t j = 0; j < n; ++j) {
            v8a w0, w1;
            LOAD8(w0, b + j * 16);
            LOAD8(w1, b + j * 16 + 8);
            v8a t = *(const v8 *) (s + j * 8);
            t += x0 * w0;
            t += x1 * w1;
            *(v8 *) (s + j * 8) = t;
        }
    }
}

void fold_sums(const float * sums, float * c, int64_t n) {
    for (int64_t j = 0; j < n; ++j) {
        const v8a s = *(const v8 *) (sums + j * 8);
        c[j]        = sum8(s);
    }
}

#undef LOAD8

} // namespace

extern const IsaLoops loops;
const IsaLoops loops = {row_to_float,   row_to_fp16, dot4_fp16, multiply_packed,
                        multiply_strip, add_block,   fold_sums};

} // namespace SIM_ISA
} // namespace sim
