// Fused operators: which of them this board has, and what they replace. Real 310B boards refused them all so
// far (fact sheet 4.4, 5); a later kernel package may bring them, and phase 1 tells without launching
// anything.
#include "runner.h"

namespace cann310b {
namespace {

constexpr int64_t kProbeRows = 4, kProbeColumns = 64;

// The row that holds `left` and then `right`, when they lie so.
bool joined(const Loc & left, const Loc & right, Loc & whole) {
    whole       = left;
    whole.ne[0] = 2 * left.ne[0];
    return left.base == right.base && left.dtype == right.dtype && left.ne == right.ne &&
           left.st == right.st && right.offset == left.offset + left.ne[0] && whole.is_contiguous();
}

} // namespace

template <typename First, typename... Args>
bool Runner::accepts(First first, aclnnRunFunction second, Args... args) {
    uint64_t n_workspace     = 0;
    aclOpExecutor * executor = nullptr;
    if (first == nullptr || second == nullptr || first(args..., &n_workspace, &executor) != 0) {
        acl().aclGetRecentErrMsg(); // an expected answer: nobody is to find it later
        return false;
    }
    if (acl().aclDestroyAclOpExecutor != nullptr) {
        acl().aclDestroyAclOpExecutor(executor);
    } else { // running it is the only way to be rid of the plan
        check(second(n_workspace > 0 ? workspace_for(n_workspace) : nullptr, n_workspace, executor, stream_),
              "a fused operator");
        synchronize();
    }
    return true;
}

const Fused & Runner::fused() {
    static std::mutex lock;
    static Fused found;
    static bool is_known = false;
    const std::lock_guard<std::mutex> guard(lock);
    if (is_known) {
        return found;
    }
    AclLibrary & l   = acl();
    const size_t at  = temporary_at_;
    const Loc x      = temporary({kProbeColumns, kProbeRows, 1, 1}, ACL_FLOAT);
    const Loc y      = temporary(x.ne, ACL_FLOAT);
    const Loc row    = temporary({kProbeColumns, 1, 1, 1}, ACL_FLOAT);
    const Loc column = temporary({1, kProbeRows, 1, 1}, ACL_FLOAT);
    const Loc wide   = temporary({2 * kProbeColumns, kProbeRows, 1, 1}, ACL_FLOAT16);
    const Loc half   = temporary({kProbeColumns, kProbeRows, 1, 1}, ACL_FLOAT16);
    const Loc kept   = temporary(half.ne, ACL_FLOAT16);
    const Tensor tx = tensor(x, 2), ty = tensor(y, 2), tw = tensor(row, 1), tr = tensor(column, 2);
    const Tensor ta = tensor(wide, 2), tb = tensor(half, 2), tc = tensor(kept, 2);
    const Ints shape      = ints({kProbeColumns});
    const double eps      = 1e-6;
    const int64_t is_tanh = 1, last = -1;

    found.rms_norm =
        accepts(l.aclnnRmsNormGetWorkspaceSize, l.aclnnRmsNorm, tx.get(), tw.get(), eps, ty.get(), tr.get());
    found.layer_norm =
        accepts(l.aclnnLayerNormGetWorkspaceSize, l.aclnnLayerNorm, tx.get(), shape.get(), tw.get(), tw.get(),
                eps, ty.get(), static_cast<aclTensor *>(nullptr), static_cast<aclTensor *>(nullptr));
    found.swi_glu = accepts(l.aclnnSwiGluGetWorkspaceSize, l.aclnnSwiGlu, ta.get(), last, tb.get());
    found.ge_glu  = accepts(l.aclnnGeGluV3GetWorkspaceSize, l.aclnnGeGluV3, ta.get(), last, is_tanh, true,
                            tb.get(), tc.get());
    temporary_at_ = at;
    is_known      = true;

    std::vector<std::string> names;
    for (const auto & [has, name] : {std::pair{found.rms_norm, "aclnnRmsNorm"},
                                     {found.layer_norm, "aclnnLayerNorm"},
                                     {found.swi_glu, "aclnnSwiGlu"},
                                     {found.ge_glu, "aclnnGeGluV3"}}) {
        if (has) {
            names.emplace_back(name);
        }
    }
    device().note_fused(names);
    return found;
}

bool Runner::fused_norm(const ggml_tensor * dst, const ggml_tensor * weight, const ggml_tensor * bias,
                        const Loc & out) {
    const bool is_rms = dst->op == GGML_OP_RMS_NORM;
    const Loc x       = loc(dst->src[0]);
    if (weight == nullptr || (bias == nullptr) != is_rms || x.dtype != ACL_FLOAT || !x.is_contiguous() ||
        !(is_rms ? fused().rms_norm : fused().layer_norm)) {
        return false;
    }
    const double eps  = double(ggml_get_op_params_f32(dst, 0));
    const bool direct = out.dtype == ACL_FLOAT && out.is_contiguous() && !overlap(x, out);
    const Loc y       = direct ? out : temporary(x.ne, ACL_FLOAT);
    const Tensor tx = tensor(x, 4), ty = tensor(y, 4), tw = tensor(loc(weight), 1);
    if (is_rms) {
        const Tensor tr = tensor(temporary({1, x.ne[1], x.ne[2], x.ne[3]}, ACL_FLOAT), 4);
        call("aclnnRmsNorm", acl().aclnnRmsNormGetWorkspaceSize, acl().aclnnRmsNorm, tx.get(), tw.get(), eps,
             ty.get(), tr.get());
    } else {
        const Tensor tb = tensor(loc(bias), 1);
        const Ints last = ints({x.ne[0]});
        call("aclnnLayerNorm", acl().aclnnLayerNormGetWorkspaceSize, acl().aclnnLayerNorm, tx.get(),
             last.get(), tw.get(), tb.get(), eps, ty.get(), static_cast<aclTensor *>(nullptr),
             static_cast<aclTensor *>(nullptr));
    }
    if (!direct) {
        cast(y, out);
    }
    return true;
}

// One launch for two, where gate and other half lie side by side (fused matmuls leave them so).
bool Runner::fused_glu(ggml_glu_op op, const Loc & gate, const Loc & other, const Loc & out) {
    Loc whole;
    const bool is_left = joined(gate, other, whole);
    if ((!is_left && !joined(other, gate, whole)) || out.dtype != whole.dtype || !out.is_contiguous() ||
        overlap(whole, out)) {
        return false;
    }
    const Tensor x = tensor(whole, 4), y = tensor(out, 4);
    if (op == GGML_GLU_OP_SWIGLU && is_left && fused().swi_glu) {
        call("aclnnSwiGlu", acl().aclnnSwiGluGetWorkspaceSize, acl().aclnnSwiGlu, x.get(), int64_t{-1},
             y.get());
        return true;
    }
    if ((op == GGML_GLU_OP_GEGLU || op == GGML_GLU_OP_GEGLU_ERF) && fused().ge_glu) {
        const Tensor kept = tensor(temporary(out.ne, out.dtype), 4);
        call("aclnnGeGluV3", acl().aclnnGeGluV3GetWorkspaceSize, acl().aclnnGeGluV3, x.get(), int64_t{-1},
             int64_t{op == GGML_GLU_OP_GEGLU}, is_left, y.get(), kept.get());
        return true;
    }
    return false;
}

} // namespace cann310b
