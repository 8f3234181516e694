// Cost model: how long a launch would take on the chip. Predictions, never measurements of this machine.
//
//   launch 14 us + bytes / rate, or + flops / cube rate where that is longer (fact sheet 6.3)
//
// Sources of the rates (fact sheet 6.1, 6.3; GB/s = 1e9 bytes per second):
//   nz_gb_s         weight streaming of an FP16 NZ matmul. 310B1: 23.4, [1,4096]x[4096,12288] in 4.30 ms.
//                   310B4: 15.85, the middle of 14 (0.5B model) and 17.7 (466.8 MB output matrix, 26.4 ms).
//   nd_gb_s         the ND kernel of M % 16 == 0. 310B1: 12.9, the same matrix in 7.8 ms at M = 16.
//                   310B4: not measured; the 310B1's ratio to NZ is used.
//   transdata_gb_s  what ND operands pay per call before the NZ kernel runs (rule M5), per byte converted.
//                   310B1: 12.3 = 100.7 MB in 12.49 - 4.30 ms. 310B4: 5.45 = 466.8 MB in 85.7 ms.
//   vector_gb_s     element-wise ops, read plus written. 310B1: 44 (copy of 22.1 each way); 310B4: scaled
//   like NZ. cube_tflops     8 % of the FP16 peak (4.1 and 10): composed prefill reached 6-9 %.
//
// The toolkit release is a knob because releases may come to differ; no source measured a difference yet.
//
// Self-contained (standard library only): a test or tool may compile it alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sim {

struct CostKnobs {
    double launch_us      = 14.0; // queued; 31 when the host waits after each
    double nz_gb_s        = 0;
    double nd_gb_s        = 0;
    double transdata_gb_s = 0;
    double vector_gb_s    = 0;
    double cube_tflops    = 0;
};

// chip "310B4" or "310B1", cann "8.3" or "8.5". Throws std::invalid_argument for another name.
CostKnobs cost_knobs(std::string_view chip, std::string_view cann);

struct MatmulCost {
    int64_t m = 0, n = 0, k = 0;
    int64_t batch          = 1;
    bool nz_weight         = false; // mat2 is stored as FRACTAL_NZ
    bool nd_kernel         = false; // rule M4 holds: nothing is converted
    uint64_t copied_bytes  = 0;     // read and written by casts and contiguous copies of operands
    int64_t weight_batches = 0;     // distinct mat2 matrices when fewer than `batch`; 0: one each
};

uint64_t matmul_bytes(const MatmulCost & c); // moved by the multiplication itself, once per operand
double matmul_us(const CostKnobs & knobs, const MatmulCost & c);
double vector_us(const CostKnobs & knobs, uint64_t bytes);
double pack_weight_us(const CostKnobs & knobs, uint64_t bytes); // aclnnTransMatmulWeight

// A step of a model as a list of launches, for predictions without running anything.
struct Call {
    enum class Kind { vector, matmul };
    Kind kind      = Kind::vector;
    int64_t count  = 1;
    uint64_t bytes = 0; // Kind::vector
    MatmulCost matmul;  // Kind::matmul
};

struct Prediction {
    int64_t launches = 0;
    uint64_t bytes   = 0;
    double us        = 0;
};

Prediction predict(const CostKnobs & knobs, const std::vector<Call> & calls);

} // namespace sim
