// SOFT_MAX with scale and mask, and ROPE from tables that are computed once per graph.
#include "buffer.h"
#include "runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cann310b {

void Runner::op_soft_max(ggml_tensor * dst) {
    const float factor = ggml_get_op_params_f32(dst, 0);
    Loc x              = loc(dst->src[0]);
    const Loc out      = loc(dst);
    if (dst->src[1] != nullptr) { // mask + factor * x, one launch
        Loc mask         = loc(dst->src[1]);
        mask.ne[1]       = x.ne[1]; // ggml pads the mask's rows
        const Loc masked = temporary(x.ne, ACL_FLOAT);
        add(mask, x, masked, factor);
        x = masked;
    } else if (factor != 1.0F) {
        const Loc scaled = temporary(x.ne, ACL_FLOAT);
        scale(x, factor, scaled);
        x = scaled;
    } else if (overlap(x, out) && !same_place(x, out)) {
        const Loc moved = temporary(x.ne, x.dtype);
        copy(x, moved);
        x = moved;
    }
    const Tensor a = tensor(x, 4), y = tensor(out, 4);
    call("aclnnSoftmax", acl().aclnnSoftmaxGetWorkspaceSize, acl().aclnnSoftmax, a.get(), int64_t{-1},
         y.get());
}

// Tables of one set of parameters: cos and sin of position times frequency, [n_dims, 1, n_tokens], FP32, each
// angle twice (once for either element of its pair), the sine negative where the pair's other element is
// subtracted.
const Runner::Tables & Runner::rope_tables(const ggml_tensor * dst) {
    const int n_dims = ggml_get_op_params_i32(dst, 1), mode = ggml_get_op_params_i32(dst, 2);
    const float base = ggml_get_op_params_f32(dst, 5), stretch = ggml_get_op_params_f32(dst, 6);
    const float magnitude = ggml_get_op_params_f32(dst, 8);
    std::string key(reinterpret_cast<const char *>(dst->op_params), sizeof dst->op_params);
    for (const ggml_tensor * t : {dst->src[1], dst->src[2]}) {
        key += std::to_string(reinterpret_cast<uintptr_t>(t)) + ' ';
    }
    if (const auto found = graph_tables_.find(key); found != graph_tables_.end()) {
        return found->second;
    }
    const int64_t n_tokens = dst->src[1]->ne[0];
    const bool is_neox     = (mode & GGML_ROPE_TYPE_NEOX) != 0;
    // Frequencies and signs are made here, in double precision; the device only multiplies and takes cosines.
    std::vector<float> factors(size_t(n_dims / 2), 1.0F);
    if (dst->src[2] != nullptr) {
        synchronize(); // earlier nodes may have made them
        device().copy(factors.data(), dst->src[2]->data, factors.size() * sizeof(float),
                      ACL_MEMCPY_DEVICE_TO_HOST);
    }
    std::vector<float> constants(size_t(n_dims) * 2);
    for (int i = 0; i < n_dims; ++i) {
        const int pair       = is_neox ? i % (n_dims / 2) : i / 2;
        const bool low       = is_neox ? i < n_dims / 2 : i % 2 == 0;
        constants[size_t(i)] = float(std::pow(double(base), -2.0 * pair / n_dims) * double(stretch) /
                                     double(factors[size_t(pair)]));
        constants[size_t(n_dims) + size_t(i)] = low ? -magnitude : magnitude;
    }
    const auto place = [&](size_t n_floats) {
        const size_t at = tables_at_;
        tables_at_ += (n_floats * sizeof(float) + 511) / 512 * 512;
        return tables_.base + at;
    };
    const size_t need =
        size_t(n_dims) * (4 + 2 * size_t(n_tokens)) * sizeof(float) + size_t(n_tokens) * 4 + 4096;
    if (!tables_.fits(tables_at_ + need)) {
        // Tables of this graph that are in use already would be lost: begin anew with all of them.
        synchronize();
        graph_tables_.clear();
        tables_at_ = 0;
        tables_.grow(std::max<size_t>(size_t{1} << 20, (tables_.size + need) * 2));
    }
    Loc angle;
    angle.ne = {n_dims, 1, n_tokens, 1};
    angle    = angle.as_contiguous(ACL_FLOAT, nullptr);
    Tables tables{angle, angle};
    tables.cos.base    = place(size_t(n_dims * n_tokens));
    tables.sin.base    = place(size_t(n_dims * n_tokens));
    char * const bytes = place(constants.size());
    Loc frequency      = Loc{bytes, 0, ACL_FLOAT, {n_dims, 1, 1, 1}, {1, n_dims, n_dims, n_dims}};
    Loc sign           = frequency;
    sign.offset        = n_dims;
    constants_.push_back(std::move(constants)); // must live until the stream has read it
    check(acl().aclrtMemcpyAsync(bytes, constants_.back().size() * sizeof(float), constants_.back().data(),
                                 constants_.back().size() * sizeof(float), ACL_MEMCPY_HOST_TO_DEVICE,
                                 stream_),
          "aclrtMemcpyAsync");
    Loc position   = loc(dst->src[1]);
    position.ne    = {1, 1, n_tokens, 1};
    position.st    = {1, 1, 1, n_tokens};
    const Loc real = temporary(position.ne, ACL_FLOAT);
    cast(position, real);
    const Loc turned = temporary(angle.ne, ACL_FLOAT);
    mul(real, frequency, turned);
    const Tensor t = tensor(turned, 4), c = tensor(tables.cos, 4), s = tensor(tables.sin, 4);
    call("aclnnCos", acl().aclnnCosGetWorkspaceSize, acl().aclnnCos, t.get(), c.get());
    call("aclnnSin", acl().aclnnSinGetWorkspaceSize, acl().aclnnSin, t.get(), s.get());
    mul(tables.sin, sign, tables.sin);
    if (magnitude != 1.0F) {
        scale(tables.cos, magnitude, tables.cos);
    }
    return graph_tables_[key] = tables;
}

