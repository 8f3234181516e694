// libopapi.so: operators along a dimension: soft max, sums, means, layer norm, arg max, running sums.
#include "acl310b/aclnn-api.h"
#include "sim-core.h"
#include "sim-op.h"

#include <algorithm>

using namespace sim;

namespace {

const std::vector<aclDataType> kSummable = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_INT32, ACL_INT64,
                                            ACL_INT8,  ACL_INT16,   ACL_UINT8,  ACL_BOOL};

// s seen with the reduced dims kept at extent 1.
Span with_kept_dims(const Span & s, const std::vector<bool> & reduced, bool has_them) {
    if (has_them) {
        return s;
    }
    Span k = s;
    k.rank = (int) reduced.size();
    int at = 0;
    for (int d = 0; d < k.rank; ++d) {
        k.ne[d]     = reduced[(size_t) d] ? 1 : s.ne[at];
        k.stride[d] = reduced[(size_t) d] ? 0 : s.stride[at];
        at += reduced[(size_t) d] ? 0 : 1;
    }
    return k;
}

std::vector<int64_t> reduced_shape(const std::vector<int64_t> & ne, const std::vector<bool> & reduced,
                                   bool keep) {
    std::vector<int64_t> out;
    for (size_t d = 0; d < ne.size(); ++d) {
        if (!reduced[d] || keep) {
            out.push_back(reduced[d] ? 1 : ne[d]);
        }
    }
    return out;
}

aclnnStatus softmax_op(const char * op, const aclTensor * self, int64_t dim, const aclTensor * out, bool log,
                       uint64_t * size, aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int x = p.in("self", self), y = p.out("out", out);
        p.dtypes({x, y}, {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE});
        p.require_same_shape(x, y);
        const int d = p.dim("dim", dim, p.rank(x));
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.allow_alias();
        p.run([=](const Spans & s) { softmax(s[x], d, s[y], log); });
    });
}

aclnnStatus sum_op(const char * op, const aclTensor * self, const aclIntArray * dims, bool keep,
                   aclDataType dtype, const aclTensor * out, bool mean, uint64_t * size,
                   aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int x                      = p.in("self", self);
        const std::vector<int64_t> along = p.integers(mean ? "dim" : "dims", dims);
        const int y                      = p.out("out", out);
        const std::vector<aclDataType> allowed =
            mean ? std::vector<aclDataType>{ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE} : kSummable;
        p.dtypes({x, y}, allowed);
        p.require(p.shape(y).dtype == dtype,
                  std::string("dtype is ") + dtype_name(dtype) + ", out is " + p.shape(y).text());
        std::vector<bool> reduced((size_t) p.rank(x), along.empty()); // no dim named: all
        for (const int64_t d : along) {
            const auto at = (size_t) p.dim("dim", d, p.rank(x));
            p.require(at >= reduced.size() || !reduced[at], "dim " + dims_text(along) + " names a dim twice");
            if (at < reduced.size()) {
                reduced[at] = true;
            }
        }
        p.require_shape(y, reduced_shape(p.ne(x), reduced, keep));
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) { reduce_sum(s[x], with_kept_dims(s[y], reduced, keep), mean); });
    });
}

} // namespace

