// libopapi.so: operators that a 310B refuses in phase 1, with the code a real board gave (fact sheet 4.4);
// among them fused ones that a test may switch on, to see what a client does when a kernel package has them;
// and phase 2 of all operators, which is the same function for each.
//
// aclnnFusedInferAttentionScoreV2 and the like are not here: their headers are missing from the 310B toolkit,
// so the symbol is absent and dlsym returns null.
#include "acl310b/aclnn-api.h"
#include "sim-core.h"
#include "sim-op.h"

#include <cstring>

using namespace sim;

namespace {

struct Row {
    const char * op;
    aclnnStatus code;
    const char * reason; // with what to do instead
};

const char * const kNoSoc    = "support for Ascend310B is not implemented";
const char * const kNoKernel = "the kernel package has no 310B kernel";

const Row kRefused[] = {
    // generated wrappers without 310B kernels
    {"aclnnRmsNorm", kAclnnNullptr, "compose it: square in FP32, Mean, Adds, Rsqrt, Mul, Mul"},
    {"aclnnAddRmsNorm", kAclnnNullptr, "compose it: Add, then the norm"},
    {"aclnnInplaceAddRmsNorm", kAclnnNullptr, "compose it: InplaceAdd, then the norm"},
    {"aclnnSwiGlu", kAclnnNullptr, "compose it: Silu, Mul"},
    {"aclnnGeGlu", kAclnnNullptr, "compose it: GeluV2, Mul"},
    {"aclnnGeGluV3", kAclnnNullptr, "compose it: GeluV2, Mul"},
    // attention and rope
    {"aclnnRotaryPositionEmbedding", kAclnnInnerNull,
     "compose it from Mul and Add with tables of cos and sin"},
    {"aclnnApplyRotaryPosEmb", kAclnnInnerNull, "compose it from Mul and Add with tables of cos and sin"},
    {"aclnnFlashAttentionScore", kAclnnInner, "no binary; compose Matmul, Softmax, Matmul"},
    {"aclnnPromptFlashAttention", kAclnnInnerNull, "compose Matmul, Softmax, Matmul"},
    {"aclnnIncreFlashAttention", kAclnnInnerNull, "binaries exist for 310p, 910b and 910_93 only"},
    // quantised matmul
    {"aclnnWeightQuantBatchMatmulV2", kAclnnRuntimeError, "convert weights to FP16 while loading"},
    {"aclnnWeightQuantBatchMatmulV3", kAclnnRuntimeError, "convert weights to FP16 while loading"},
    {"aclnnQuantMatmul", kAclnnRuntimeError, "convert weights to FP16 while loading"},
    {"aclnnQuantMatmulV3", kAclnnRuntimeError, "convert weights to FP16 while loading"},
    {"aclnnQuantMatmulV4", kAclnnRuntimeError, "convert weights to FP16 while loading"},
    {"aclnnDynamicQuant", kAclnnRuntimeError, "quantise on the host"},
    {"aclnnAscendQuant", kAclnnRuntimeError, "quantise on the host"},
    // weights in NZ by other doors
    {"aclnnMatmulWeightNz", kAclnnInvalid, "give aclnnMatmul a mat2 of format FRACTAL_NZ (M15)"},
    {"aclnnAddmmWeightNz", kAclnnInvalid, "give aclnnAddmm a mat2 of format FRACTAL_NZ (M15)"},
    {"aclnnNpuFormatCast", kAclnnInvalid, "pack on the host or use aclnnTransMatmulWeight"},
    // no kernel found
    {"aclnnTopk", kAclnnInnerNull, "leave it to the CPU"},
    {"aclnnSort", kAclnnInnerNull, "leave it to the CPU (never seen to run on a 310B)"},
    {"aclnnArgsort", kAclnnInnerNull, "leave it to the CPU (never seen to run on a 310B)"},
    {"aclnnGather", kAclnnInnerNull, "use GatherV2 or IndexSelect on rows"},
    {"aclnnSWhere", kAclnnInner, "use an arithmetic mask"},
    {"aclnnFlip", kAclnnInner, "copy with strides"},
    {"aclnnDot", kAclnnInnerNull, "use Mul and ReduceSum"},
    {"aclnnAtan2", kAclnnInnerNull, "leave it to the CPU"},
    {"aclnnLerps", kAclnnInnerNull, "compose it"},
    {"aclnnDiag", kAclnnInnerNull, "leave it to the CPU"},
    {"aclnnSoftplus", kAclnnInnerNull, "compose it"},
    {"aclnnMish", kAclnnInnerNull, "compose it"},
    {"aclnnIsClose", kAclnnInnerNull, "compose it"},
    {"aclnnDropoutDoMask", kAclnnInnerNull, "use Mul"},
    {"aclnnRemainderTensorTensor", kAclnnInvalid, "compose it"},
    {"aclnnBatchNorm", kAclnnInvalid, "compose it"},
    {"aclnnAvgPool2d", kAclnnInvalid, "compose it"},
    {"aclnnIsInf", kAclnnNullptr, "nothing infinite leaves an NPU instruction"},
    // replaced on hardware by those who ran it
    {"aclnnIndexCopy", kAclnnInnerNull, "use aclnnIndexPutImpl"},
    {"aclnnInplaceIndexCopy", kAclnnInnerNull, "use aclnnIndexPutImpl"},
};

[[noreturn]] void refuse(const Plan & p) {
    for (const Row & row : kRefused) {
        if (std::strcmp(row.op, p.op()) == 0) {
            const char * const why = row.code == kAclnnRuntimeError ? kNoSoc : kNoKernel;
            p.refuse(row.code, std::string(why) + "; " + row.reason);
        }
    }
    fatal(std::string(p.op()) + " is listed as refused, but with which code nobody has said");
}

aclnnStatus refuse_op(const char * op, uint64_t * workspace_size, aclOpExecutor ** executor) {
    return plan_op(op, workspace_size, executor, [](Plan & p) { refuse(p); });
}

// Halves of the last dimension: `first` of them computed with `act`, times the other.
void gated(const Span & x, Unary act, bool is_first, const Span & y, const Span * kept) {
    Span left = x, right = x;
    left.ne[x.rank - 1] = right.ne[x.rank - 1] = x.ne[x.rank - 1] / 2;
    right.data += left.ne[x.rank - 1] * x.stride[x.rank - 1] * dtype_size(x.dtype);
    const Span &gate = is_first ? left : right, &other = is_first ? right : left;
    // One kernel: the activation stays FP32 until it is multiplied.
    std::vector<float> exact((size_t) gate.n_elements());
    Span full   = gate;
    full.data   = reinterpret_cast<uint8_t *>(exact.data());
    full.dtype  = ACL_FLOAT;
    int64_t run = 1;
    for (int d = full.rank; d-- > 0; run *= full.ne[d]) {
        full.stride[d] = run;
    }
    map_unary(act, {}, gate, full);
    if (kept != nullptr) {
        copy_elements(full, *kept);
    }
    map_binary(Binary::mul, 1.0, full, other, y);
}

void demand_halves(Plan & p, int x, int y, int64_t dim) {
    const int d = p.dim("dim", dim, p.rank(x));
    p.require(d == p.rank(x) - 1, "only the last dim can be split here");
    p.require(p.ne(x).back() % 2 == 0, p.shape(x).text() + " has no two halves");
    std::vector<int64_t> half = p.ne(x);
    half.back() /= 2;
    p.require_shape(y, half);
}

} // namespace

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define REFUSED(name, arguments)                                                                             \
    ACLNN_EXPORT aclnnStatus name##GetWorkspaceSize arguments {                                              \
        return refuse_op(#name, workspace_size, executor);                                                   \
    }