void Runner::op_rope(ggml_tensor * dst, const Loc & all, const Loc & out_all) {
    const int64_t n_dims = ggml_get_op_params_i32(dst, 1);
    const bool is_neox   = (ggml_get_op_params_i32(dst, 2) & GGML_ROPE_TYPE_NEOX) != 0;
    const Tables tables  = rope_tables(dst);
    Loc x = all, out = out_all;
    x.ne[0] = out.ne[0] = n_dims;
    // The pair's other element: half a row away, or next door.
    const Loc other = temporary(x.ne, x.dtype);
    if (is_neox) {
        const Tensor a = tensor(x, 4), y = tensor(other, 4);
        const Ints by = ints({n_dims / 2}), along = ints({-1});
        call("aclnnRoll", acl().aclnnRollGetWorkspaceSize, acl().aclnnRoll, a.get(), by.get(), along.get(),
             y.get());
    } else {
        const auto pairs = [&](const Loc & l) {
            return tensor(l.base, l.offset, l.dtype, {l.ne[3], l.ne[2], l.ne[1], n_dims / 2, 2},
                          {l.st[3], l.st[2], l.st[1], 2 * l.st[0], l.st[0]});
        };
        const Tensor a = pairs(x), y = pairs(other);
        const Ints by = ints({1}), along = ints({-1});
        call("aclnnRoll", acl().aclnnRollGetWorkspaceSize, acl().aclnnRoll, a.get(), by.get(), along.get(),
             y.get());
    }
    const Loc first = temporary(x.ne, ACL_FLOAT), second = temporary(x.ne, ACL_FLOAT);
    mul(x, tables.cos, first);
    mul(other, tables.sin, second);
    if (n_dims < all.ne[0] && !same_place(all, out_all)) { // the rest of the row passes through
        Loc from = all, to = out_all;
        from.ne[0] = to.ne[0] = all.ne[0] - n_dims;
        from.offset += n_dims * from.st[0];
        to.offset += n_dims * to.st[0];
        cast(from, to);
    }
    add(first, second, out);
}

} // namespace cann310b
