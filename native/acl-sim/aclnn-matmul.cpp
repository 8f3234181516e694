// libopapi.so: the matmul family, by the rules M1 to M16 of fact sheet 4.2, and the packing of weights (3.4).
//
//   M4  ND kernel, no workspace: M, K, N multiples of 16 and self FP16 already
//   M5  otherwise self, mat2 and the result are converted to FRACTAL_NZ on every call; workspace
//       2 B * (ceil16(M) K + K N + ceil16(M) N)
//   M6  mat2 stored as NZ: only self and the result; M7: FP16 only; M8: M < 16 (16k+1..15 behind a switch)
//   M16 a small M reads a full tile of 16 rows: those rows must be mapped (section 7, trap 8)
#include "acl310b/aclnn-api.h"
#include "sim-core.h"
#include "sim-op.h"

#include <algorithm>
#include <optional>

using namespace sim;

namespace {

constexpr int64_t kTile     = 16;
constexpr int64_t kLongK    = 4096; // M12
constexpr int64_t kManyRows = 64;

int64_t up16(int64_t n) {
    return (n + kTile - 1) / kTile * kTile;
}
bool whole_tiles(int64_t n) {
    return n % kTile == 0;
}

int64_t product(const std::vector<int64_t> & v, size_t from, size_t to) {
    int64_t n = 1;
    for (size_t i = from; i < to; ++i) {
        n *= v[i];
    }
    return n;
}

// Leading dims of x (rank - 2 of them) broadcast to `wanted`: strides, 0 where repeated.
std::vector<int64_t> batch_strides(const TensorShape & x, size_t n_leading,
                                   const std::vector<int64_t> & wanted) {
    std::vector<int64_t> strides(wanted.size(), 0);
    for (size_t i = 0; i < n_leading; ++i) {
        const size_t at = wanted.size() - n_leading + i;
        strides[at]     = x.ne[i] == 1 ? 0 : x.stride[i];
    }
    return strides;
}

// One matrix product in the terms of the rules.
struct Product {
    int64_t m = 0, k = 0, n = 0;
    std::vector<int64_t> batch;                     // leading dims of the result
    std::vector<int64_t> a_batch, b_batch, y_batch; // strides over them
    int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0, y_row = 0, y_col = 0;
    int64_t n_weights   = 1; // distinct mat2 matrices
    bool nz             = false;
    WeightLayout layout = WeightLayout::strided;

