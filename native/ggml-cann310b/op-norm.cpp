// NORM and RMS_NORM, composed: the chip has no kernel for the fused ones (fact sheet 4.4). Squares stay FP32:
// activations of 3e4 exist in middle layers, their square is no FP16 (4.6). Also SUM_ROWS and MEAN.
#include "runner.h"

#include <cmath>

namespace cann310b {

namespace {

void mean(Runner & r, const Loc & x, const Loc & out) {
    const Tensor a = tensor(x, 4), y = tensor(out, 4);
    const Ints last = ints({-1});
    r.call("aclnnMean", acl().aclnnMeanGetWorkspaceSize, acl().aclnnMean, a.get(), last.get(), true,
           out.dtype, y.get());
}

} // namespace

// One token: RMS_NORM times weight in five launches instead of six. The squares lie in a row with one more
// element, which always holds n * eps, so that their mean has eps in it: (sum + n eps) / (n + 1). The factor
// n / (n + 1) that this is off by goes into a copy of the weight.
bool Runner::norm_of_one_row(const ggml_tensor * dst, const ggml_tensor * weight, const Loc & out) {
    const float eps = ggml_get_op_params_f32(dst, 0);
    const Loc x     = loc(dst->src[0]);
    const int64_t n = x.ne[0];
    if (dst->op != GGML_OP_RMS_NORM || x.n_elements() != n) {
        return false;
    }
    char * const scaled = scaled_copy(*this, weight, float(std::sqrt(double(n) / double(n + 1))));
    if (scaled == nullptr) {
        return false;
    }
    if (squares_of_ != std::make_pair(n, eps)) {
        if (squares_of_.first != 0) {
            return false; // a graph with rows of two lengths (q_norm): the first one has the place
        }
        const float constant = float(double(n) * double(eps));
        squares_.grow(size_t(n + 1) * sizeof(float));
        device().copy(squares_.base + n * int64_t(sizeof(float)), &constant, sizeof constant,
                      ACL_MEMCPY_HOST_TO_DEVICE);
        squares_of_ = {n, eps};
    }
    Loc row           = Loc{squares_.base, 0, ACL_FLOAT, {n, 1, 1, 1}, {1, n, n, n}};
    const Loc r       = temporary({1, 1, 1, 1}, ACL_FLOAT);
    const Loc by      = Loc{scaled, 0, ACL_FLOAT, {n, 1, 1, 1}, {1, n, n, n}};
    const Loc product = temporary(x.ne, ACL_FLOAT);
    mul(x, x, row);
    row.ne[0] = n + 1;
    mean(*this, row, r);
    const Tensor c = tensor(r, 4);
    call("aclnnInplaceRsqrt", acl().aclnnInplaceRsqrtGetWorkspaceSize, acl().aclnnInplaceRsqrt, c.get());
    mul(x, r, product);
    mul(product, by, out);
    return true;
}

void Runner::op_norm(ggml_tensor * dst, const ggml_tensor * weight, const ggml_tensor * bias,
                     const Loc & out) {
    if (fused_norm(dst, weight, bias, out)) {
        return;
    }
    if (weight != nullptr && bias == nullptr && norm_of_one_row(dst, weight, out)) {
        return;
    }
    const float eps  = ggml_get_op_params_f32(dst, 0);
    Loc x            = loc(dst->src[0]);
    const Loc column = temporary({1, x.ne[1], x.ne[2], x.ne[3]}, ACL_FLOAT);
    if (dst->op == GGML_OP_NORM) {
        mean(*this, x, column);
        const Loc centred = temporary(x.ne, ACL_FLOAT);
        binary(GGML_OP_SUB, x, column, centred);
        x = centred;
    }
    const Loc square = temporary(x.ne, ACL_FLOAT);
    mul(x, x, square);
    mean(*this, square, column);
    const Tensor c       = tensor(column, 4);
    const Scalar add_eps = scalar(eps), one = scalar(1.0F);
    call("aclnnInplaceAdds", acl().aclnnInplaceAddsGetWorkspaceSize, acl().aclnnInplaceAdds, c.get(),
         add_eps.get(), one.get());
    call("aclnnInplaceRsqrt", acl().aclnnInplaceRsqrtGetWorkspaceSize, acl().aclnnInplaceRsqrt, c.get());
    if (weight == nullptr) {
        mul(x, column, out);
        return;
    }
    mul(x, column, square);
    if (bias == nullptr) {
        mul(square, loc(weight), out);
        return;
    }
    mul(square, loc(weight), square);
    binary(GGML_OP_ADD, square, loc(bias), out);
}

void Runner::op_reduce(ggml_tensor * dst) {
    const Loc x = loc(dst->src[0]), y = loc(dst);
    if (dst->op == GGML_OP_MEAN) {
        mean(*this, x, y);
        return;
    }
    const Tensor a = tensor(x, 4), b = tensor(y, 4);
    const Ints last = ints({-1});
    call("aclnnReduceSum", acl().aclnnReduceSumGetWorkspaceSize, acl().aclnnReduceSum, a.get(), last.get(),
         true, y.dtype, b.get());
}

} // namespace cann310b
