// NORM and RMS_NORM, composed: the chip has no kernel for the fused ones (fact sheet 4.4). Squares stay FP32:
// activations of 3e4 exist in middle layers, their square is no FP16 (4.6). Also SUM_ROWS and MEAN.
#include "runner.h"

namespace cann310b {

namespace {

void mean(Runner & r, const Loc & x, const Loc & out) {
    const Tensor a = tensor(x, 4), y = tensor(out, 4);
    const Ints last = ints({-1});
    r.call("aclnnMean", acl().aclnnMeanGetWorkspaceSize, acl().aclnnMean, a.get(), last.get(), true,
           out.dtype, y.get());
}

} // namespace

void Runner::op_norm(ggml_tensor * dst, const ggml_tensor * weight, const ggml_tensor * bias,
                     const Loc & out) {
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
