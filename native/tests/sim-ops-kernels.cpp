// The parts below the operators: number formats exhaustively, matmul loops of both instruction sets, cost
// model.
#include "check.h"
#include "sim-cost.h"
#include "sim-fp16.h"
#include "sim-kernel-isa.h"
#include "sim-kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

using namespace sim;

namespace {

// The FP16 number nearest to x by search over all of them; ties to the even pattern.
uint16_t nearest_by_search(float x) {
    uint16_t best = 0;
    double error  = INFINITY;
    for (uint32_t h = 0; h < 0x7c00; ++h) {
        const double d = std::fabs((double) std::fabs(x) - (double) fp16_to_float((uint16_t) h));
        if (d < error || (d == error && (h & 1) == 0)) {
            best  = (uint16_t) h;
            error = d;
        }
    }
    return (uint16_t) (best | (std::signbit(x) ? 0x8000 : 0));
}

} // namespace

TEST_CASE(fp16_survives_the_way_there_and_back) {
    for (uint32_t h = 0; h < 0x10000; ++h) {
        const float x = fp16_to_float((uint16_t) h);
        if ((h & 0x7fff) < 0x7c00) {
            CHECK_EQ(float_to_fp16(x), (uint16_t) h);
            const int exponent = (int) (h >> 10 & 31);
            const double want  = exponent == 0 ? std::ldexp(h & 0x3ff, -24)
                                               : std::ldexp(1024 + (int) (h & 0x3ff), exponent - 25);
            CHECK_EQ((double) std::fabs(x), want);
        } else if ((h & 0x7fff) == 0x7c00) {
            CHECK(std::isinf(x));
        } else {
            CHECK(std::isnan(x));
        }
    }
}

TEST_CASE(fp16_rounds_to_nearest_even_and_saturates) {
    std::mt19937 random(5);
    std::vector<float> some = {0.0F,     -0.0F,   65504.0F, 65519.9F, 65520.0F,
                               1e9F,     -1e9F,   0x1p-24F, 0x1p-25F, 0x1.8p-24F,
                               0x1p-14F, 2049.0F, 2051.0F,  -2049.5F, 1.0009766F};
    for (int i = 0; i < 60; ++i) {
        some.push_back(std::ldexp((float) random() / 4294967296.0F - 0.5F, (int) (random() % 40) - 25));
    }
    for (const float x : some) {
        CHECK_EQ(float_to_fp16(x), nearest_by_search(x));
    }
    CHECK_EQ(float_to_fp16(INFINITY), 0x7bff);
    CHECK_EQ(float_to_fp16(-INFINITY), 0xfbff);
    CHECK_EQ(float_to_fp16(NAN), 0);
    CHECK_EQ(saturate_float(NAN), 0.0F);
    CHECK_EQ(saturate_float(-INFINITY), -FLT_MAX);
}

TEST_CASE(vector_conversions_equal_scalar_ones) {
    std::mt19937 random(6);
    std::vector<float> x(100003), back(x.size());
    for (float & v : x) {
        v = float_of((uint32_t) random()); // any bits: NaN, infinities, denormals
    }
    std::vector<uint16_t> h(x.size());
    float_row_to_fp16(x.data(), h.data(), (int64_t) x.size());
    fp16_row_to_float(h.data(), back.data(), (int64_t) x.size());
    for (size_t i = 0; i < x.size(); ++i) {
        CHECK_EQ(h[i], float_to_fp16(x[i]));
        CHECK_EQ(back[i], fp16_to_float(h[i]));
    }
}

TEST_CASE(cost_model_repeats_published_rows) { // fact sheet 6.1
    const CostKnobs b1 = cost_knobs("310B1", "8.5"), b4 = cost_knobs("310B4", "8.5");
    MatmulCost nz;
    nz.m         = 1;
    nz.k         = 4096;
    nz.n         = 12288;
    nz.nz_weight = true;
    CHECK_NEAR(matmul_us(b1, nz), 4300, 0.05 * 4300); // NZ, measured 4.30 ms
    MatmulCost nd = nz;
    nd.nz_weight  = false;
    CHECK_NEAR(matmul_us(b1, nd), 12490, 0.05 * 12490); // ND with conversions, 12.49 ms
    nd.m         = 16;
    nd.nd_kernel = true;
    CHECK_NEAR(matmul_us(b1, nd), 7800, 0.05 * 7800);               // ND kernel at M = 16, 7.8 ms
    CHECK_NEAR(pack_weight_us(b4, 466800000), 85700, 0.02 * 85700); // one output matrix at load, 85.7 ms
    CHECK_NEAR(vector_us(b1, 24576), 14, 1);                        // a small op, queued
    CHECK(vector_us(b4, 1 << 20) > vector_us(b1, 1 << 20));
    bool refused = false;
    try {
        cost_knobs("310P", "8.5");
    } catch (const std::invalid_argument &) {
        refused = true;
    }
    CHECK(refused);
}

TEST_CASE(cost_model_adds_a_pattern_up) {
    const CostKnobs knobs = cost_knobs("310B4", "8.5");
    Call small, product;
    small.count              = 10;
    small.bytes              = 1000;
    product.kind             = Call::Kind::matmul;
    product.count            = 2;
    product.matmul.m         = 1;
    product.matmul.n         = 4864;
    product.matmul.k         = 896;
    product.matmul.nz_weight = true;
    const Prediction p       = predict(knobs, {small, product});
    CHECK_EQ(p.launches, 12);
    CHECK_NEAR(p.us, 10 * vector_us(knobs, 1000) + 2 * matmul_us(knobs, product.matmul), 1e-6);
    CHECK_EQ(p.bytes, 10000u + 2u * matmul_bytes(product.matmul));
}

TEST_CASE(threads_share_work_without_gaps) {
    for (const int threads : {1, 2, 5}) {
        set_kernel_threads(threads);
        for (const int64_t n : {0, 1, 7, 1000}) {
            std::vector<int> seen((size_t) n, 0);
            parallel_for(n, 1, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    ++seen[(size_t) i];
                }
            });
            CHECK(std::all_of(seen.begin(), seen.end(), [](int k) { return k == 1; }));
        }
    }
}

TEST_MAIN()
