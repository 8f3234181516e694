// Operators that move rows: look-ups, cache writes, copies, concatenation, repetition.
#include "runner.h"

#include <algorithm>

namespace cann310b {
namespace {

// One plane (dims 0 and 1) of a place.
Loc plane(Loc l, int64_t i2, int64_t i3) {
    l.offset += i2 * l.st[2] + i3 * l.st[3];
    l.ne[2] = l.ne[3] = 1;
    return l;
}

// Indices of one plane: the index tensor is [rows, planes2, planes3], repeated over the data's planes.
Tensor indices(const Loc & l, int64_t i2, int64_t i3) {
    const int64_t at = l.offset + (i2 % l.ne[1]) * l.st[1] + (i3 % l.ne[2]) * l.st[2];
    return tensor(l.base, at, l.dtype, {l.ne[0]}, {l.st[0]});
}

} // namespace

void Runner::op_get_rows(ggml_tensor * dst) {
    const Loc table = loc(dst->src[0]), at = loc(dst->src[1]), out = loc(dst);
    const Loc found = table.dtype == out.dtype ? out : temporary(out.ne, table.dtype);
    for (int64_t i3 = 0; i3 < out.ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < out.ne[2]; ++i2) {
            const Tensor x = tensor(plane(table, i2, i3), 2), i = indices(at, i2, i3),
                         y = tensor(plane(found, i2, i3), 2);
            call("aclnnGatherV2", acl().aclnnGatherV2GetWorkspaceSize, acl().aclnnGatherV2, x.get(),
                 int64_t{0}, i.get(), y.get());
        }
    }
    if (table.dtype != out.dtype) {
        cast(found, out);
    }
}

void Runner::op_set_rows(ggml_tensor * dst) {
    const Loc from = loc(dst->src[0]), at = loc(dst->src[1]), to = loc(dst);
    if (from.n_elements() == 0) {
        return;
    }
    Loc rows = from;
    if (from.dtype != to.dtype) {
        rows = temporary(from.ne, to.dtype);
        cast(from, rows);
    }
    for (int64_t i3 = 0; i3 < from.ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < from.ne[2]; ++i2) {
            const Tensor x = tensor(plane(to, i2, i3), 2), v = tensor(plane(rows, i2, i3), 2);
            Tensor i             = indices(at, i2, i3);
            const aclTensor * is = i.get();
            aclTensorList * list = acl().aclCreateTensorList(&is, 1);
            if (list == nullptr) {
                check(ACL_ERROR_BAD_ALLOC, "aclCreateTensorList");
            }
            (void) i.release(); // the list owns it now
            const auto free_list = [](aclTensorList * l) { acl().aclDestroyTensorList(l); };
            const std::unique_ptr<aclTensorList, decltype(free_list)> owner(list, free_list);
            call("aclnnIndexPutImpl", acl().aclnnIndexPutImplGetWorkspaceSize, acl().aclnnIndexPutImpl,
                 x.get(), list, v.get(), false, true);
        }
    }
}

// CPY reshapes as it copies: element i of one is element i of the other, whatever their shapes.
void Runner::op_copy(const ggml_tensor * src, ggml_tensor * dst) {
    Loc from = loc(src), to = loc(dst);
    if (same_place(from, to)) {
        return;
    }
    if (overlap(from, to)) {
        const Loc moved = temporary(from.ne, from.dtype);
        copy(from, moved);
        from = moved;
    }
    if (from.ne != to.ne) {
        if (from.is_contiguous()) {
            from = from.reshaped(to.ne);
        } else if (to.is_contiguous()) {
            to = to.reshaped(from.ne);
        } else {
            const Loc dense = temporary(from.ne, from.dtype);
            copy(from, dense);
            from = dense.reshaped(to.ne);
        }
    }
    cast(from, to);
}

void Runner::op_concat(ggml_tensor * dst) {
    Tensor a = tensor(loc(dst->src[0]), 4), b = tensor(loc(dst->src[1]), 4);
    const Tensor y                              = tensor(loc(dst), 4);
    const std::array<const aclTensor *, 2> both = {a.get(), b.get()};
    aclTensorList * list                        = acl().aclCreateTensorList(both.data(), both.size());
    if (list == nullptr) {
        check(ACL_ERROR_BAD_ALLOC, "aclCreateTensorList");
    }
    (void) a.release(); // the list owns them now
    (void) b.release();
    const auto free_list = [](aclTensorList * l) { acl().aclDestroyTensorList(l); };
    const std::unique_ptr<aclTensorList, decltype(free_list)> owner(list, free_list);
    call("aclnnCat", acl().aclnnCatGetWorkspaceSize, acl().aclnnCat, list,
         int64_t{3 - ggml_get_op_params_i32(dst, 0)}, y.get());
}

void Runner::op_repeat(ggml_tensor * dst) {
    const Loc x = loc(dst->src[0]), out = loc(dst);
    std::vector<int64_t> times;
    for (size_t d = 4; d-- > 0;) {
        times.push_back(out.ne[d] / x.ne[d]);
    }
    const Tensor a = tensor(x, 4), y = tensor(out, 4);
    const Ints by = ints(times);
    call("aclnnRepeat", acl().aclnnRepeatGetWorkspaceSize, acl().aclnnRepeat, a.get(), by.get(), y.get());
}

} // namespace cann310b