    int64_t n_batch() const { return product(batch, 0, batch.size()); }
};

// Rows of x as one dim of extent `m`: possible when leading dims and rows are evenly spaced.
std::optional<int64_t> folded_row_stride(const TensorShape & s) {
    const size_t rows = s.ne.size() - 2;
    int64_t stride    = s.stride[rows];
    int64_t extent    = s.ne[rows];
    bool have         = s.ne[rows] > 1;
    for (size_t d = rows; d-- > 0;) {
        if (s.ne[d] == 1) {
            continue;
        }
        if (have && s.stride[d] != stride * extent) {
            return std::nullopt;
        }
        stride = have ? stride : s.stride[d];
        extent = have ? extent * s.ne[d] : s.ne[d];
        have   = true;
    }
    return stride;
}

// Shapes and layouts of self [.., M, K] x mat2 [.., K, N] = out [.., M, N]; 1-D operands as in numpy.
Product shapes(Plan & p, int a, int b, int y) {
    Product w;
    TensorShape sa = p.shape(a), sb = p.shape(b), sy = p.shape(y);
    p.require(!sa.ne.empty() && !sb.ne.empty() && sa.ne.size() <= 6 && sb.ne.size() <= 6,
              "operands need 1 to 6 dimensions: " + sa.text() + " x " + sb.text());
    const bool vector_a = sa.ne.size() == 1, vector_b = sb.ne.size() == 1;
    if (vector_a) {
        sa.ne.insert(sa.ne.begin(), 1);
        sa.stride.insert(sa.stride.begin(), sa.ne[1] * sa.stride[0]);
        sy.ne.insert(sy.ne.end() - (vector_b ? 0 : 1), 1);
        sy.stride.insert(sy.stride.end() - (vector_b ? 0 : 1), 0);
    }
    if (vector_b) {
        sb.ne.push_back(1);
        sb.stride.push_back(0);
        sy.ne.push_back(1);
        sy.stride.push_back(0);
    }
    const size_t ra = sa.ne.size(), rb = sb.ne.size();
    w.m = sa.ne[ra - 2];
    w.k = sa.ne[ra - 1];
    w.n = sb.ne[rb - 1];
    p.require(sb.ne[rb - 2] == w.k, "inner dims differ: " + p.shape(a).text() + " x " + p.shape(b).text());
    // Leading dims broadcast.
    const size_t la = ra - 2, lb = rb - 2;
    w.batch.assign(std::max(la, lb), 1);
    for (size_t i = 0; i < w.batch.size(); ++i) { // from the last
        const int64_t x = i < la ? sa.ne[la - 1 - i] : 1;
        const int64_t z = i < lb ? sb.ne[lb - 1 - i] : 1;
        p.require(x == z || x == 1 || z == 1,
                  "leading dims do not broadcast: " + p.shape(a).text() + " x " + p.shape(b).text());
        w.batch[w.batch.size() - 1 - i] = x == 1 ? z : x;
    }
    std::vector<int64_t> wanted = w.batch;
    wanted.push_back(w.m);
    wanted.push_back(w.n);
    p.require(sy.ne == wanted,
              "out is " + p.shape(y).text() + " for " + p.shape(a).text() + " x " + p.shape(b).text());
    w.a_row     = sa.stride[ra - 2];
    w.a_col     = sa.stride[ra - 1];
    w.b_row     = sb.stride[rb - 2];
    w.b_col     = sb.stride[rb - 1];
    w.y_row     = sy.stride[sy.ne.size() - 2];
    w.y_col     = sy.stride[sy.ne.size() - 1];
    w.n_weights = product(sb.ne, 0, lb);
    if (lb == 0 && la > 0) {
        // N-D x 2-D is one matmul of all rows, if the rows of self and out lie evenly.
        const auto ra_stride = folded_row_stride(sa), ry_stride = folded_row_stride(sy);
        if (ra_stride && ry_stride) {
            w.m *= product(w.batch, 0, w.batch.size());
            w.a_row = *ra_stride;
            w.y_row = *ry_stride;
            w.batch.clear();
        }
    }
    const size_t n_leading = w.batch.empty() ? 0 : la;
    w.a_batch              = batch_strides(sa, n_leading, w.batch);
    w.b_batch              = batch_strides(sb, lb, w.batch);
    w.y_batch              = batch_strides(sy, w.batch.size(), w.batch);
    return w;
}

void check_types(Plan & p, int a, int b, int y, int8_t cube_math_type) {
    const std::vector<aclDataType> allowed = kFloats; // M1
    p.dtypes({a, b, y}, allowed);
    p.require(cube_math_type >= 0 && cube_math_type <= 3,
              "cubeMathType " + std::to_string(cube_math_type) + " is not for this chip (M2)");
    const bool fp32 = p.shape(a).dtype == ACL_FLOAT || p.shape(b).dtype == ACL_FLOAT;
    p.require(!fp32 || cube_math_type == 1 || cube_math_type == 2,
              "FP32 operands need cubeMathType 1 or 2: the cube multiplies FP16 (M2)");
}

// Rule M7 and M8 and both byte layouts of 3.4.
void check_nz(Plan & p, Product & w, int a, int b, int y) {
    const TensorShape & s = p.shape(b);
    p.require(s.format == ACL_FORMAT_ND || s.format == ACL_FORMAT_FRACTAL_NZ,
              "mat2 has format " + std::to_string((int) s.format) +
                  "; a 310B computes with ND and FRACTAL_NZ (29)");
    p.require(p.shape(a).format == ACL_FORMAT_ND && p.shape(y).format == ACL_FORMAT_ND,
              "self and out must have format ND");
    w.nz = s.format == ACL_FORMAT_FRACTAL_NZ;
    if (!w.nz) {
        return;
    }
    p.require(p.shape(a).dtype == ACL_FLOAT16 && s.dtype == ACL_FLOAT16 && p.shape(y).dtype == ACL_FLOAT16,
              "a FRACTAL_NZ mat2 needs FP16 self, mat2 and out (M7)");
    p.require(s.ne.size() == 2, "a FRACTAL_NZ mat2 must be 2-D, it is " + s.text());
    p.require(whole_tiles(w.k) && whole_tiles(w.n),
              "K and N of a FRACTAL_NZ mat2 must be multiples of 16: " + s.text());
    p.require(s.offset == 0, "a FRACTAL_NZ mat2 starts at offset 0");
    const bool direct     = s.stride[0] == w.n && s.stride[1] == 1,
               transposed = s.stride[0] == 1 && s.stride[1] == w.k;
    p.require(direct || transposed,
              "a FRACTAL_NZ mat2 is a dense [K,N] or the transpose of a dense [N,K]; strides " +
                  dims_text(s.stride));
    p.require(s.n_storage() >= w.k * w.n, "storage " + dims_text(s.storage) + " is smaller than the matrix");
    w.layout = direct ? WeightLayout::nz_kn : WeightLayout::nz_nk;
    if (whole_tiles(w.m)) {
        p.refuse(kAclnnInnerNull, "no kernel for a FRACTAL_NZ mat2 with M = " + std::to_string(w.m) +
                                      ": multiples of 16 failed on the board (M8); use the ND weight");
    }
    if (w.m > kTile && !config().nz_m_over_16) {
        p.refuse(kAclnnInnerNull,
                 "FRACTAL_NZ mat2 with M = " + std::to_string(w.m) +
                     ": above 15 rows nothing was ever seen to work (M8); use the ND weight, or "
                     "set nz_m_over_16 to try the hypothesis");
    }
    Operand & o        = p.operand(b);
    o.is_whole_storage = true;
    o.shape.storage    = {w.k * w.n};
}

// An operand that is read where it lies: dense, or the transpose of dense matrices, batches packed (M10).
// Strides of dims of extent 1 do not matter.
bool lies_as_is(const TensorShape & s, bool * transposed) {
    *transposed = false;
    if (s.is_contiguous()) {
        return true;
    }
    if (s.ne.size() < 2) {
        return false;
    }
    TensorShape turned = s;
    const size_t r     = s.ne.size();
    std::swap(turned.ne[r - 1], turned.ne[r - 2]);
    std::swap(turned.stride[r - 1], turned.stride[r - 2]);
    *transposed = true;
    return turned.is_contiguous();
}

// Reading whole tiles of 16 rows, rows being the outer of the last two dims in memory.
int64_t rows_past_the_end(const TensorShape & s) {
    bool transposed = false;
    if (s.ne.size() < 2 || s.dtype != ACL_FLOAT16 || !lies_as_is(s, &transposed)) {
        return 0; // a copy in the workspace is read instead
    }
    const int64_t inner = s.ne[s.ne.size() - (transposed ? 2 : 1)],
                  outer = s.ne[s.ne.size() - (transposed ? 1 : 2)];
    return (up16(outer) - outer) * inner;
}

void costs(Plan & p, const Product & w, int a, int b, int y) {
    const bool fp16_self = p.shape(a).dtype == ACL_FLOAT16, fp16_mat2 = p.shape(b).dtype == ACL_FLOAT16;
    if (!fp16_self) { // the cast that cubeMathType 1 and 2 insert
        p.workspace((uint64_t) p.shape(a).n_elements() * 2);
    }
    if (!fp16_mat2) {
        p.workspace((uint64_t) p.shape(b).n_elements() * 2);
    }
    bool transposed = false;
    if (!lies_as_is(p.shape(a), &transposed)) {
        p.make_contiguous(a);
    }
    if (!w.nz && !lies_as_is(p.shape(b), &transposed)) {
        p.make_contiguous(b);
    }
    p.make_contiguous(y);
    p.operand(a).over_read = rows_past_the_end(p.shape(a)); // M16
    p.operand(b).over_read = w.nz ? 0 : rows_past_the_end(p.shape(b));
    MatmulCost c;
    c.m              = w.m;
    c.n              = w.n;
    c.k              = w.k;
    c.batch          = w.n_batch();
    c.weight_batches = w.n_weights;
    c.nz_weight      = w.nz;
    c.nd_kernel    = !w.nz && fp16_self && whole_tiles(w.m) && whole_tiles(w.k) && whole_tiles(w.n); // M4, M9
    c.copied_bytes = (uint64_t) (fp16_self ? 0 : 6 * p.shape(a).n_elements()) +
                     (uint64_t) (fp16_mat2 ? 0 : 6 * p.shape(b).n_elements());
    if (!c.nd_kernel) {
        const uint64_t rows = (uint64_t) (c.batch * up16(w.m));
        const uint64_t mat2 = w.nz ? 0 : (uint64_t) (w.n_weights * up16(w.k) * up16(w.n));
        p.workspace(2 * (rows * (uint64_t) up16(w.k) + mat2 + rows * (uint64_t) up16(w.n)));
    }
    p.cost(c);
}

Span matrix(const Span & s, int64_t at, int64_t rows, int64_t cols, int64_t row, int64_t col) {
    Span m      = s;
    m.data      = s.data + at * dtype_size(s.dtype);
    m.rank      = 2;
    m.ne[0]     = rows;
    m.ne[1]     = cols;
    m.stride[0] = row;
    m.stride[1] = col;
    return m;
}

void multiply(const Product & w, const Span & a, const Span & b, const Span & y, const Span * bias,
              double alpha, double beta) {
    std::vector<Matmul> batch;
    const int64_t n = w.n_batch();
    for (int64_t i = 0; i < n; ++i) {
        int64_t rest = i, at_a = 0, at_b = 0, at_y = 0;
        for (size_t d = w.batch.size(); d-- > 0;) {
            const int64_t j = rest % w.batch[d];
            rest /= w.batch[d];
            at_a += j * w.a_batch[d];
            at_b += j * w.b_batch[d];
            at_y += j * w.y_batch[d];
        }
        Matmul m;
        m.m      = w.m;
        m.n      = w.n;
        m.k      = w.k;
        m.layout = w.layout;
        m.a      = matrix(a, at_a, w.m, w.k, w.a_row, w.a_col);
        m.b      = matrix(b, at_b, w.k, w.n, w.b_row, w.b_col);
        m.y      = matrix(y, at_y, w.m, w.n, w.y_row, w.y_col);
        m.alpha  = alpha;
        m.beta   = beta;
        m.bias   = bias;
        batch.push_back(m);
    }
    matmul(batch);
}

void check_board(Plan & p, const Product & w, int a) {
    if (config().cann == "8.3" && w.batch.empty() && p.shape(a).dtype == ACL_FLOAT16 && w.m >= kManyRows &&
        w.k > kLongK) {
        p.refuse(kAclnnRuntimeError, "kernel pointer null: M = " + std::to_string(w.m) + " and K = " +
                                         std::to_string(w.k) + " (over 4096) on CANN 8.3.RC2 (M12); split K");
    }
}

enum class Form { any, two_d, three_d };

aclnnStatus product_op(const char * op, Form form, const aclTensor * self, const aclTensor * mat2,
                       const aclTensor * out, int8_t cube_math_type, uint64_t * size,
                       aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int a = p.in("self", self), b = p.in("mat2", mat2), y = p.out("out", out);
        check_types(p, a, b, y, cube_math_type);
        if (form != Form::any) {
            const int rank = form == Form::two_d ? 2 : 3;
            p.require(p.rank(a) == rank && p.rank(b) == rank && p.rank(y) == rank,
                      std::string(op) + " takes tensors of rank " + std::to_string(rank) + ": " +
                          p.shape(a).text() + " x " + p.shape(b).text());
        }
        Product w = shapes(p, a, b, y);
        if (form == Form::three_d) {
            // M14: batches that interleave with rows were refused with this code (seen on a 910B).
            for (const int i : {a, b}) {
                const TensorShape & s = p.shape(i);
                const int64_t within  = std::max(s.stride[1] * s.ne[1], s.stride[2] * s.ne[2]);
                if (s.ne[0] > 1 && s.stride[0] != 0 && s.stride[0] < within) {
                    p.refuse(kAclnnInnerNull, "batch stride of " + s.text() + " with strides " +
                                                  dims_text(s.stride) +
                                                  " is not row-major (M14); make it contiguous");
                }
            }
        }
        check_nz(p, w, a, b, y);
        check_board(p, w, a);
        costs(p, w, a, b, y);
        p.run([=](const Spans & s) { multiply(w, s[a], s[b], s[y], nullptr, 1, 0); });
    });
}

