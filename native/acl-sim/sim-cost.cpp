#include "sim-cost.h"

#include <algorithm>
#include <stdexcept>

namespace sim {
namespace {

double us_at(double bytes, double gb_s) {
    return bytes / (gb_s * 1e3);
}

uint64_t up16(int64_t n) {
    return (uint64_t) ((n + 15) / 16 * 16);
}

} // namespace

CostKnobs cost_knobs(std::string_view chip, std::string_view cann) {
    if (cann != "8.3" && cann != "8.5") {
        throw std::invalid_argument("cost model: toolkit '" + std::string(cann) + "' is not 8.3 or 8.5");
    }
    CostKnobs knobs;
    if (chip == "310B4") {
        knobs.nz_gb_s        = 15.85;
        knobs.nd_gb_s        = 15.85 * 12.9 / 23.4;
        knobs.transdata_gb_s = 5.45;
        knobs.vector_gb_s    = 44.0 * 15.85 / 23.4;
        knobs.cube_tflops    = 4.1 * 0.08;
    } else if (chip == "310B1") {
        knobs.nz_gb_s        = 23.4;
        knobs.nd_gb_s        = 12.9;
        knobs.transdata_gb_s = 12.3;
        knobs.vector_gb_s    = 44.0;
        knobs.cube_tflops    = 10.0 * 0.08;
    } else {
        throw std::invalid_argument("cost model: chip '" + std::string(chip) + "' is not 310B4 or 310B1");
    }
    return knobs;
}

uint64_t matmul_bytes(const MatmulCost & c) {
    const uint64_t weights = (uint64_t) (c.weight_batches > 0 ? c.weight_batches : c.batch);
    const uint64_t batch   = (uint64_t) c.batch;
    const uint64_t m = (uint64_t) c.m, n = (uint64_t) c.n, k = (uint64_t) c.k;
    return 2 * (batch * m * k + weights * k * n + batch * m * n);
}

double matmul_us(const CostKnobs & knobs, const MatmulCost & c) {
    const bool streams_nz = c.nz_weight || !c.nd_kernel;
    double us             = us_at((double) matmul_bytes(c), streams_nz ? knobs.nz_gb_s : knobs.nd_gb_s);
    const double flops    = 2.0 * (double) up16(c.m) * (double) c.n * (double) c.k * (double) c.batch;
    us                    = std::max(us, flops / (knobs.cube_tflops * 1e6));
    if (!c.nd_kernel) {
        // Rules M5 and M6: what is not NZ yet is converted, on every call. The measured rates are of whole
        // calls with one tile of rows, so that tile's conversion is in them already.
        const uint64_t weights = (uint64_t) (c.weight_batches > 0 ? c.weight_batches : c.batch);
        const uint64_t rows    = (uint64_t) c.batch * up16(c.m) - up16(1);
        const uint64_t converted =
            rows * (uint64_t) (c.k + c.n) + (c.nz_weight ? 0 : weights * (uint64_t) c.k * (uint64_t) c.n);
        us += us_at(2.0 * (double) converted, knobs.transdata_gb_s);
    }
    return knobs.launch_us + us + us_at((double) c.copied_bytes, knobs.vector_gb_s);
}

double vector_us(const CostKnobs & knobs, uint64_t bytes) {
    return knobs.launch_us + us_at((double) bytes, knobs.vector_gb_s);
}

double pack_weight_us(const CostKnobs & knobs, uint64_t bytes) {
    return knobs.launch_us + us_at((double) bytes, knobs.transdata_gb_s);
}

Prediction predict(const CostKnobs & knobs, const std::vector<Call> & calls) {
    Prediction total;
    for (const Call & call : calls) {
        const bool matmul = call.kind == Call::Kind::matmul;
        const double us   = matmul ? matmul_us(knobs, call.matmul) : vector_us(knobs, call.bytes);
        total.launches += call.count;
        total.bytes += (uint64_t) call.count * (matmul ? matmul_bytes(call.matmul) : call.bytes);
        total.us += (double) call.count * us;
    }
    return total;
}

} // namespace sim