ACLNN_NEVER_OPS(REFUSED)
#pragma GCC diagnostic pop

// Fused operators, refused like the others unless Config::accepts says that this board has the kernel.

ACLNN_EXPORT aclnnStatus aclnnRmsNormGetWorkspaceSize(const aclTensor * x, const aclTensor * gamma,
                                                      double epsilon, const aclTensor * y_out,
                                                      const aclTensor * rstd_out, uint64_t * workspace_size,
                                                      aclOpExecutor ** executor) {
    return plan_op("aclnnRmsNorm", workspace_size, executor, [&](Plan & p) {
        if (!is_accepted(p.op())) {
            refuse(p);
        }
        const int a = p.in("x", x), w = p.in("gamma", gamma);
        const int y = p.out("yOut", y_out), r = p.out("rstdOut", rstd_out);
        p.dtypes({a, w, y}, kFloats);
        p.dtypes({r}, {ACL_FLOAT});
        p.require_same_dtype(a, y);
        p.require_same_dtype(a, w);
        p.require_same_shape(a, y);
        p.require_shape(w, {p.ne(a).back()});
        std::vector<int64_t> rows = p.ne(a);
        rows.back()               = 1;
        p.require_shape(r, rows);
        for (int i = 0; i < p.n_operands(); ++i) {
            p.make_contiguous(i);
        }
        p.run([=](const Spans & s) { rms_norm(s[a], s[w], epsilon, s[y], s[r]); });
    });
}

ACLNN_EXPORT aclnnStatus aclnnSwiGluGetWorkspaceSize(const aclTensor * x, int64_t dim, const aclTensor * out,
                                                     uint64_t * workspace_size, aclOpExecutor ** executor) {
    return plan_op("aclnnSwiGlu", workspace_size, executor, [&](Plan & p) {
        if (!is_accepted(p.op())) {
            refuse(p);
        }
        const int a = p.in("x", x), y = p.out("out", out);
        p.dtypes({a, y}, kFloats);
        p.require_same_dtype(a, y);
        demand_halves(p, a, y, dim);
        p.make_contiguous(a);
        p.make_contiguous(y);
        p.run([=](const Spans & s) { gated(s[a], Unary::silu, true, s[y], nullptr); });
    });
}

ACLNN_EXPORT aclnnStatus aclnnGeGluV3GetWorkspaceSize(const aclTensor * self, int64_t dim,
                                                      int64_t approximate, bool activate_left,
                                                      aclTensor * out, aclTensor * out_gelu,
                                                      uint64_t * workspace_size, aclOpExecutor ** executor) {
    return plan_op("aclnnGeGluV3", workspace_size, executor, [&](Plan & p) {
        if (!is_accepted(p.op())) {
            refuse(p);
        }
        const int a = p.in("self", self), y = p.out("out", out), g = p.out("outGelu", out_gelu);
        p.dtypes({a, y, g}, kFloats);
        p.require_same_dtype(a, y);
        p.require_same_dtype(a, g);
        p.require(approximate == 0 || approximate == 1, "approximate is 0 or 1");
        demand_halves(p, a, y, dim);
        p.require_same_shape(y, g);
        for (int i = 0; i < p.n_operands(); ++i) {
            p.make_contiguous(i);
        }
        const Unary act = approximate == 1 ? Unary::gelu_tanh : Unary::gelu_erf;
        p.run([=](const Spans & s) { gated(s[a], act, activate_left, s[y], &s[g]); });
    });
}

#define PHASE_2(name, arguments)                                                                             \
    ACLNN_EXPORT aclnnStatus name(void * workspace, uint64_t workspace_size, aclOpExecutor * executor,       \
                                  aclrtStream stream) {                                                      \
        return run_op(#name, workspace, workspace_size, executor, stream);                                   \
    }
ACLNN_OPS(PHASE_2)
