// libopapi.so: operators that move elements without computing: copies, permutations, concatenation, gathers,
// scatters. Generic in dtype; gathers and scatters refuse BF16 (fact sheet 4.3).
#include "acl310b/aclnn-api.h"
#include "sim-core.h"
#include "sim-op.h"

#include <algorithm>

using namespace sim;

namespace {

constexpr size_t kCatLimit = 32; // tensors per kernel; longer lists are chained (4.3)

const std::vector<aclDataType> kRows = {ACL_FLOAT, ACL_FLOAT16, ACL_INT64, ACL_INT32,
                                        ACL_INT16, ACL_INT8,    ACL_UINT8, ACL_BOOL};

// Part of dim `d` of a span: `n` entries from `first`, every `step`-th.
Span part(const Span & s, int d, int64_t first, int64_t n, int64_t step = 1) {
    Span p = s;
    p.data += first * s.stride[d] * dtype_size(s.dtype);
    p.ne[d]     = n;
    p.stride[d] = s.stride[d] * step;
    return p;
}

// x with its dims in another order.
Span permuted(const Span & s, const std::vector<int64_t> & dims) {
    Span p = s;
    for (size_t d = 0; d < dims.size(); ++d) {
        p.ne[d]     = s.ne[dims[d]];
        p.stride[d] = s.stride[dims[d]];
    }
    return p;
}

// s with a dim of extent 1 at `d`.
Span unsqueezed(const Span & s, int d) {
    Span p = s;
    for (int i = s.rank; i > d; --i) {
        p.ne[i]     = s.ne[i - 1];
        p.stride[i] = s.stride[i - 1];
    }
    p.ne[d]     = 1;
    p.stride[d] = 0;
    ++p.rank;
    return p;
}

} // namespace

ACLNN_EXPORT aclnnStatus aclnnInplaceCopyGetWorkspaceSize(aclTensor * self, const aclTensor * src,
                                                          uint64_t * size, aclOpExecutor ** executor) {
    return plan_op("aclnnInplaceCopy", size, executor, [&](Plan & p) {
        const int y = p.out("selfRef", self), x = p.in("src", src);
        p.dtypes({x, y}, kMovable);
        if (p.shape(x).dtype != p.shape(y).dtype) {
            p.dtypes({x, y}, kArithmetic); // BF16 can be copied, not converted
        }
        p.require_shape(y, p.broadcast(y, x));
        p.allow_alias();
        p.run([=](const Spans & s) { copy_elements(s[x], s[y]); });
    });
}

ACLNN_EXPORT aclnnStatus aclnnPermuteGetWorkspaceSize(const aclTensor * self, const aclIntArray * dims,
                                                      aclTensor * out, uint64_t * size,
                                                      aclOpExecutor ** executor) {
    return plan_op("aclnnPermute", size, executor, [&](Plan & p) {
        const int x                = p.in("self", self);
        std::vector<int64_t> order = p.integers("dims", dims);
        const int y                = p.out("out", out);
        p.dtypes({x, y}, kMovable);
        p.require_same_dtype(x, y);
        p.require((int) order.size() == p.rank(x), "dims " + dims_text(order) + " for " + p.shape(x).text());
        std::vector<int64_t> wanted;
        std::vector<bool> used(order.size(), false);
        for (int64_t & d : order) {
            d = p.dim("dims", d, p.rank(x));
            p.require(!used[(size_t) d], "dims " + dims_text(order) + " names a dim twice");
            used[(size_t) d] = true;
            wanted.push_back(p.ne(x)[(size_t) d]);
        }
        p.require_shape(y, wanted);
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) { copy_elements(permuted(s[x], order), s[y]); });
    });
}