aclnnStatus addmm_op(const char * op, const aclTensor * self, const aclTensor * mat1, const aclTensor * mat2,
                     const aclScalar * beta, const aclScalar * alpha, const aclTensor * out, bool inplace,
                     int8_t cube_math_type, uint64_t * size, aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int c = inplace ? p.update("selfRef", self) : p.in("self", self);
        const int a = p.in("mat1", mat1), b = p.in("mat2", mat2);
        const double beta_value = p.number("beta", beta), alpha_value = p.number("alpha", alpha);
        const int y = inplace ? c : p.out("out", out);
        p.dtypes({c, a, b, y}, {ACL_FLOAT16}); // 4.2: FP16 only
        check_types(p, a, b, y, cube_math_type);
        p.require(p.rank(a) == 2 && p.rank(b) == 2, "mat1 and mat2 must be 2-D");
        Product w = shapes(p, a, b, y);
        p.require(p.broadcast(c, y) == p.ne(y),
                  "self " + p.shape(c).text() + " does not broadcast to the result");
        check_nz(p, w, a, b, y);
        check_board(p, w, a);
        costs(p, w, a, b, y);
        p.allow_alias(c);
        const TensorShape bias_shape = p.shape(c);
        p.run([=](const Spans & s) {
            const int r        = s[c].rank;
            const int64_t rows = r >= 2 && s[c].ne[r - 2] != 1 ? s[c].stride[r - 2] : 0;
            const int64_t cols = r >= 1 && s[c].ne[r - 1] != 1 ? s[c].stride[r - 1] : 0;
            const Span bias    = matrix(s[c], 0, w.m, w.n, rows, cols);
            multiply(w, s[a], s[b], s[y], beta_value != 0 ? &bias : nullptr, alpha_value, beta_value);
        });
    });
}

} // namespace