ACLNN_EXPORT aclnnStatus aclnnSoftmaxGetWorkspaceSize(const aclTensor * self, int64_t dim, aclTensor * out,
                                                      uint64_t * size, aclOpExecutor ** executor) {
    return softmax_op("aclnnSoftmax", self, dim, out, false, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnLogSoftmaxGetWorkspaceSize(const aclTensor * self, int64_t dim, aclTensor * out,
                                                         uint64_t * size, aclOpExecutor ** executor) {
    return softmax_op("aclnnLogSoftmax", self, dim, out, true, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnMeanGetWorkspaceSize(const aclTensor * self, const aclIntArray * dim,
                                                   bool keep_dim, aclDataType dtype, aclTensor * out,
                                                   uint64_t * size, aclOpExecutor ** executor) {
    return sum_op("aclnnMean", self, dim, keep_dim, dtype, out, true, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnReduceSumGetWorkspaceSize(const aclTensor * self, const aclIntArray * dims,
                                                        bool keep_dims, aclDataType dtype, aclTensor * out,
                                                        uint64_t * size, aclOpExecutor ** executor) {
    return sum_op("aclnnReduceSum", self, dims, keep_dims, dtype, out, false, size, executor);
}

ACLNN_EXPORT aclnnStatus aclnnLayerNormGetWorkspaceSize(const aclTensor * input,
                                                        const aclIntArray * normalized_shape,
                                                        const aclTensor * weight, const aclTensor * bias,
                                                        double eps, aclTensor * out, aclTensor * mean_out,
                                                        aclTensor * rstd_out, uint64_t * size,
                                                        aclOpExecutor ** executor) {
    return plan_op("aclnnLayerNorm", size, executor, [&](Plan & p) {
        const int x                     = p.in("input", input);
        const std::vector<int64_t> norm = p.integers("normalizedShape", normalized_shape);
        const int w = p.in_optional("weight", weight), b = p.in_optional("bias", bias);
        const int y = p.out("out", out);
        const int m = p.out_optional("meanOut", mean_out), r = p.out_optional("rstdOut", rstd_out);
        p.dtypes({x, w, b, y, m, r}, kFloats);
        if (p.shape(x).dtype == ACL_FLOAT && !is_accepted(p.op())) {
            p.refuse(kAclnnInnerNull, "no FP32 kernel for LayerNorm on a 310B (4.4); use FP16 or compose it");
        }
        p.require_same_dtype(x, y);
        p.require_same_shape(x, y);
        const std::vector<int64_t> & ne = p.ne(x);
        p.require(!norm.empty() && norm.size() <= ne.size() &&
                      std::equal(norm.rbegin(), norm.rend(), ne.rbegin()),
                  "normalizedShape " + dims_text(norm) + " is no tail of " + p.shape(x).text());
        std::vector<int64_t> rows = ne;
        std::fill(rows.end() - (int64_t) norm.size(), rows.end(), 1);
        for (const int i : {w, b}) {
            if (i >= 0) {
                p.require_shape(i, norm);
            }
        }
        for (const int i : {m, r}) {
            if (i >= 0) {
                p.require_shape(i, rows);
            }
        }
        for (int i = 0; i < p.n_operands(); ++i) {
            p.make_contiguous(i);
        }
        p.allow_alias(x);
        const auto n_norm = (int64_t) norm.size();
        p.run([=](const Spans & s) {
            const auto optional = [&](int i) { return i >= 0 ? &s[(size_t) i] : nullptr; };
            layer_norm(s[x], n_norm, optional(w), optional(b), eps, s[y], optional(m), optional(r));
        });
    });
}

namespace {

// dim < 0 values: with keepdim or without.
aclnnStatus arg_max_op(const char * op, const aclTensor * self, int64_t dim, bool keep,
                       const aclTensor * values, const aclTensor * indices, bool has_values, uint64_t * size,
                       aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int x = p.in("self", self);
        const int v = has_values ? p.out("out", values) : -1;
        const int i = p.out(has_values ? "indices" : "out", indices);
        p.dtypes({x, v}, kSummable);
        p.dtypes({i}, kIndices);
        const int d = p.dim("dim", dim, p.rank(x));
        p.require(p.rank(x) > 0 && p.ne(x)[(size_t) d] > 0, "nothing to choose from in " + p.shape(x).text());
        std::vector<bool> reduced((size_t) p.rank(x), false);
        reduced[(size_t) d] = true;
        p.require_shape(i, reduced_shape(p.ne(x), reduced, keep));
        if (v >= 0) {
            p.require_same_dtype(x, v);
            p.require_same_shape(i, v);
        }
        for (int o = 0; o < p.n_operands(); ++o) {
            p.make_contiguous(o);
        }
        p.run([=](const Spans & s) {
            const Span kept = with_kept_dims(s[(size_t) i], reduced, keep);
            if (v < 0) {
                arg_max(s[x], d, nullptr, kept);
                return;
            }
            const Span kept_values = with_kept_dims(s[(size_t) v], reduced, keep);
            arg_max(s[x], d, &kept_values, kept);
        });
    });
}

} // namespace

ACLNN_EXPORT aclnnStatus aclnnArgMaxGetWorkspaceSize(const aclTensor * self, int64_t dim, bool keepdim,
                                                     aclTensor * out, uint64_t * size,
                                                     aclOpExecutor ** executor) {
    return arg_max_op("aclnnArgMax", self, dim, keepdim, nullptr, out, false, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnMaxDimGetWorkspaceSize(const aclTensor * self, int64_t dim, bool keepdim,
                                                     aclTensor * out, aclTensor * indices, uint64_t * size,
                                                     aclOpExecutor ** executor) {
    return arg_max_op("aclnnMaxDim", self, dim, keepdim, out, indices, true, size, executor);
}

ACLNN_EXPORT aclnnStatus aclnnMaxGetWorkspaceSize(const aclTensor * self, aclTensor * out, uint64_t * size,
                                                  aclOpExecutor ** executor) {
    return plan_op("aclnnMax", size, executor, [&](Plan & p) {
        const int x = p.in("self", self), y = p.out("out", out);
        p.dtypes({x, y}, kSummable);
        p.require_same_dtype(x, y);
        p.require(p.shape(x).n_elements() > 0 && p.shape(y).n_elements() == 1,
                  "out is " + p.shape(y).text() + " for " + p.shape(x).text());
        p.make_contiguous(x);
        p.run([=](const Spans & s) {
            std::vector<double> flat((size_t) s[x].n_elements());
            Span wide   = s[x]; // as a dense DOUBLE copy, whatever the strides
            int64_t run = 1;
            for (int d = wide.rank - 1; d >= 0; --d) {
                wide.stride[d] = run;
                run *= wide.ne[d];
            }
            wide.data  = reinterpret_cast<uint8_t *>(flat.data());
            wide.dtype = ACL_DOUBLE;
            cast(s[x], wide);
            fill(s[y], *std::max_element(flat.begin(), flat.end()));
        });
    });
}

ACLNN_EXPORT aclnnStatus aclnnCumsumGetWorkspaceSize(const aclTensor * self, int64_t dim, aclDataType dtype,
                                                     aclTensor * out, uint64_t * size,
                                                     aclOpExecutor ** executor) {
    return plan_op("aclnnCumsum", size, executor, [&](Plan & p) {
        const int x = p.in("self", self), y = p.out("out", out);
        p.dtypes({x, y}, kSummable);
        p.require(p.shape(y).dtype == dtype,
                  std::string("dtype is ") + dtype_name(dtype) + ", out is " + p.shape(y).text());
        p.require_same_shape(x, y);
        const int d = p.dim("dim", dim, p.rank(x));
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) {
            if (s[x].rank == 0) {
                cast(s[x], s[y]);
            } else {
                cumsum(s[x], d, s[y]);
            }
        });
    });
}