ACLNN_EXPORT aclnnStatus aclnnCatGetWorkspaceSize(const aclTensorList * tensors, int64_t dim, aclTensor * out,
                                                  uint64_t * size, aclOpExecutor ** executor) {
    return plan_op("aclnnCat", size, executor, [&](Plan & p) {
        const std::vector<int> xs = p.in_list("tensors", tensors);
        const int y               = p.out("out", out);
        p.require(!xs.empty(), "tensors is empty");
        p.dtypes({y}, kMovable);
        const int d                 = p.dim("dim", dim, p.rank(y));
        std::vector<int64_t> wanted = p.ne(xs[0]);
        p.require((int) wanted.size() == p.rank(y), "out is " + p.shape(y).text());
        wanted[(size_t) d] = 0;
        for (const int x : xs) {
            p.require_same_dtype(x, y);
            p.require(p.rank(x) == p.rank(y), "tensors differ in rank: " + p.shape(x).text());
            for (int i = 0; i < p.rank(x); ++i) {
                p.require(i == d || p.ne(x)[(size_t) i] == wanted[(size_t) i],
                          "tensors differ outside dim " + std::to_string(d) + ": " + p.shape(x).text());
            }
            wanted[(size_t) d] += p.ne(x)[(size_t) d];
            p.make_contiguous(x);
        }
        p.require_shape(y, wanted);
        p.make_contiguous(y);
        if (xs.size() > kCatLimit) {
            p.workspace((uint64_t) (p.shape(y).n_elements() * dtype_size(p.shape(y).dtype)));
        }
        p.run([=](const Spans & s) {
            int64_t at = 0;
            for (const int x : xs) {
                const int64_t n = s[(size_t) x].ne[d];
                if (s[(size_t) x].n_elements() > 0) {
                    copy_elements(s[(size_t) x], part(s[(size_t) y], d, at, n));
                }
                at += n;
            }
        });
    });
}

ACLNN_EXPORT aclnnStatus aclnnStackGetWorkspaceSize(const aclTensorList * tensors, int64_t dim,
                                                    aclTensor * out, uint64_t * size,
                                                    aclOpExecutor ** executor) {
    return plan_op("aclnnStack", size, executor, [&](Plan & p) {
        const std::vector<int> xs = p.in_list("tensors", tensors);
        const int y               = p.out("out", out);
        p.require(!xs.empty(), "tensors is empty");
        p.dtypes({y}, kMovable);
        const int d                 = p.dim("dim", dim, p.rank(xs[0]) + 1);
        std::vector<int64_t> wanted = p.ne(xs[0]);
        wanted.insert(wanted.begin() + d, (int64_t) xs.size());
        for (const int x : xs) {
            p.require_same_dtype(x, y);
            p.require_same_shape(xs[0], x);
            p.make_contiguous(x);
        }
        p.require_shape(y, wanted);
        p.make_contiguous(y);
        p.run([=](const Spans & s) {
            for (size_t i = 0; i < xs.size(); ++i) {
                copy_elements(unsqueezed(s[(size_t) xs[i]], d), part(s[(size_t) y], d, (int64_t) i, 1));
            }
        });
    });
}

ACLNN_EXPORT aclnnStatus aclnnRepeatGetWorkspaceSize(const aclTensor * self, const aclIntArray * repeats,
                                                     aclTensor * out, uint64_t * size,
                                                     aclOpExecutor ** executor) {
    return plan_op("aclnnRepeat", size, executor, [&](Plan & p) {
        const int x                     = p.in("self", self);
        const std::vector<int64_t> tile = p.integers("repeats", repeats);
        const int y                     = p.out("out", out);
        p.dtypes({x, y}, kMovable);
        p.require_same_dtype(x, y);
        p.require((int) tile.size() >= p.rank(x), "repeats " + dims_text(tile) + " for " + p.shape(x).text());
        std::vector<int64_t> wanted = tile;
        for (int i = 0; i < p.rank(x); ++i) {
            wanted[tile.size() - (size_t) p.rank(x) + (size_t) i] *= p.ne(x)[(size_t) i];
        }
        p.require_shape(y, wanted);
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) { repeat(s[x], s[y]); });
    });
}