ACLNN_EXPORT aclnnStatus aclnnMatmulGetWorkspaceSize(const aclTensor * self, const aclTensor * mat2,
                                                     aclTensor * out, int8_t cube_math_type, uint64_t * size,
                                                     aclOpExecutor ** executor) {
    return product_op("aclnnMatmul", Form::any, self, mat2, out, cube_math_type, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnMmGetWorkspaceSize(const aclTensor * self, const aclTensor * mat2,
                                                 aclTensor * out, int8_t cube_math_type, uint64_t * size,
                                                 aclOpExecutor ** executor) {
    return product_op("aclnnMm", Form::two_d, self, mat2, out, cube_math_type, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnBatchMatMulGetWorkspaceSize(const aclTensor * self, const aclTensor * mat2,
                                                          aclTensor * out, int8_t cube_math_type,
                                                          uint64_t * size, aclOpExecutor ** executor) {
    return product_op("aclnnBatchMatMul", Form::three_d, self, mat2, out, cube_math_type, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnAddmmGetWorkspaceSize(const aclTensor * self, const aclTensor * mat1,
                                                    const aclTensor * mat2, const aclScalar * beta,
                                                    const aclScalar * alpha, aclTensor * out,
                                                    int8_t cube_math_type, uint64_t * size,
                                                    aclOpExecutor ** executor) {
    return addmm_op("aclnnAddmm", self, mat1, mat2, beta, alpha, out, false, cube_math_type, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnInplaceAddmmGetWorkspaceSize(const aclTensor * self, const aclTensor * mat1,
                                                           const aclTensor * mat2, const aclScalar * beta,
                                                           const aclScalar * alpha, int8_t cube_math_type,
                                                           uint64_t * size, aclOpExecutor ** executor) {
    return addmm_op("aclnnInplaceAddmm", self, mat1, mat2, beta, alpha, nullptr, true, cube_math_type, size,
                    executor);
}

// In place, FP16 2-D ND only. The tensor's format becomes FRACTAL_NZ at once, the bytes when the stream runs.
ACLNN_EXPORT aclnnStatus aclnnTransMatmulWeightGetWorkspaceSize(aclTensor * weight, uint64_t * size,
                                                                aclOpExecutor ** executor) {
    return plan_op("aclnnTransMatmulWeight", size, executor, [&](Plan & p) {
        const int w = p.update("mmWeightRef", weight);
        p.dtypes({w}, {ACL_FLOAT16});
        const TensorShape & s = p.shape(w);
        p.require(s.ne.size() == 2 && s.format == ACL_FORMAT_ND && s.is_contiguous() && s.offset == 0,
                  "mmWeightRef must be a dense 2-D ND matrix, it is " + s.text());
        const int64_t rows = s.ne[0], cols = s.ne[1], padded = up16(rows) * up16(cols);
        p.require(s.n_storage() >= padded, "storage " + dims_text(s.storage) + " has no room for " +
                                               std::to_string(padded) + " padded elements");
        p.workspace((uint64_t) padded * 2 + 512);
        static const CostKnobs knobs = cost_knobs(config().chip, config().cann);
        p.cost_us(pack_weight_us(knobs, (uint64_t) padded * 2));
        p.bytes((uint64_t) padded * 4);
        Operand & o           = p.operand(w);
        o.is_whole_storage    = true;
        o.shape.storage       = {padded};
        weight->shape.format  = ACL_FORMAT_FRACTAL_NZ;
        weight->shape.storage = {up16(cols) / kTile, up16(rows) / kTile, kTile, kTile};
        p.run([=](const Spans & spans) { pack_nz(reinterpret_cast<uint16_t *>(spans[w].data), rows, cols); });
    });
}

// 2-D only. Returns elements, not bytes.
ACLNN_EXPORT aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray * shape, uint64_t * n_elements) {
    constexpr const char * kCall = "aclnnCalculateMatmulWeightSize";
    if (shape == nullptr || n_elements == nullptr) {
        set_error(kCall, kAclnnNullptr, "tensorShape or weightTensorSize is null");
        return kAclnnNullptr;
    }
    check_object(shape, ObjectKind::int_array, kCall, "tensorShape");
    if (shape->values.size() != 2) {
        set_error(kCall, kAclnnInvalid, "tensorShape must have 2 dims, it is " + dims_text(shape->values));
        return kAclnnInvalid;
    }
    *n_elements = (uint64_t) (up16(shape->values[0]) * up16(shape->values[1]));
    return kAclnnOk;
}

ACLNN_EXPORT aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray *, aclDataType, uint64_t *) {
    set_error("aclnnCalculateMatmulWeightSizeV2", kAclnnRuntimeError,
              "support for Ascend310B is not implemented; use aclnnCalculateMatmulWeightSize");
    return kAclnnRuntimeError;
}
