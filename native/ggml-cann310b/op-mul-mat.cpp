// MUL_MAT. The chip's rule (fact sheet 4.2): FP16 times FP16; without any conversion only if M, K and N are
// multiples of 16 and the weight is ND, or with the weight in FRACTAL_NZ below 16 rows.
#include "buffer.h"
#include "runner.h"

#include <algorithm>

namespace cann310b {
namespace {

constexpr int64_t kTile     = 16;
constexpr int8_t kKeepTypes = 0; // cubeMathType: operands are FP16 already

int64_t up16(int64_t n) {
    return (n + kTile - 1) / kTile * kTile;
}

int64_t rows_of(const ggml_tensor * t) {
    return ggml_nelements(t) / t->ne[0];
}

} // namespace

// out[m, n] = x[m, k] * weight[n, k]^T (+ bias[n]); x is dense FP16, out FP16 with any distance between rows.
// At 16 rows and more, x and out have room for a multiple of 16.
void Runner::mul_mat_rows(const Loc & x, int64_t m, const Loc & weight, const char * nz, const char * bias,
                          const Loc & out) {
    const int64_t k = weight.ne[0], n = weight.ne[1];
    const bool use_nz  = nz != nullptr && m < kTile;
    const int64_t rows = use_nz ? m : up16(m);
    const Tensor a     = tensor(x.base, x.offset, ACL_FLOAT16, {rows, k}, {k, 1});
    const Tensor y     = tensor(out.base, out.offset, ACL_FLOAT16, {rows, n}, {out.st[1], 1});
    Tensor b;
    if (use_nz) {
        const std::array<int64_t, 2> ne = {k, n}, st = {n, 1};
        const std::array<int64_t, 4> storage = {n / kTile, k / kTile, kTile, kTile};
        b.reset(acl().aclCreateTensor(ne.data(), 2, ACL_FLOAT16, st.data(), 0, ACL_FORMAT_FRACTAL_NZ,
                                      storage.data(), 4, const_cast<char *>(nz)));
    } else {
        b = tensor(weight.base, weight.offset, ACL_FLOAT16, {k, n}, {1, weight.st[1]});
    }
    if (bias == nullptr) {
        call("aclnnMatmul", acl().aclnnMatmulGetWorkspaceSize, acl().aclnnMatmul, a.get(), b.get(), y.get(),
             kKeepTypes);
        return;
    }
    // The bias may start anywhere; only tensors must start at 32 bytes.
    char * const aligned = const_cast<char *>(bias) - (reinterpret_cast<uintptr_t>(bias) % 32);
    const Tensor plus    = tensor(aligned, (bias - aligned) / 2, ACL_FLOAT16, {n}, {1});
    const Scalar one     = scalar(1.0F);
    call("aclnnAddmm", acl().aclnnAddmmGetWorkspaceSize, acl().aclnnAddmm, plus.get(), a.get(), b.get(),
         one.get(), one.get(), y.get(), kKeepTypes);
}

void Runner::mul_mat_group(const Group & group) {
    const Loc x = dense_f16(loc(group.members[0]->src[1]), up16(group.m));
    if (group.is_merged()) {
        const ggml_tensor * first = group.sums.empty() ? group.members[0] : group.sums[0];
        Loc weight                = loc(group.members[0]->src[0]);
        weight.ne[1]              = group.n;
        mul_mat_rows(x, group.m, weight, group.nz, group.bias, loc(first).reshaped({group.n, group.m, 1, 1}));
        return;
    }
    const char * bias = group.bias;
    for (size_t i = 0; i < group.members.size(); ++i) {
        const ggml_tensor * member = group.members[i];
        const Loc out =
            loc(group.sums.empty() ? member : group.sums[i]).reshaped({member->ne[0], group.m, 1, 1});
        mul_mat_rows(x, group.m, loc(member->src[0]), weight_copy(member->src[0]), bias, out);
        bias += bias != nullptr ? member->ne[0] * 2 : 0;
    }
}

void Runner::op_mul_mat(ggml_tensor * dst) {
    if (const auto group = group_of_.find(dst); group != group_of_.end()) {
        mul_mat_group(groups_[group->second]);
        return;
    }
    const ggml_tensor * src0 = dst->src[0];
    Loc weight               = loc(src0);
    const bool one_matrix    = src0->ne[2] == 1 && src0->ne[3] == 1 && weight.is_contiguous();
    if (!one_matrix) {
        mul_mat_batched(dst);
        return;
    }
    const int64_t m = rows_of(dst->src[1]), n = src0->ne[1];
    weight          = dense_f16(weight);
    const Loc x     = dense_f16(loc(dst->src[1]), up16(m));
    const Loc out   = loc(dst);
    const char * nz = is_our_buffer(src0->buffer) ? weight_copy(src0) : nullptr;
    if (out.dtype == ACL_FLOAT16) {
        mul_mat_rows(x, m, weight, nz, nullptr, out.reshaped({n, m, 1, 1}));
        return;
    }
    Loc half = temporary({n, up16(m), 1, 1}, ACL_FLOAT16);
    mul_mat_rows(x, m, weight, nz, nullptr, half);
    half.ne[1] = m;
    cast(half, out.reshaped({n, m, 1, 1}));
}

// Attention's products: a matrix per head, several query heads to one key head. The query heads of one key
// head are rows of one product, so a key is read once.
void Runner::mul_mat_batched(const ggml_tensor * dst) {
    Loc a = loc(dst->src[0]);
    if (a.dtype != ACL_FLOAT16) {
        a = dense_f16(a);
    }
    const Loc x       = dense_f16(loc(dst->src[1]));
    const Loc out     = loc(dst);
    const bool direct = out.dtype == ACL_FLOAT16 && out.is_contiguous();
    const Loc half    = direct ? out : temporary(out.ne, ACL_FLOAT16);
    const int64_t k = a.ne[0], n = a.ne[1], heads = a.ne[2];
    const int64_t rows = x.ne[1] * (x.ne[2] / heads);
    for (int64_t i = 0; i < x.ne[3]; ++i) {
        const int64_t j = i / (x.ne[3] / a.ne[3]);
        const Tensor in =
            tensor(x.base, x.offset + i * x.st[3], ACL_FLOAT16, {heads, rows, k}, {rows * k, k, 1});
        const Tensor by =
            tensor(a.base, a.offset + j * a.st[3], ACL_FLOAT16, {heads, k, n}, {a.st[2], a.st[0], a.st[1]});
        const Tensor res =
            tensor(half.base, half.offset + i * half.st[3], ACL_FLOAT16, {heads, rows, n}, {rows * n, n, 1});
        call("aclnnMatmul", acl().aclnnMatmulGetWorkspaceSize, acl().aclnnMatmul, in.get(), by.get(),
             res.get(), kKeepTypes);
    }
    if (!direct) {
        cast(half, out);
    }
}

} // namespace cann310b