ACLNN_EXPORT aclnnStatus aclnnRepeatInterleaveIntWithDimGetWorkspaceSize(const aclTensor * self,
                                                                         int64_t repeats, int64_t dim,
                                                                         int64_t output_size, aclTensor * out,
                                                                         uint64_t * size,
                                                                         aclOpExecutor ** executor) {
    return plan_op("aclnnRepeatInterleaveIntWithDim", size, executor, [&](Plan & p) {
        const int x = p.in("self", self), y = p.out("out", out);
        p.dtypes({x, y}, kMovable);
        p.require_same_dtype(x, y);
        p.require(repeats >= 0 && p.rank(x) < kMaxDims, "repeats is " + std::to_string(repeats));
        const int d                 = p.dim("dim", dim, p.rank(x));
        std::vector<int64_t> wanted = p.ne(x);
        wanted[(size_t) d] *= repeats;
        p.require(output_size == wanted[(size_t) d], "outputSize is " + std::to_string(output_size) +
                                                         ", expected " + std::to_string(wanted[(size_t) d]));
        p.require_shape(y, wanted);
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) {
            for (int64_t i = 0; i < repeats; ++i) {
                copy_elements(s[x], part(s[y], d, i, s[x].ne[d], repeats));
            }
        });
    });
}

ACLNN_EXPORT aclnnStatus aclnnExpandGetWorkspaceSize(const aclTensor * self, const aclIntArray * sizes,
                                                     aclTensor * out, uint64_t * size,
                                                     aclOpExecutor ** executor) {
    return plan_op("aclnnExpand", size, executor, [&](Plan & p) {
        const int x                 = p.in("self", self);
        std::vector<int64_t> wanted = p.integers("size", sizes);
        const int y                 = p.out("out", out);
        p.dtypes({x, y}, kMovable);
        p.require_same_dtype(x, y);
        for (size_t i = 0; i < wanted.size(); ++i) { // -1 keeps the dim
            const int64_t at = (int64_t) i - ((int64_t) wanted.size() - p.rank(x));
            wanted[i]        = wanted[i] == -1 && at >= 0 ? p.ne(x)[(size_t) at] : wanted[i];
        }
        p.require_shape(y, wanted);
        p.require(p.broadcast(x, y) == wanted,
                  p.shape(x).text() + " does not expand to " + dims_text(wanted));
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) { copy_elements(s[x], s[y]); });
    });
}

ACLNN_EXPORT aclnnStatus aclnnSliceGetWorkspaceSize(const aclTensor * self, int64_t dim, int64_t start,
                                                    int64_t end, int64_t step, aclTensor * out,
                                                    uint64_t * size, aclOpExecutor ** executor) {
    return plan_op("aclnnSlice", size, executor, [&](Plan & p) {
        const int x = p.in("self", self), y = p.out("out", out);
        p.dtypes({x, y}, kMovable);
        p.require_same_dtype(x, y);
        const int d     = p.dim("dim", dim, p.rank(x));
        const int64_t n = p.ne(x)[(size_t) d];
        p.require(step > 0, "step is " + std::to_string(step));
        const auto clip = [n](int64_t i) { return std::min(std::max(i < 0 ? i + n : i, (int64_t) 0), n); };
        const int64_t first = clip(start), last = std::max(first, clip(end));
        std::vector<int64_t> wanted = p.ne(x);
        wanted[(size_t) d]          = (last - first + step - 1) / step;
        p.require_shape(y, wanted);
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) { copy_elements(part(s[x], d, first, s[y].ne[d], step), s[y]); });
    });
}

