// The aclnn operators that the plugin calls or probes and the simulator exports, as lists of rows.
//
//   X(aclnnName, (phase-1 arguments))
//
// Every operator has two functions of the same pattern, so a row is enough for both:
//   aclnnStatus aclnnNameGetWorkspaceSize(<phase-1 arguments>);
//   aclnnStatus aclnnName(void * workspace, uint64_t workspace_size, aclOpExecutor * executor, aclrtStream
//   stream);
//
// Argument types are ABI (int8_t, int64_t, bool, double, aclDataType matter) and come from the pages of the
// public operator repositories. What a row means on a 310B is in native/acl-sim/aclnn-*.cpp.
// aclnnFusedInferAttentionScoreV2 is left out on purpose: the 310B toolkit does not ship it.
#pragma once

#include "acl-api.h"

// How the argument list of every phase 1 ends: bytes of workspace wanted, and the plan to hand to phase 2.
#define ACLNN_PLAN uint64_t *workspace_size, aclOpExecutor **executor

// Ops of the recipes in the fact sheet (4.5 to 4.7) and their neighbours: a 310B computes them.
#define ACLNN_USED_OPS(X)                                                                                    \
    X(aclnnMatmul,                                                                                           \
      (const aclTensor * self, const aclTensor * mat2, aclTensor * out, int8_t cube_math_type, ACLNN_PLAN))  \
    X(aclnnMm,                                                                                               \
      (const aclTensor * self, const aclTensor * mat2, aclTensor * out, int8_t cube_math_type, ACLNN_PLAN))  \
    X(aclnnBatchMatMul,                                                                                      \
      (const aclTensor * self, const aclTensor * mat2, aclTensor * out, int8_t cube_math_type, ACLNN_PLAN))  \
    X(aclnnAddmm,                                                                                            \
      (const aclTensor * self, const aclTensor * mat1, const aclTensor * mat2, const aclScalar * beta,       \
       const aclScalar * alpha, aclTensor * out, int8_t cube_math_type, ACLNN_PLAN))                         \
    X(aclnnInplaceAddmm,                                                                                     \
      (const aclTensor * self, const aclTensor * mat1, const aclTensor * mat2, const aclScalar * beta,       \
       const aclScalar * alpha, int8_t cube_math_type, ACLNN_PLAN))                                          \
    X(aclnnTransMatmulWeight, (aclTensor * weight, ACLNN_PLAN))                                              \
    X(aclnnAdd, (const aclTensor * self, const aclTensor * other, const aclScalar * alpha, aclTensor * out,  \
                 ACLNN_PLAN))                                                                                \
    X(aclnnInplaceAdd,                                                                                       \
      (const aclTensor * self, const aclTensor * other, const aclScalar * alpha, ACLNN_PLAN))                \
    X(aclnnSub, (const aclTensor * self, const aclTensor * other, const aclScalar * alpha, aclTensor * out,  \
                 ACLNN_PLAN))                                                                                \
    X(aclnnInplaceSub, (aclTensor * self, const aclTensor * other, const aclScalar * alpha, ACLNN_PLAN))     \
    X(aclnnMul, (const aclTensor * self, const aclTensor * other, aclTensor * out, ACLNN_PLAN))              \
    X(aclnnInplaceMul, (aclTensor * self, const aclTensor * other, ACLNN_PLAN))                              \
    X(aclnnDiv, (const aclTensor * self, const aclTensor * other, aclTensor * out, ACLNN_PLAN))              \
    X(aclnnInplaceDiv, (aclTensor * self, const aclTensor * other, ACLNN_PLAN))                              \
    X(aclnnMuls, (const aclTensor * self, const aclScalar * other, aclTensor * out, ACLNN_PLAN))             \
    X(aclnnInplaceMuls, (aclTensor * self, const aclScalar * other, ACLNN_PLAN))                             \
    X(aclnnAdds, (const aclTensor * self, const aclScalar * other, const aclScalar * alpha, aclTensor * out, \
                  ACLNN_PLAN))                                                                               \
    X(aclnnInplaceAdds,                                                                                      \
      (const aclTensor * self, const aclScalar * other, const aclScalar * alpha, ACLNN_PLAN))                \
    X(aclnnDivs, (const aclTensor * self, const aclScalar * other, aclTensor * out, ACLNN_PLAN))             \
    X(aclnnInplaceDivs, (aclTensor * self, const aclScalar * other, ACLNN_PLAN))                             \
    X(aclnnCast, (const aclTensor * self, aclDataType dtype, aclTensor * out, ACLNN_PLAN))                   \
    X(aclnnInplaceCopy, (aclTensor * self, const aclTensor * src, ACLNN_PLAN))                               \
    X(aclnnPermute, (const aclTensor * self, const aclIntArray * dims, aclTensor * out, ACLNN_PLAN))         \
    X(aclnnCat, (const aclTensorList * tensors, int64_t dim, aclTensor * out, ACLNN_PLAN))                   \
    X(aclnnStack, (const aclTensorList * tensors, int64_t dim, aclTensor * out, ACLNN_PLAN))                 \
    X(aclnnRepeat, (const aclTensor * self, const aclIntArray * repeats, aclTensor * out, ACLNN_PLAN))       \
    X(aclnnRepeatInterleaveIntWithDim, (const aclTensor * self, int64_t repeats, int64_t dim,                \
                                        int64_t output_size, aclTensor * out, ACLNN_PLAN))                   \
    X(aclnnExpand, (const aclTensor * self, const aclIntArray * size, aclTensor * out, ACLNN_PLAN))          \
    X(aclnnSlice, (const aclTensor * self, int64_t dim, int64_t start, int64_t end, int64_t step,            \
                   aclTensor * out, ACLNN_PLAN))                                                             \
    X(aclnnSoftmax, (const aclTensor * self, int64_t dim, aclTensor * out, ACLNN_PLAN))                      \
    X(aclnnLogSoftmax, (const aclTensor * self, int64_t dim, aclTensor * out, ACLNN_PLAN))                   \
    X(aclnnSilu, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                      \
    X(aclnnGelu, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                      \
    X(aclnnGeluV2, (const aclTensor * x, int64_t approximate, aclTensor * y, ACLNN_PLAN))                    \
    X(aclnnSigmoid, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                   \
    X(aclnnInplaceSigmoid, (aclTensor * self, ACLNN_PLAN))                                                   \
    X(aclnnTanh, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                      \
    X(aclnnInplaceTanh, (aclTensor * self, ACLNN_PLAN))                                                      \
    X(aclnnRelu, (const aclTensor * self, const aclTensor * out, ACLNN_PLAN))                                \
    X(aclnnInplaceRelu, (aclTensor * self, ACLNN_PLAN))                                                      \
    X(aclnnLeakyRelu,                                                                                        \
      (const aclTensor * self, const aclScalar * negative_slope, aclTensor * out, ACLNN_PLAN))               \
    X(aclnnHardswish, (const aclTensor * self, const aclTensor * out, ACLNN_PLAN))                           \
    X(aclnnElu, (const aclTensor * self, const aclScalar * alpha, const aclScalar * scale,                   \
                 const aclScalar * input_scale, aclTensor * out, ACLNN_PLAN))                                \
    X(aclnnSqrt, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                      \
    X(aclnnInplaceSqrt, (aclTensor * self, ACLNN_PLAN))                                                      \
    X(aclnnRsqrt, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                     \
    X(aclnnInplaceRsqrt, (aclTensor * self, ACLNN_PLAN))                                                     \
    X(aclnnExp, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                       \
    X(aclnnInplaceExp, (aclTensor * self, ACLNN_PLAN))                                                       \
    X(aclnnNeg, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                       \
    X(aclnnInplaceNeg, (aclTensor * self, ACLNN_PLAN))                                                       \
    X(aclnnAbs, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                       \
    X(aclnnLog, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                       \
    X(aclnnInplaceLog, (aclTensor * self, ACLNN_PLAN))                                                       \
    X(aclnnSin, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                       \
    X(aclnnInplaceSin, (aclTensor * self, ACLNN_PLAN))                                                       \
    X(aclnnCos, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                       \
    X(aclnnInplaceCos, (aclTensor * self, ACLNN_PLAN))                                                       \
    X(aclnnPowTensorScalar,                                                                                  \
      (const aclTensor * self, const aclScalar * exponent, const aclTensor * out, ACLNN_PLAN))               \
    X(aclnnInplacePowTensorScalar, (const aclTensor * self, const aclScalar * exponent, ACLNN_PLAN))         \
    X(aclnnPowTensorTensor,                                                                                  \
      (const aclTensor * self, const aclTensor * exponent, aclTensor * out, ACLNN_PLAN))                     \
    X(aclnnPowScalarTensor,                                                                                  \
      (const aclScalar * self, const aclTensor * exponent, const aclTensor * out, ACLNN_PLAN))               \
    X(aclnnClamp,                                                                                            \
      (const aclTensor * self, const aclScalar * min, const aclScalar * max, aclTensor * out, ACLNN_PLAN))   \
    X(aclnnMean, (const aclTensor * self, const aclIntArray * dim, bool keep_dim, aclDataType dtype,         \
                  aclTensor * out, ACLNN_PLAN))                                                              \
    X(aclnnReduceSum, (const aclTensor * self, const aclIntArray * dims, bool keep_dims, aclDataType dtype,  \
                       aclTensor * out, ACLNN_PLAN))                                                         \
    X(aclnnArgMax, (const aclTensor * self, int64_t dim, bool keepdim, aclTensor * out, ACLNN_PLAN))         \
    X(aclnnMaxDim,                                                                                           \
      (const aclTensor * self, int64_t dim, bool keepdim, aclTensor * out, aclTensor * indices, ACLNN_PLAN)) \
    X(aclnnMax, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                       \
    X(aclnnCumsum, (const aclTensor * self, int64_t dim, aclDataType dtype, aclTensor * out, ACLNN_PLAN))    \
    X(aclnnLayerNorm, (const aclTensor * input, const aclIntArray * normalized_shape,                        \
                       const aclTensor * weight, const aclTensor * bias, double eps, aclTensor * out,        \
                       aclTensor * mean_out, aclTensor * rstd_out, ACLNN_PLAN))                              \
    X(aclnnGatherV2,                                                                                         \
      (const aclTensor * self, int64_t dim, const aclTensor * index, aclTensor * out, ACLNN_PLAN))           \
    X(aclnnIndexSelect,                                                                                      \
      (const aclTensor * self, int64_t dim, const aclTensor * index, aclTensor * out, ACLNN_PLAN))           \
    X(aclnnEmbedding,                                                                                        \
      (const aclTensor * weight, const aclTensor * indices, const aclTensor * out, ACLNN_PLAN))              \
    X(aclnnIndexPutImpl, (aclTensor * self, const aclTensorList * indices, const aclTensor * values,         \
                          bool accumulate, bool unsafe, ACLNN_PLAN))                                         \
    X(aclnnArange,                                                                                           \
      (const aclScalar * start, const aclScalar * end, const aclScalar * step, aclTensor * out, ACLNN_PLAN)) \
    X(aclnnRange,                                                                                            \
      (const aclScalar * start, const aclScalar * end, const aclScalar * step, aclTensor * out, ACLNN_PLAN)) \
    X(aclnnRoll, (const aclTensor * x, const aclIntArray * shifts, const aclIntArray * dims,                 \
                  aclTensor * out, ACLNN_PLAN))                                                              \
    X(aclnnInplaceFillScalar, (aclTensor * self, const aclScalar * value, ACLNN_PLAN))                       \
    X(aclnnInplaceZero, (aclTensor * self, ACLNN_PLAN))                                                      \
    X(aclnnInplaceOne, (const aclTensor * self, ACLNN_PLAN))                                                 \
    X(aclnnInplaceMaskedFillScalar,                                                                          \
      (aclTensor * self, const aclTensor * mask, const aclScalar * value, ACLNN_PLAN))                       \
    X(aclnnTril, (const aclTensor * self, int64_t diagonal, aclTensor * out, ACLNN_PLAN))                    \
    X(aclnnInplaceTril, (const aclTensor * self, int64_t diagonal, ACLNN_PLAN))                              \
    X(aclnnTriu, (const aclTensor * self, int64_t diagonal, aclTensor * out, ACLNN_PLAN))                    \
    X(aclnnInplaceTriu, (aclTensor * self, int64_t diagonal, ACLNN_PLAN))                                    \
    X(aclnnConstantPadNd, (const aclTensor * self, const aclIntArray * pad, const aclScalar * value,         \
                           aclTensor * out, ACLNN_PLAN))                                                     \
    X(aclnnLtTensor, (const aclTensor * self, const aclTensor * other, aclTensor * out, ACLNN_PLAN))         \
    X(aclnnGtTensor, (const aclTensor * self, const aclTensor * other, aclTensor * out, ACLNN_PLAN))         \
    X(aclnnLtScalar, (const aclTensor * self, const aclScalar * other, aclTensor * out, ACLNN_PLAN))         \
    X(aclnnGtScalar, (const aclTensor * self, const aclScalar * other, aclTensor * out, ACLNN_PLAN))         \
    X(aclnnEqScalar, (const aclTensor * self, const aclScalar * other, aclTensor * out, ACLNN_PLAN))         \
    X(aclnnEqTensor, (const aclTensor * self, const aclTensor * other, aclTensor * out, ACLNN_PLAN))

// Fused ops that a 310B refused in phase 1 so far and that the plugin uses where a kernel package has them
// (4.4, 5): it asks phase 1 once at start.
#define ACLNN_PROBED_OPS(X)                                                                                  \
    X(aclnnRmsNorm, (const aclTensor * x, const aclTensor * gamma, double epsilon, const aclTensor * y_out,  \
                     const aclTensor * rstd_out, ACLNN_PLAN))                                                \
    X(aclnnSwiGlu, (const aclTensor * x, int64_t dim, const aclTensor * out, ACLNN_PLAN))                    \
    X(aclnnGeGluV3, (const aclTensor * self, int64_t dim, int64_t approximate, bool activate_left,           \
                     aclTensor * out, aclTensor * out_gelu, ACLNN_PLAN))

// The other ops that a 310B refuses in phase 1 (4.2 M15, 4.4): exported, so that a client may probe them.
#define ACLNN_NEVER_OPS(X)                                                                                   \
    X(aclnnAddRmsNorm, (const aclTensor * x1, const aclTensor * x2, const aclTensor * gamma, double epsilon, \
                        aclTensor * y_out, aclTensor * rstd_out, aclTensor * x_out, ACLNN_PLAN))             \
    X(aclnnInplaceAddRmsNorm, (aclTensor * x1, aclTensor * x2, const aclTensor * gamma, double epsilon,      \
                               const aclTensor * rstd_out, ACLNN_PLAN))                                      \
    X(aclnnGeGlu, (const aclTensor * self, int64_t dim, int64_t approximate, aclTensor * out,                \
                   aclTensor * out_gelu, ACLNN_PLAN))                                                        \
    X(aclnnRotaryPositionEmbedding, (const aclTensor * x, const aclTensor * cos, const aclTensor * sin,      \
                                     int64_t mode, aclTensor * out, ACLNN_PLAN))                             \
    X(aclnnApplyRotaryPosEmb, (aclTensor * query, aclTensor * key, const aclTensor * cos,                    \
                               const aclTensor * sin, int64_t layout, ACLNN_PLAN))                           \
    X(aclnnFlashAttentionScore,                                                                              \
      (const aclTensor * query, const aclTensor * key, const aclTensor * value,                              \
       const aclTensor * real_shift, const aclTensor * drop_mask, const aclTensor * padding_mask,            \
       const aclTensor * atten_mask, const aclIntArray * prefix, double scale, double keep_prob,             \
       int64_t pre_tokens, int64_t next_tokens, int64_t head_num, char * input_layout,                       \
       int64_t inner_precise, int64_t sparse_mode, const aclTensor * softmax_max_out,                        \
       const aclTensor * softmax_sum_out, const aclTensor * softmax_out, const aclTensor * attention_out,    \
       ACLNN_PLAN))                                                                                          \
    X(aclnnPromptFlashAttention,                                                                             \
      (const aclTensor * query, const aclTensor * key, const aclTensor * value, const aclTensor * pse_shift, \
       const aclTensor * atten_mask, const aclIntArray * actual_seq_lengths, int64_t num_heads,              \
       double scale, int64_t pre_tokens, int64_t next_tokens, char * input_layout,                           \
       int64_t num_key_value_heads, const aclTensor * attention_out, ACLNN_PLAN))                            \
    X(aclnnIncreFlashAttention,                                                                              \
      (const aclTensor * query, const aclTensorList * key, const aclTensorList * value,                      \
       const aclTensor * pse_shift, const aclTensor * atten_mask, const aclIntArray * actual_seq_lengths,    \
       int64_t num_heads, double scale, char * input_layout, int64_t num_key_value_heads,                    \
       const aclTensor * attention_out, ACLNN_PLAN))                                                         \
    X(aclnnWeightQuantBatchMatmulV2,                                                                         \
      (const aclTensor * x, const aclTensor * weight, const aclTensor * antiquant_scale,                     \
       const aclTensor * antiquant_offset, const aclTensor * quant_scale, const aclTensor * quant_offset,    \
       const aclTensor * bias, int antiquant_group_size, const aclTensor * y, ACLNN_PLAN))                   \
    X(aclnnWeightQuantBatchMatmulV3,                                                                         \
      (const aclTensor * x, const aclTensor * weight, const aclTensor * antiquant_scale,                     \
       const aclTensor * antiquant_offset, const aclTensor * quant_scale, const aclTensor * quant_offset,    \
       const aclTensor * bias, int antiquant_group_size, int inner_precise, const aclTensor * y,             \
       ACLNN_PLAN))                                                                                          \
    X(aclnnQuantMatmul, (const aclTensor * x1, const aclTensor * x2, const aclTensor * bias,                 \
                         float deq_scale, aclTensor * out, ACLNN_PLAN))                                      \
    X(aclnnQuantMatmulV3,                                                                                    \
      (const aclTensor * x1, const aclTensor * x2, const aclTensor * scale, const aclTensor * offset,        \
       const aclTensor * bias, bool transpose_x1, bool transpose_x2, const aclTensor * out, ACLNN_PLAN))     \
    X(aclnnQuantMatmulV4,                                                                                    \
      (const aclTensor * x1, const aclTensor * x2, const aclTensor * scale, const aclTensor * offset,        \
       const aclTensor * pertoken_scale, const aclTensor * bias, bool transpose_x1, bool transpose_x2,       \
       const aclTensor * out, ACLNN_PLAN))                                                                   \
    X(aclnnDynamicQuant, (const aclTensor * x, const aclTensor * smooth_scales, const aclTensor * y_out,     \
                          const aclTensor * scale_out, ACLNN_PLAN))                                          \
    X(aclnnAscendQuant,                                                                                      \
      (const aclTensor * x, const aclTensor * scale, const aclTensor * offset, bool sqrt_mode,               \
       const char * round_mode, int32_t dst_type, const aclTensor * y, ACLNN_PLAN))                          \
    X(aclnnMatmulWeightNz,                                                                                   \
      (const aclTensor * self, const aclTensor * mat2, aclTensor * out, int8_t cube_math_type, ACLNN_PLAN))  \
    X(aclnnAddmmWeightNz,                                                                                    \
      (const aclTensor * self, const aclTensor * mat1, const aclTensor * mat2, const aclScalar * beta,       \
       const aclScalar * alpha, aclTensor * out, int8_t cube_math_type, ACLNN_PLAN))                         \
    X(aclnnNpuFormatCast, (const aclTensor * src, aclTensor * dst, ACLNN_PLAN))                              \
    X(aclnnTopk, (const aclTensor * self, int64_t k, int64_t dim, bool largest, bool sorted,                 \
                  aclTensor * values_out, aclTensor * indices_out, ACLNN_PLAN))                              \
    X(aclnnSort, (const aclTensor * self, bool stable, int64_t dim, bool descending, aclTensor * values_out, \
                  aclTensor * indices_out, ACLNN_PLAN))                                                      \
    X(aclnnArgsort, (const aclTensor * self, int64_t dim, bool descending, aclTensor * out, ACLNN_PLAN))     \
    X(aclnnGather,                                                                                           \
      (const aclTensor * self, int64_t dim, const aclTensor * index, aclTensor * out, ACLNN_PLAN))           \
    X(aclnnSWhere, (const aclTensor * condition, const aclTensor * self, const aclTensor * other,            \
                    aclTensor * out, ACLNN_PLAN))                                                            \
    X(aclnnFlip, (const aclTensor * self, const aclIntArray * dims, aclTensor * out, ACLNN_PLAN))            \
    X(aclnnDot, (const aclTensor * self, const aclTensor * tensor, aclTensor * out, ACLNN_PLAN))             \
    X(aclnnAtan2, (const aclTensor * self, const aclTensor * other, aclTensor * out, ACLNN_PLAN))            \
    X(aclnnLerps, (const aclTensor * self, const aclTensor * end, const aclScalar * weight, aclTensor * out, \
                   ACLNN_PLAN))                                                                              \
    X(aclnnDiag, (const aclTensor * self, int64_t diagonal, aclTensor * out, ACLNN_PLAN))                    \
    X(aclnnSoftplus, (const aclTensor * self, const aclScalar * beta, const aclScalar * threshold,           \
                      aclTensor * out, ACLNN_PLAN))                                                          \
    X(aclnnMish, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                      \
    X(aclnnIsClose, (const aclTensor * self, const aclTensor * other, double rtol, double atol,              \
                     bool equal_nan, aclTensor * out, ACLNN_PLAN))                                           \
    X(aclnnDropoutDoMask,                                                                                    \
      (const aclTensor * self, const aclTensor * mask, double prob, aclTensor * out, ACLNN_PLAN))            \
    X(aclnnRemainderTensorTensor,                                                                            \
      (const aclTensor * self, const aclTensor * other, aclTensor * out, ACLNN_PLAN))                        \
    X(aclnnBatchNorm,                                                                                        \
      (const aclTensor * input, const aclTensor * weight, const aclTensor * bias, aclTensor * running_mean,  \
       aclTensor * running_var, bool training, double momentum, double eps, aclTensor * output,              \
       aclTensor * save_mean, aclTensor * save_invstd, ACLNN_PLAN))                                          \
    X(aclnnAvgPool2d, (const aclTensor * self, const aclIntArray * kernel_size, const aclIntArray * strides, \
                       const aclIntArray * paddings, bool ceil_mode, bool count_include_pad,                 \
                       int64_t divisor_override, int8_t cube_math_type, aclTensor * out, ACLNN_PLAN))        \
    X(aclnnIsInf, (const aclTensor * self, aclTensor * out, ACLNN_PLAN))                                     \
    X(aclnnIndexCopy, (aclTensor * self, int64_t dim, const aclTensor * index, const aclTensor * source,     \
                       aclTensor * out, ACLNN_PLAN))                                                         \
    X(aclnnInplaceIndexCopy,                                                                                 \
      (aclTensor * self, int64_t dim, const aclTensor * index, const aclTensor * source, ACLNN_PLAN))

#define ACLNN_REFUSED_OPS(X) ACLNN_PROBED_OPS(X) ACLNN_NEVER_OPS(X)
#define ACLNN_OPS(X) ACLNN_USED_OPS(X) ACLNN_REFUSED_OPS(X)

// Functions of libopapi that are no operators: X(result, name, (arguments)).
// V1: 2-D, returns align16(d0) * align16(d1) ELEMENTS. V2: refused by a 310B (361001).
#define ACLNN_PLAIN_FUNCTIONS(X)                                                                             \
    X(aclnnStatus, aclnnCalculateMatmulWeightSize, (const aclIntArray * shape, uint64_t * n_elements))       \
    X(aclnnStatus, aclnnCalculateMatmulWeightSizeV2,                                                         \
      (const aclIntArray * shape, aclDataType dtype, uint64_t * n_elements))

// Phase 2 of every operator.
typedef aclnnStatus (*aclnnRunFunction)(void * workspace, uint64_t workspace_size, aclOpExecutor * executor,
                                        aclrtStream stream);

#ifndef ACL310B_NO_PROTOTYPES
#ifdef __cplusplus
extern "C" {
#endif
#define ACLNN_PROTOTYPE(name, arguments)                                                                     \
    aclnnStatus name##GetWorkspaceSize arguments;                                                            \
    aclnnStatus name(void * workspace, uint64_t workspace_size, aclOpExecutor * executor, aclrtStream stream);
ACLNN_OPS(ACLNN_PROTOTYPE)
#undef ACLNN_PROTOTYPE
#define ACLNN_PROTOTYPE(result, name, arguments) result name arguments;
ACLNN_PLAIN_FUNCTIONS(ACLNN_PROTOTYPE)
#undef ACLNN_PROTOTYPE
#ifdef __cplusplus
}
#endif
#endif
