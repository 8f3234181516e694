// supports_op: exactly what the operators here compute and a 310B accepts; the rest stays with the CPU.
#include "buffer.h"
#include "runner.h"

#include <algorithm>

namespace cann310b {
namespace {

bool is_float(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 || t->type == GGML_TYPE_F16;
}

bool is_f32(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F32;
}

// A tensor of ggml strides that are whole elements, as an aclTensor has them. A quantised one is stored
// densely.
bool has_element_strides(const ggml_tensor * t) {
    if (is_stored_as_f16(t)) {
        return t->view_src == nullptr && ggml_is_contiguous(t);
    }
    const size_t size = ggml_type_size(t->type);
    return std::all_of(std::begin(t->nb), std::end(t->nb), [&](size_t nb) { return nb % size == 0; });
}

// b repeats over a only along whole dimensions (ggml would also repeat a row of 2 over one of 6).
bool broadcasts(const ggml_tensor * a, const ggml_tensor * b) {
    for (int d = 0; d < GGML_MAX_DIMS; ++d) {
        if (b->ne[d] != a->ne[d] && b->ne[d] != 1) {
            return false;
        }
    }
    return true;
}

bool supports_mul_mat(const ggml_tensor * op) {
    const ggml_tensor *a = op->src[0], *b = op->src[1];
    const bool a_known = is_float(a) || is_stored_as_f16(a);
    // The batched form reads heads as rows of one product: src1's heads must be a multiple, which ggml
    // promises.
    return a_known && is_float(b) && is_f32(op) && a->ne[0] > 0 && ggml_is_contiguous(op);
}

bool supports_rope(const ggml_tensor * op) {
    const int n_dims = ggml_get_op_params_i32(op, 1), mode = ggml_get_op_params_i32(op, 2);
    const float extrapolate = ggml_get_op_params_f32(op, 7);
    return (mode == GGML_ROPE_TYPE_NORMAL || mode == GGML_ROPE_TYPE_NEOX) && extrapolate == 0.0F &&
           n_dims % 2 == 0 && n_dims > 0 && n_dims <= op->src[0]->ne[0] && is_float(op->src[0]) &&
           op->type == op->src[0]->type && op->src[1]->type == GGML_TYPE_I32 && op->src[0]->ne[3] == 1 &&
           op->src[1]->ne[0] == op->src[0]->ne[2] && (op->src[2] == nullptr || is_f32(op->src[2]));
}

bool supports_soft_max(const ggml_tensor * op) {
    const ggml_tensor *x = op->src[0], *mask = op->src[1];
    if (!is_f32(x) || !is_f32(op) || op->src[2] != nullptr || ggml_get_op_params_f32(op, 1) != 0.0F) {
        return false; // no sinks, no ALiBi
    }
    return mask == nullptr || (is_float(mask) && (mask->ne[2] == 1 || mask->ne[2] == x->ne[2]) &&
                               (mask->ne[3] == 1 || mask->ne[3] == x->ne[3]) && mask->ne[1] >= x->ne[1]);
}

bool supports_unary(const ggml_tensor * op) {
    if (!is_float(op->src[0]) || op->type != op->src[0]->type) {
        return false;
    }
    switch (ggml_get_unary_op(op)) {
    case GGML_UNARY_OP_ABS:
    case GGML_UNARY_OP_NEG:
    case GGML_UNARY_OP_EXP:
    case GGML_UNARY_OP_TANH:
    case GGML_UNARY_OP_SIGMOID:
    case GGML_UNARY_OP_RELU:
    case GGML_UNARY_OP_SILU:
    case GGML_UNARY_OP_GELU:
    case GGML_UNARY_OP_GELU_ERF:
    case GGML_UNARY_OP_GELU_QUICK:
        return true;
    default:
        return false;
    }
}

bool supports_glu(const ggml_tensor * op) {
    switch (ggml_get_glu_op(op)) {
    case GGML_GLU_OP_SWIGLU:
    case GGML_GLU_OP_GEGLU:
    case GGML_GLU_OP_REGLU:
    case GGML_GLU_OP_GEGLU_ERF:
    case GGML_GLU_OP_GEGLU_QUICK:
        break;
    default:
        return false;
    }
    return is_float(op->src[0]) && op->type == op->src[0]->type &&
           (op->src[1] == nullptr || op->src[1]->type == op->type);
}

bool is_copy(const ggml_tensor * from, const ggml_tensor * to) {
    return (is_float(from) && is_float(to)) || (from->type == GGML_TYPE_I32 && to->type == GGML_TYPE_I32);
}

} // namespace

bool supports(const ggml_tensor * op) {
    if (!has_element_strides(op)) {
        return false;
    }
    for (const ggml_tensor * s : op->src) {
        if (s != nullptr && !has_element_strides(s)) {
            return false;
        }
    }
    const ggml_tensor *a = op->src[0], *b = op->src[1];
    switch (op->op) {
    case GGML_OP_NONE:
    case GGML_OP_VIEW:
    case GGML_OP_RESHAPE:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
        return true;
    case GGML_OP_MUL_MAT:
        return supports_mul_mat(op);
    case GGML_OP_ADD:
    case GGML_OP_SUB:
    case GGML_OP_MUL:
    case GGML_OP_DIV:
        return is_float(a) && is_float(b) && op->type == a->type && broadcasts(a, b) &&
               !(a->type == GGML_TYPE_F16 && is_f32(b));
    case GGML_OP_SCALE:
        return is_f32(a) && is_f32(op);
    case GGML_OP_SQR:
    case GGML_OP_SQRT:
    case GGML_OP_LOG:
    case GGML_OP_SIN:
    case GGML_OP_COS:
    case GGML_OP_CLAMP:
        return is_float(a) && op->type == a->type;
    case GGML_OP_UNARY:
        return supports_unary(op);
    case GGML_OP_GLU:
        return supports_glu(op);
    case GGML_OP_NORM:
    case GGML_OP_RMS_NORM:
    case GGML_OP_SUM_ROWS:
    case GGML_OP_MEAN:
        return is_f32(a) && is_f32(op);
    case GGML_OP_SOFT_MAX:
        return supports_soft_max(op);
    case GGML_OP_ROPE:
        return supports_rope(op);
    case GGML_OP_GET_ROWS:
        return (is_float(a) || is_stored_as_f16(a)) && b->type == GGML_TYPE_I32 && is_f32(op);
    case GGML_OP_SET_ROWS:
        return is_f32(a) && (b->type == GGML_TYPE_I64 || b->type == GGML_TYPE_I32) && is_float(op);
    case GGML_OP_CPY:
    case GGML_OP_CONT:
    case GGML_OP_DUP:
        return is_copy(a, op);
    case GGML_OP_CONCAT:
        return is_float(a) && a->type == b->type && op->type == a->type;
    case GGML_OP_REPEAT:
        return is_float(a) && op->type == a->type;
    default:
        return false;
    }
}

} // namespace cann310b