ACLNN_EXPORT aclnnStatus aclnnConstantPadNdGetWorkspaceSize(const aclTensor * self, const aclIntArray * pad,
                                                            const aclScalar * value, aclTensor * out,
                                                            uint64_t * size, aclOpExecutor ** executor) {
    return plan_op("aclnnConstantPadNd", size, executor, [&](Plan & p) {
        const int x                     = p.in("self", self);
        const std::vector<int64_t> pads = p.integers("pad", pad);
        const double v                  = p.number("value", value);
        const int y                     = p.out("out", out);
        p.dtypes({x, y}, kArithmetic);
        p.require_same_dtype(x, y);
        p.require(pads.size() % 2 == 0 && (int) pads.size() <= 2 * p.rank(x), "pad is " + dims_text(pads));
        std::vector<int64_t> wanted = p.ne(x);
        for (size_t i = 0; i < pads.size() / 2; ++i) { // pairs (before, after), last dim first
            p.require(pads[2 * i] >= 0 && pads[2 * i + 1] >= 0, "pad is " + dims_text(pads));
            wanted[wanted.size() - 1 - i] += pads[2 * i] + pads[2 * i + 1];
        }
        p.require_shape(y, wanted);
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) {
            fill(s[y], v);
            Span inside = s[y];
            for (size_t i = 0; i < pads.size() / 2; ++i) {
                const int d = s[x].rank - 1 - (int) i;
                inside      = part(inside, d, pads[2 * i], s[x].ne[d]);
            }
            if (s[x].n_elements() > 0) {
                copy_elements(s[x], inside);
            }
        });
    });
}

ACLNN_EXPORT aclnnStatus aclnnRollGetWorkspaceSize(const aclTensor * x_tensor, const aclIntArray * shifts,
                                                   const aclIntArray * dims, aclTensor * out, uint64_t * size,
                                                   aclOpExecutor ** executor) {
    return plan_op("aclnnRoll", size, executor, [&](Plan & p) {
        const int x                   = p.in("x", x_tensor);
        const std::vector<int64_t> by = p.integers("shifts", shifts);
        std::vector<int64_t> along    = p.integers("dims", dims);
        const int y                   = p.out("out", out);
        p.dtypes({x, y},
                 {ACL_FLOAT, ACL_FLOAT16, ACL_INT8, ACL_UINT8, ACL_INT32, ACL_UINT32, ACL_BOOL, ACL_INT64});
        p.require_same_dtype(x, y);
        p.require_same_shape(x, y);
        p.require(!by.empty() && by.size() == along.size(), "shifts " + dims_text(by) + " and dims " +
                                                                dims_text(along) +
                                                                " must have one length, not 0");
        for (int64_t & d : along) {
            d = p.dim("dims", d, p.rank(x));
        }
        p.make_contiguous(x);
        p.make_contiguous(y);
        p.run([=](const Spans & s) { roll(s[x], by, along, s[y]); });
    });
}

// ---- rows by index: no bounds check on the chip; out of range is memory nobody meant, reported as a fault
// ----

namespace {

aclnnStatus gather_op(const char * op, const aclTensor * table, const char * table_role, int64_t dim,
                      const aclTensor * index, const char * index_role, const aclTensor * out,
                      bool flat_index, uint64_t * size, aclOpExecutor ** executor) {
    return plan_op(op, size, executor, [&](Plan & p) {
        const int x = p.in(table_role, table), i = p.in(index_role, index), y = p.out("out", out);
        p.dtypes({x, y}, kRows);
        p.dtypes({i}, kIndices);
        p.require_same_dtype(x, y);
        p.require(p.rank(x) >= 1, "nothing to index");
        p.require(!flat_index || p.rank(i) <= 1, "index must be 1-D, it is " + p.shape(i).text());
        const int d                 = p.dim("dim", dim, p.rank(x));
        std::vector<int64_t> wanted = p.ne(x);
        wanted.erase(wanted.begin() + d);
        wanted.insert(wanted.begin() + d, p.ne(i).begin(), p.ne(i).end());
        p.require_shape(y, wanted);
        p.make_contiguous(x);
        p.make_contiguous(i);
        p.make_contiguous(y);
        p.bytes((uint64_t) (2 * p.shape(y).n_elements() * dtype_size(p.shape(y).dtype) +
                            p.shape(i).n_elements() * dtype_size(p.shape(i).dtype)));
        const std::string name = op;
        p.run_faulty([=](const Spans & s) {
            return gather_rows(s[x], d, s[i], s[y]) ? std::string() : name + ": index out of range";
        });
    });
}

} // namespace

