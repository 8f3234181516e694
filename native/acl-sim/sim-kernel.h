// Kernels of the simulator: what runs on a stream's worker thread, on translated addresses, never on the
// host's.
//
// A Span is a strided view of memory, outermost dimension first as in an aclTensor, strides in elements.
// Kernels trust their spans: phase 1 (aclnn-*.cpp) has checked shapes, dtypes and bounds.
//
// Arithmetic follows the chip: FP16 and FP32 are computed in FP32 and rounded once when stored (nearest
// even), a result that would be infinite is stored as the largest finite value, NaN as 0. Integers wrap.
#pragma once

#include "acl310b/acl-api.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace sim {

constexpr int kMaxDims = 8; // the limit of aclnn operators

struct Span {
    uint8_t * data           = nullptr; // element 0 of the view
    aclDataType dtype        = ACL_FLOAT;
    int rank                 = 0;
    int64_t ne[kMaxDims]     = {};
    int64_t stride[kMaxDims] = {};

    int64_t n_elements() const;
    bool is_contiguous() const;
};

int64_t dtype_size(aclDataType dtype); // bytes; 0 for types without a whole number of bytes

// Runs body(begin, end) over 0..n on the configured number of threads; pieces are at least `grain` long.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)> & body);
void set_kernel_threads(int n_threads);

// ---- element by element (sim-kernel-map.cpp); operands broadcast to y's shape ----
enum class Unary {
    identity,
    neg,
    abs,
    exp,
    log,
    sqrt,
    rsqrt,
    sin,
    cos,
    sigmoid,
    tanh,
    relu,
    silu,
    gelu_erf,
    gelu_tanh,
    scale_add,  // x * p0 + p1
    clamp,      // min(max(x, p0), p1)
    leaky_relu, // x > 0 ? x : p0 * x
    hardswish,
    elu,        // elu: p0 = alpha, p1 = scale, p2 = input scale
    pow_scalar, // x ^ p0
    scalar_pow, // p0 ^ x
    less,
    greater,
    equal, // against p0, result BOOL
};
struct UnaryParams {
    double p0 = 0, p1 = 0, p2 = 0;
};
enum class Binary { add, sub, mul, div, pow, less, greater, equal }; // add, sub: a + alpha * b

void map_unary(Unary op, const UnaryParams & params, const Span & x, const Span & y);
void map_binary(Binary op, double alpha, const Span & a, const Span & b, const Span & y);
void fill(const Span & y, double value);
void fill_where(const Span & y, const Span & mask, double value);
// y[i] = start + i * step
void arange(const Span & y, double start, double step);
// Keeps elements with column - row <= diagonal (lower) or >= diagonal (upper) of the last two dims, else 0.
void triangle(const Span & x, const Span & y, int64_t diagonal, bool lower);

// ---- moving bytes (sim-kernel-move.cpp) ----
void copy_elements(const Span & x, const Span & y); // same dtype: bits as they are; else as a cast
void cast(const Span & x, const Span & y);          // float to integer truncates and saturates
// y[.., i, ..] = x[.., index[i], ..] along `dim`; index of any rank takes dim's place in y.
// False when an index is out of range (the chip does not check; the simulator reports it).
bool gather_rows(const Span & x, int dim, const Span & index, const Span & y);
bool put_rows(const Span & x, const std::vector<Span> & indices, const Span & values, bool accumulate);
void roll(const Span & x, const std::vector<int64_t> & shifts, const std::vector<int64_t> & dims,
          const Span & y);
void repeat(const Span & x,
            const Span & y); // y's dims are multiples of x's, ranks equal (leading ones added)

// ---- along a dimension (sim-kernel-reduce.cpp) ----
void softmax(const Span & x, int dim, const Span & y, bool log);
// y has x's rank with the reduced dims of extent 1. divide: mean instead of sum.
void reduce_sum(const Span & x, const Span & y, bool divide);
void layer_norm(const Span & x, int64_t n_norm_dims, const Span * weight, const Span * bias, double eps,
                const Span & y, const Span * mean, const Span * rstd);
// Along the last dim; rstd has it with extent 1.
void rms_norm(const Span & x, const Span & weight, double eps, const Span & y, const Span & rstd);
void arg_max(const Span & x, int dim, const Span * values, const Span & indices); // dim kept with extent 1
void cumsum(const Span & x, int dim, const Span & y);

// ---- matrices (sim-kernel-matmul.cpp) ----
enum class WeightLayout {
    strided, // element (k,n) at k * row + n * col
    nz_kn,   // FRACTAL_NZ of a [K,N] matrix: ((n/16)*(K/16) + k/16)*256 + (k%16)*16 + n%16
    nz_nk,   // FRACTAL_NZ of a [N,K] matrix: ((k/16)*(N/16) + n/16)*256 + (n%16)*16 + k%16
};
struct Matmul {
    int64_t m = 0, n = 0, k = 0;
    Span a, b, y; // rank 2 windows of one matrix each; b: [K,N]
    WeightLayout layout = WeightLayout::strided;
    double alpha = 1, beta = 0;  // y = alpha * a.b + beta * bias
    const Span * bias = nullptr; // [M,N] after broadcasting, rank 2
};
// FP16 operands (FP32 ones are rounded to FP16 first), FP32 sums, one rounding into y. Matrices in `batch`
// are independent of each other.
void matmul(const std::vector<Matmul> & batch);
// In place: a row-major [N,K] FP16 matrix to nz_nk, padded with zeros to multiples of 16 (room is needed).
void pack_nz(uint16_t * data, int64_t n, int64_t k);

} // namespace sim
