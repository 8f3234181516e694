// The chip's number formats: FP16 storage, round to nearest even, saturation instead of infinity, NaN becomes
// 0 (fact sheet 4.8 and section 8 rule 9; the overflow mode of a 310B is saturation and cannot be changed).
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

namespace sim {

constexpr float kFp16Max = 65504.0f;

inline uint32_t bits_of(float x) {
    uint32_t u;
    std::memcpy(&u, &x, sizeof u);
    return u;
}

inline float float_of(uint32_t u) {
    float x;
    std::memcpy(&x, &u, sizeof x);
    return x;
}

// Exact, denormals included. A stored infinity stays one: what is written decides, not what is read.
inline float fp16_to_float(uint16_t h) {
    const uint32_t magnitude = (uint32_t) (h & 0x7fff) << 13;
    const uint32_t sign      = (uint32_t) (h & 0x8000) << 16;
    // 2^112 moves the exponent bias from 15 to 127 and turns FP16 denormals into normal numbers.
    const uint32_t finite  = bits_of(float_of(magnitude) * 0x1p112f);
    const uint32_t special = magnitude | 0x7f800000u;
    return float_of(sign | (magnitude >= 0x0f800000u ? special : finite));
}

// What an NPU instruction may write: no infinity, no NaN.
inline float saturate_float(float x) {
    const float high = x > FLT_MAX ? FLT_MAX : x;
    const float both = high < -FLT_MAX ? -FLT_MAX : high;
    return both == both ? both : 0.0f;
}

inline uint16_t float_to_fp16(float x) {
    const uint32_t sign = bits_of(x) & 0x80000000u;
    const float a       = float_of(bits_of(x) & 0x7fffffffu);
    const float b       = a > kFp16Max ? kFp16Max : a; // NaN compares false and is dealt with below
    const uint32_t u    = bits_of(b);
    // Below 2^-14 the FP16 is denormal: adding 0.5 puts the rounding point where the hardware would.
    const uint32_t denormal = bits_of(b + 0.5f) - 0x3f000000u;
    const uint32_t normal   = (u + 0xc8000fffu + ((u >> 13) & 1u)) >> 13;
    const uint32_t h        = u < 0x38800000u ? denormal : normal;
    return (uint16_t) (a == a ? (h | (sign >> 16)) : 0u);
}

// Whole rows, vectorised where the CPU can. `to_fp16` saturates as above.
void fp16_row_to_float(const uint16_t * from, float * to, int64_t n);
void float_row_to_fp16(const float * from, uint16_t * to, int64_t n);

} // namespace sim