ACLNN_EXPORT aclnnStatus aclnnGatherV2GetWorkspaceSize(const aclTensor * self, int64_t dim,
                                                       const aclTensor * index, aclTensor * out,
                                                       uint64_t * size, aclOpExecutor ** executor) {
    return gather_op("aclnnGatherV2", self, "self", dim, index, "index", out, false, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnIndexSelectGetWorkspaceSize(const aclTensor * self, int64_t dim,
                                                          const aclTensor * index, aclTensor * out,
                                                          uint64_t * size, aclOpExecutor ** executor) {
    return gather_op("aclnnIndexSelect", self, "self", dim, index, "index", out, true, size, executor);
}
ACLNN_EXPORT aclnnStatus aclnnEmbeddingGetWorkspaceSize(const aclTensor * weight, const aclTensor * indices,
                                                        const aclTensor * out, uint64_t * size,
                                                        aclOpExecutor ** executor) {
    return gather_op("aclnnEmbedding", weight, "weight", 0, indices, "indices", out, false, size, executor);
}

ACLNN_EXPORT aclnnStatus aclnnIndexPutImplGetWorkspaceSize(aclTensor * self, const aclTensorList * indices,
                                                           const aclTensor * values, bool accumulate, bool,
                                                           uint64_t * size, aclOpExecutor ** executor) {
    return plan_op("aclnnIndexPutImpl", size, executor, [&](Plan & p) {
        const int x                      = p.update("selfRef", self);
        const std::vector<int> index_ops = p.in_list("indices", indices);
        const int v                      = p.in("values", values);
        p.dtypes({x, v}, kRows);
        p.require_same_dtype(x, v);
        p.require(!index_ops.empty() && (int) index_ops.size() <= p.rank(x),
                  std::to_string(index_ops.size()) + " indices for " + p.shape(x).text());
        std::vector<int64_t> wanted; // the indices' common shape, then the dims of self that are not indexed
        for (const int i : index_ops) {
            p.dtypes({i}, kIndices);
            const std::vector<int64_t> & ne = p.ne(i);
            wanted.insert(wanted.begin(), ne.size() > wanted.size() ? ne.size() - wanted.size() : 0, 1);
            for (size_t d = 0; d < ne.size(); ++d) {
                int64_t & extent = wanted[wanted.size() - ne.size() + d];
                p.require(extent == ne[d] || extent == 1 || ne[d] == 1, "indices do not broadcast");
                extent = std::max(extent, ne[d]);
            }
        }
        wanted.insert(wanted.end(), p.ne(x).begin() + (int64_t) index_ops.size(), p.ne(x).end());
        const std::vector<int64_t> & have = p.ne(v);
        p.require(have.size() <= wanted.size(),
                  "values is " + p.shape(v).text() + ", expected " + dims_text(wanted));
        for (size_t d = 0; d < have.size(); ++d) {
            const int64_t extent = wanted[wanted.size() - have.size() + d];
            p.require(have[d] == extent || have[d] == 1,
                      "values is " + p.shape(v).text() + ", expected " + dims_text(wanted));
        }
        int64_t n_values = 1;
        for (const int64_t n : wanted) {
            n_values *= n;
        }
        p.make_contiguous(v);
        p.bytes((uint64_t) (n_values * dtype_size(p.shape(x).dtype) * (accumulate ? 3 : 2)));
        p.run_faulty([=](const Spans & s) {
            std::vector<Span> at;
            for (const int i : index_ops) {
                at.push_back(s[(size_t) i]);
            }
            return put_rows(s[x], at, s[v], accumulate) ? std::string()
                                                        : "aclnnIndexPutImpl: index out of range";
        });
    });
}
