// What the tests of phase 1 share: one call of it, tensors of every kind, tables of rows.
#pragma once

#include "sim-ops-client.h"

namespace client {

inline constexpr aclnnStatus kOk = 0, kNull = 161001, kInvalid = 161002, kRuntime = 361001, kInner = 561000,
                             kInnerNull = 561103;

// One phase 1; an accepted plan is thrown away.
template <typename First, typename... Args> aclnnStatus probe(First first, Args &&... args) {
    uint64_t n_bytes         = 0;
    aclOpExecutor * executor = nullptr;
    const aclnnStatus code   = first(args..., &n_bytes, &executor);
    if (code == kOk) {
        CHECK_EQ(aclDestroyAclOpExecutor(executor), 0);
    } else {
        CHECK(executor == nullptr);
        CHECK(aclGetRecentErrMsg() != nullptr); // every refusal says why
    }
    return code;
}

#define PROBE(Name, ...) probe(aclnn##Name##GetWorkspaceSize, __VA_ARGS__)

// 64 x 64 tensors of every kind, and what else the calls want.
struct Things {
    Board board;
    Array half{board, ACL_FLOAT16, 4096}, half2{board, ACL_FLOAT16, 4096}, half3{board, ACL_FLOAT16, 4096};
    Array single{board, ACL_FLOAT, 4096}, single2{board, ACL_FLOAT, 4096};
    Array brain{board, ACL_BF16, 4096}, brain2{board, ACL_BF16, 4096};
    Array bytes{board, ACL_INT8, 4096}, words{board, ACL_INT32, 4096}, longs{board, ACL_INT64, 4096};
    Array flags{board, ACL_BOOL, 4096}, row_index{board, ACL_INT64, 64}, fine_index{board, ACL_DOUBLE, 64};
    Tensor h{half, {64, 64}}, h2{half2, {64, 64}}, h3{half3, {64, 64}}, hv{half2, {64}}, h1{half3, {1}};
    Tensor f{single, {64, 64}}, f2{single2, {64, 64}}, fv{single2, {64}}, fr{single2, {64, 1}};
    Tensor b{brain, {64, 64}}, b2{brain2, {64, 64}}, bv{brain2, {64}};
    Tensor i8{bytes, {64, 64}}, i32{words, {64, 64}}, i64{longs, {64, 64}}, yes{flags, {64, 64}},
        rows{row_index, {64}};
    Tensor h4{half, {1, 1, 64, 64}}, h4b{half2, {1, 1, 64, 64}}, cos{half3, {1, 1, 1, 64}};
    Tensor f_index{fine_index, {64}};
    Scalar one{1.0F};
    Ints dim1{64}, last{-1}, two{2, 2}, pair{1, 1}, no_pad{0, 0};
    char layout[5] = "BNSD";
};

struct Row {
    std::string name;
    aclnnStatus want;
    std::function<aclnnStatus(Things &)> call;
};

#define REFUSES(name, code, expression)                                                                      \
    Row {                                                                                                    \
        name, code, [](Things & t) -> aclnnStatus { return expression; }                                     \
    }

inline void judge(const std::vector<Row> & rows) {
    Things things;
    for (const Row & row : rows) {
        const aclnnStatus got = row.call(things);
        if (got != row.want) {
            check::report(__FILE__, __LINE__,
                          row.name + ": got " + std::to_string(got) + ", a 310B answers " +
                              std::to_string(row.want));
        }
    }
}

inline aclnnStatus attention(Things & t, bool prompt) {
    if (prompt) {
        return PROBE(PromptFlashAttention, t.h4, t.h4, t.h4, nullptr, nullptr, nullptr, (int64_t) 1, 0.125,
                     (int64_t) 64, (int64_t) 0, t.layout, (int64_t) 1, t.h4b);
    }
    const aclTensor * member = Tensor(t.half, {1, 1, 64, 64}).release();
    aclTensorList * list     = aclCreateTensorList(&member, 1);
    const aclnnStatus code   = PROBE(IncreFlashAttention, t.h4, list, list, nullptr, nullptr, nullptr,
                                     (int64_t) 1, 0.125, t.layout, (int64_t) 1, t.h4b);
    aclDestroyTensorList(list);
    return code;
}

inline aclnnStatus cat(Array & x, Array & y) {
    const aclTensor * parts[] = {Tensor(x, {2, 4}).release(), Tensor(x, {2, 4}).release()};
    aclTensorList * list      = aclCreateTensorList(parts, 2);
    const Tensor out(y, {4, 4});
    const aclnnStatus code = PROBE(Cat, list, (int64_t) 0, out);
    aclDestroyTensorList(list);
    return code;
}

// Matmul [m,k] x [k,n] on made-up memory: only phase 1 looks at it.
struct Weight {
    aclDataType self = ACL_FLOAT16, mat2 = ACL_FLOAT16, out = ACL_FLOAT16;
    bool nz = false, transposed = false;
    int8_t cube_math_type = 0;
    aclFormat format      = ACL_FORMAT_UNDEFINED; // instead of FRACTAL_NZ
    uint64_t workspace    = 0;
};

inline aclnnStatus product_of(int64_t m, int64_t k, int64_t n, Weight w = {},
                              uint64_t * workspace = nullptr) {
    alignas(64) static char nowhere[64];
    const Dims da = {m, k}, db = {k, n}, dy = {m, n}, plain = {n, 1}, turned = {1, k};
    const Dims fractal = {(n + 15) / 16, (k + 15) / 16, 16, 16}, flat = {k * n};
    const aclFormat nz = w.format != ACL_FORMAT_UNDEFINED ? w.format : ACL_FORMAT_FRACTAL_NZ;
    const Dims & store = w.nz ? fractal : flat;
    aclTensor * a = aclCreateTensor(da.data(), 2, w.self, nullptr, 0, ACL_FORMAT_ND, da.data(), 2, nowhere);
    aclTensor * b = aclCreateTensor(db.data(), 2, w.mat2, (w.transposed ? turned : plain).data(), 0,
                                    w.nz ? nz : ACL_FORMAT_ND, store.data(), store.size(), nowhere);
    aclTensor * y = aclCreateTensor(dy.data(), 2, w.out, nullptr, 0, ACL_FORMAT_ND, dy.data(), 2, nowhere);
    uint64_t n_bytes         = 0;
    aclOpExecutor * executor = nullptr;
    const aclnnStatus code   = aclnnMatmulGetWorkspaceSize(a, b, y, w.cube_math_type, &n_bytes, &executor);
    if (code == kOk) {
        aclDestroyAclOpExecutor(executor);
    }
    if (workspace != nullptr) {
        *workspace = n_bytes;
    }
    aclDestroyTensor(a);
    aclDestroyTensor(b);
    aclDestroyTensor(y);
    return code;
}

inline Weight nz_weight(bool transposed) {
    Weight w;
    w.nz         = true;
    w.transposed = transposed;
    return w;
}

struct MatmulRow {
    std::string name;
    aclnnStatus want;
    int64_t m, k, n;
    Weight weight;
};

inline void judge_matmul(const std::vector<MatmulRow> & rows) {
    const Board board;
    for (const MatmulRow & row : rows) {
        const aclnnStatus got = product_of(row.m, row.k, row.n, row.weight);
        if (got != row.want) {
            check::report(__FILE__, __LINE__,
                          row.name + ": got " + std::to_string(got) + ", a 310B answers " +
                              std::to_string(row.want));
        }
    }
}

} // namespace client
