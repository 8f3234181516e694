// Operators that work element by element: arithmetic, activations, gated activations, scale, clamp.
#include "runner.h"

#include <cmath>

namespace cann310b {
namespace {

constexpr float kQuickGelu = 1.702F;

enum class Activation { silu, gelu_tanh, gelu_erf, gelu_quick, relu, sigmoid };

using UnaryFirst = aclnnStatus (*)(const aclTensor *, aclTensor *, uint64_t *, aclOpExecutor **);

void activate(Runner & r, Activation kind, const Loc & x, const Loc & y) {
    AclLibrary & l = acl();
    const Tensor a = tensor(x, 4), b = tensor(y, 4);
    switch (kind) {
    case Activation::silu:
        r.call("aclnnSilu", l.aclnnSiluGetWorkspaceSize, l.aclnnSilu, a.get(), b.get());
        return;
    case Activation::gelu_tanh:
        r.call("aclnnGeluV2", l.aclnnGeluV2GetWorkspaceSize, l.aclnnGeluV2, a.get(), int64_t{1}, b.get());
        return;
    case Activation::gelu_erf:
        r.call("aclnnGeluV2", l.aclnnGeluV2GetWorkspaceSize, l.aclnnGeluV2, a.get(), int64_t{0}, b.get());
        return;
    case Activation::relu:
        r.call("aclnnRelu", l.aclnnReluGetWorkspaceSize, l.aclnnRelu, a.get(), b.get());
        return;
    case Activation::sigmoid:
        r.call("aclnnSigmoid", l.aclnnSigmoidGetWorkspaceSize, l.aclnnSigmoid, a.get(), b.get());
        return;
    case Activation::gelu_quick: {
        const Loc t = r.temporary(x.ne, ACL_FLOAT);
        r.scale(x, kQuickGelu, t);
        const Tensor c = tensor(t, 4);
        r.call("aclnnInplaceSigmoid", l.aclnnInplaceSigmoidGetWorkspaceSize, l.aclnnInplaceSigmoid, c.get());
        r.mul(t, x, y);
        return;
    }
    }
}

} // namespace

void Runner::op_binary(ggml_tensor * dst) {
    binary(dst->op, loc(dst->src[0]), loc(dst->src[1]), loc(dst));
}

void Runner::op_scale(ggml_tensor * dst) {
    const float factor = ggml_get_op_params_f32(dst, 0), plus = ggml_get_op_params_f32(dst, 1);
    const Loc out = loc(dst);
    scale(loc(dst->src[0]), factor, out);
    if (plus != 0.0F) {
        const Tensor y  = tensor(out, 4);
        const Scalar by = scalar(plus), one = scalar(1.0F);
        call("aclnnInplaceAdds", acl().aclnnInplaceAddsGetWorkspaceSize, acl().aclnnInplaceAdds, y.get(),
             by.get(), one.get());
    }
}

void Runner::op_unary(ggml_tensor * dst) {
    const Loc x = loc(dst->src[0]), y = loc(dst);
    AclLibrary & l = acl();
    if (dst->op == GGML_OP_SQR) { // Mul, because aclnnSquare breaks on a sister chip (fact sheet 4.5)
        mul(x, x, y);
        return;
    }
    const Tensor a = tensor(x, 4), b = tensor(y, 4);
    const auto plain = [&](const char * name, UnaryFirst first, aclnnRunFunction second) {
        call(name, first, second, a.get(), b.get());
    };
    switch (dst->op) {
    case GGML_OP_SQRT:
        plain("aclnnSqrt", l.aclnnSqrtGetWorkspaceSize, l.aclnnSqrt);
        return;
    case GGML_OP_LOG:
        plain("aclnnLog", l.aclnnLogGetWorkspaceSize, l.aclnnLog);
        return;
    case GGML_OP_SIN:
        plain("aclnnSin", l.aclnnSinGetWorkspaceSize, l.aclnnSin);
        return;
    case GGML_OP_COS:
        plain("aclnnCos", l.aclnnCosGetWorkspaceSize, l.aclnnCos);
        return;
    case GGML_OP_CLAMP: {
        const Scalar low  = scalar(ggml_get_op_params_f32(dst, 0)),
                     high = scalar(ggml_get_op_params_f32(dst, 1));
        call("aclnnClamp", l.aclnnClampGetWorkspaceSize, l.aclnnClamp, a.get(), low.get(), high.get(),
             b.get());
        return;
    }
    default:
        break;
    }
    switch (ggml_get_unary_op(dst)) {
    case GGML_UNARY_OP_ABS:
        plain("aclnnAbs", l.aclnnAbsGetWorkspaceSize, l.aclnnAbs);
        return;
    case GGML_UNARY_OP_NEG:
        plain("aclnnNeg", l.aclnnNegGetWorkspaceSize, l.aclnnNeg);
        return;
    case GGML_UNARY_OP_EXP:
        plain("aclnnExp", l.aclnnExpGetWorkspaceSize, l.aclnnExp);
        return;
    case GGML_UNARY_OP_TANH:
        plain("aclnnTanh", l.aclnnTanhGetWorkspaceSize, l.aclnnTanh);
        return;
    case GGML_UNARY_OP_SIGMOID:
        activate(*this, Activation::sigmoid, x, y);
        return;
    case GGML_UNARY_OP_RELU:
        activate(*this, Activation::relu, x, y);
        return;
    case GGML_UNARY_OP_SILU:
        activate(*this, Activation::silu, x, y);
        return;
    case GGML_UNARY_OP_GELU:
        activate(*this, Activation::gelu_tanh, x, y);
        return;
    case GGML_UNARY_OP_GELU_ERF:
        activate(*this, Activation::gelu_erf, x, y);
        return;
    case GGML_UNARY_OP_GELU_QUICK:
        activate(*this, Activation::gelu_quick, x, y);
        return;
    default:
        throw AclFailure(ACL_ERROR_API_NOT_SUPPORT, "unary operator that supports_op does not claim");
    }
}

void Runner::op_glu(ggml_tensor * dst) {
    Loc a = loc(dst->src[0]), b = a;
    if (dst->src[1] != nullptr) {
        b = loc(dst->src[1]);
    } else {
        const int64_t half = a.ne[0] / 2;
        a.ne[0] = b.ne[0] = half;
        (ggml_get_op_params_i32(dst, 1) != 0 ? a : b).offset += half * a.st[0];
    }
    Activation kind = Activation::silu;
    switch (ggml_get_glu_op(dst)) {
    case GGML_GLU_OP_REGLU:
        kind = Activation::relu;
        break;
    case GGML_GLU_OP_GEGLU:
        kind = Activation::gelu_tanh;
        break;
    case GGML_GLU_OP_GEGLU_ERF:
        kind = Activation::gelu_erf;
        break;
    case GGML_GLU_OP_GEGLU_QUICK:
        kind = Activation::gelu_quick;
        break;
    default:
        break;
    }
    const Loc out = loc(dst);
    if (fused_glu(ggml_get_glu_op(dst), a, b, out)) {
        return;
    }
    if (overlap(out, a) || overlap(out, b)) {
        const Loc t = temporary(out.ne, a.dtype);
        activate(*this, kind, a, t);
        mul(t, b, out);
        return;
    }
    activate(*this, kind, a, out);
    mul(out, b, out);
}

} // namespace cann310b
