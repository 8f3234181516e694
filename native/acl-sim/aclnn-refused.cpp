// libopapi.so: operators that a 310B refuses in phase 1, with the code a real board gave (fact sheet 4.4),
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

aclnnStatus refuse_op(const char * op, uint64_t * workspace_size, aclOpExecutor ** executor) {
    return plan_op(op, workspace_size, executor, [&](Plan & p) {
        for (const Row & row : kRefused) {
            if (std::strcmp(row.op, op) == 0) {
                const char * const why = row.code == kAclnnRuntimeError ? kNoSoc : kNoKernel;
                p.refuse(row.code, std::string(why) + "; " + row.reason);
            }
        }
        fatal(std::string(op) + " is listed as refused, but with which code nobody has said");
    });
}

} // namespace

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define REFUSED(name, arguments)                                                                             \
    ACLNN_EXPORT aclnnStatus name##GetWorkspaceSize arguments {                                              \
        return refuse_op(#name, workspace_size, executor);                                                   \
    }
ACLNN_REFUSED_OPS(REFUSED)
#pragma GCC diagnostic pop

#define PHASE_2(name, arguments)                                                                             \
    ACLNN_EXPORT aclnnStatus name(void * workspace, uint64_t workspace_size, aclOpExecutor * executor,       \
                                  aclrtStream stream) {                                                      \
        return run_op(#name, workspace, workspace_size, executor, stream);                                   \
    }
ACLNN_OPS(PHASE_2)
