#include "runner.h"

#include "buffer.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>

namespace cann310b {
namespace {

constexpr size_t kAlign          = 512; // aclrtMalloc gives at least 64, tensor data wants 32
constexpr size_t kMinTemporaries = size_t{8} << 20;
constexpr int kLastRuntimeError  = 507999;

size_t round_up(size_t n, size_t step) {
    return (n + step - 1) / step * step;
}

const ggml_tensor * root_of(const ggml_tensor * t) {
    return t->view_src != nullptr ? t->view_src : t;
}

aclDataType acl_type(const ggml_tensor * t) {
    if (is_stored_as_f16(t)) {
        return ACL_FLOAT16;
    }
    switch (t->type) {
    case GGML_TYPE_F32:
        return ACL_FLOAT;
    case GGML_TYPE_F16:
        return ACL_FLOAT16;
    case GGML_TYPE_I32:
        return ACL_INT32;
    case GGML_TYPE_I64:
        return ACL_INT64;
    case GGML_TYPE_I16:
        return ACL_INT16;
    case GGML_TYPE_I8:
        return ACL_INT8;
    default:
        return ACL_DT_UNDEFINED;
    }
}

// MUL_MAT Qcur-0 f32 [896,7,1,1] <- blk.0.attn_q.weight q4_K [896,896,1,1], attn_norm-0 f32 [896,7,1,1]
std::string text_of(const ggml_tensor * node) {
    const auto operand = [](const ggml_tensor * t) {
        std::string text = std::string(t->name) + " " + ggml_type_name(t->type) + " [";
        for (int d = 0; d < GGML_MAX_DIMS; ++d) {
            text += (d > 0 ? "," : "") + std::to_string(t->ne[d]);
        }
        return text + "]";
    };
    std::string text = std::string(ggml_op_desc(node)) + " " + operand(node);
    const char * sep = " <- ";
    for (const ggml_tensor * s : node->src) {
        if (s != nullptr) {
            text += sep + operand(s);
            sep = ", ";
        }
    }
    return text;
}

} // namespace

// ---- places ----

size_t size_of(aclDataType type) {
    switch (type) {
    case ACL_FLOAT:
    case ACL_INT32:
        return 4;
    case ACL_INT64:
        return 8;
    case ACL_INT8:
        return 1;
    default:
        return 2;
    }
}

bool Loc::is_contiguous() const {
    int64_t expected = 1;
    for (size_t d = 0; d < 4; ++d) {
        if (ne[d] != 1 && st[d] != expected) {
            return false;
        }
        expected *= ne[d];
    }
    return true;
}

Loc Loc::as_contiguous(aclDataType type, char * at) const {
    Loc out    = *this;
    out.base   = at;
    out.offset = 0;
    out.dtype  = type;
    out.st     = {1, ne[0], ne[0] * ne[1], ne[0] * ne[1] * ne[2]};
    return out;
}

Loc Loc::reshaped(std::array<int64_t, 4> shape) const {
    Loc out = *this;
    out.ne  = shape;
    out.st  = {1, shape[0], shape[0] * shape[1], shape[0] * shape[1] * shape[2]};
    return out;
}

bool same_place(const Loc & a, const Loc & b) {
    if (a.base + a.offset * int64_t(size_of(a.dtype)) != b.base + b.offset * int64_t(size_of(b.dtype)) ||
        a.dtype != b.dtype || a.ne != b.ne) {
        return false;
    }
    for (size_t d = 0; d < 4; ++d) {
        if (a.ne[d] != 1 && a.st[d] != b.st[d]) {
            return false;
        }
    }
    return true;
}

bool overlap(const Loc & a, const Loc & b) {
    const auto span = [](const Loc & x) {
        int64_t last = 0;
        for (size_t d = 0; d < 4; ++d) {
            last += (x.ne[d] - 1) * x.st[d];
        }
        const auto size   = int64_t(size_of(x.dtype));
        const char * from = x.base + x.offset * size;
        return std::make_pair(from, from + (last + 1) * size);
    };
    const auto x = span(a), y = span(b);
    return x.first < y.second && y.first < x.second;
}

Tensor tensor(char * base, int64_t offset, aclDataType type, const std::vector<int64_t> & ne,
              const std::vector<int64_t> & st) {
    int64_t reach = offset + 1;
    for (size_t d = 0; d < ne.size(); ++d) {
        reach += (ne[d] - 1) * st[d];
    }
    Tensor made(
        acl().aclCreateTensor(ne.data(), ne.size(), type, st.data(), offset, ACL_FORMAT_ND, &reach, 1, base));
    if (made == nullptr) {
        check(ACL_ERROR_BAD_ALLOC, "aclCreateTensor");
    }
    return made;
}

Tensor tensor(const Loc & loc, size_t rank) {
    size_t n = 4;
    while (n > rank && loc.ne[n - 1] == 1) {
        --n;
    }
    std::vector<int64_t> ne(n), st(n);
    for (size_t d = 0; d < n; ++d) {
        ne[d] = loc.ne[n - 1 - d];
        st[d] = loc.st[n - 1 - d];
    }
    return tensor(loc.base, loc.offset, loc.dtype, ne, st);
}

Scalar scalar(float value) {
    Scalar made(acl().aclCreateScalar(&value, ACL_FLOAT));
    if (made == nullptr) {
        check(ACL_ERROR_BAD_ALLOC, "aclCreateScalar");
    }
    return made;
}

Ints ints(const std::vector<int64_t> & values) {
    Ints made(acl().aclCreateIntArray(values.data(), values.size()));
    if (made == nullptr) {
        check(ACL_ERROR_BAD_ALLOC, "aclCreateIntArray");
    }
    return made;
}

void Block::grow(size_t n) {
    device().release(base, size);
    base = nullptr;
    size = 0;
    base = static_cast<char *>(device().allocate(n, purpose_));
    size = n;
}

// ---- runner ----

Runner::Runner() : stream_(device().create_stream()) {}

Runner::~Runner() {
    try {
        device().bind();
        if (!is_failed_) { // a failed stream drops what is left; what it said was reported when it failed
            acl().aclrtSynchronizeStreamWithTimeout(stream_, settings().timeout_ms);
        }
    } catch (const AclFailure &) {
        return; // shut down: nothing of ours is left
    }
    device().destroy_stream(stream_);
}

void * Runner::workspace_for(size_t n) {
    if (!workspace_.fits(n)) {
        try {
            synchronize();
            workspace_.grow(round_up(n + n / 4, size_t{1} << 20));
        } catch (const AclFailure & failure) {
            throw WorkspaceFailure(failure.code, failure.what());
        }
    }
    return workspace_.base;
}

char * Runner::temporary_bytes(size_t n) {
    const size_t need = round_up(n, kAlign);
    if (!temporaries_.fits(temporary_at_ + need)) {
        overflow_.push_back(std::make_unique<Block>("temporaries"));
        overflow_.back()->grow(need);
        return overflow_.back()->base;
    }
    char * at = temporaries_.base + temporary_at_;
    temporary_at_ += need;
    return at;
}

// Between nodes. The first graph of a size pays a wait here, later ones find everything in place.
void Runner::settle_temporaries() {
    if (!overflow_.empty()) {
        size_t wanted = temporary_at_;
        for (const auto & block : overflow_) {
            wanted += block->size;
        }
        synchronize();
        overflow_.clear();
        temporaries_.grow(std::max(kMinTemporaries, round_up(wanted + wanted / 4, size_t{1} << 20)));
    }
    temporary_at_ = 0;
}

Loc Runner::temporary(const std::array<int64_t, 4> & ne, aclDataType type) {
    Loc shape;
    shape.ne = ne;
    return shape.as_contiguous(type, temporary_bytes(size_t(shape.n_elements()) * size_of(type)));
}

void Runner::synchronize() {
    wait("aclrtSynchronizeStream");
}

void Runner::wait(const char * after) {
    check(acl().aclrtSynchronizeStreamWithTimeout(stream_, settings_.timeout_ms), after);
}

Loc Runner::loc(const ggml_tensor * t) const {
    if (const auto alias = aliases_.find(t); alias != aliases_.end()) {
        const Loc source                = loc(alias->second);
        const std::array<int64_t, 4> ne = {t->ne[0], t->ne[1], t->ne[2], t->ne[3]};
        return source.ne == ne ? source : source.reshaped(ne);
    }
    const ggml_tensor * root = root_of(t);
    Loc out;
    out.ne           = {t->ne[0], t->ne[1], t->ne[2], t->ne[3]};
    const auto found = overrides_.find(root);
    if (found == overrides_.end()) {
        out.base  = static_cast<char *>(root->data);
        out.dtype = acl_type(t);
        if (is_stored_as_f16(t)) {
            out = out.as_contiguous(ACL_FLOAT16, static_cast<char *>(t->data));
            return out;
        }
        const auto size = int64_t(size_of(out.dtype));
        out.offset      = (static_cast<char *>(t->data) - out.base) / size;
        for (size_t d = 0; d < 4; ++d) {
            out.st[d] = int64_t(t->nb[d]) / size;
        }
        return out;
    }
    // Stored elsewhere, as FP16 or with interleaved rows: translate positions of the root's own dense layout.
    const Override & o    = found->second;
    const auto root_size  = int64_t(ggml_type_size(root->type));
    const int64_t columns = root->ne[0];
    const auto translate  = [&](int64_t at) { return at / columns * o.row + at % columns; };
    out.base              = o.base;
    out.dtype             = o.dtype;
    out.offset =
        o.offset + translate((static_cast<char *>(t->data) - static_cast<char *>(root->data)) / root_size);
    for (size_t d = 0; d < 4; ++d) {
        out.st[d] = translate(int64_t(t->nb[d]) / root_size);
    }
    return out;
}

// ---- the shared vocabulary ----

void Runner::copy(const Loc & from, const Loc & to) {
    const Tensor x = tensor(from, 4), y = tensor(to, 4);
    call("aclnnInplaceCopy", acl().aclnnInplaceCopyGetWorkspaceSize, acl().aclnnInplaceCopy, y.get(),
         x.get());
}

void Runner::cast(const Loc & from, const Loc & to) {
    if (from.dtype == to.dtype) {
        copy(from, to);
        return;
    }
    if (!to.is_contiguous()) {
        const Loc dense = temporary(to.ne, to.dtype);
        cast(from, dense);
        copy(dense, to);
        return;
    }
    const Tensor x = tensor(from, 4), y = tensor(to, 4);
    call("aclnnCast", acl().aclnnCastGetWorkspaceSize, acl().aclnnCast, x.get(), to.dtype, y.get());
}

void Runner::binary(ggml_op op, const Loc & a, const Loc & b, const Loc & out, float alpha) {
    if (overlap(b, out) &&
        !(same_place(b, out) && (op == GGML_OP_ADD || op == GGML_OP_MUL) && alpha == 1.0F)) {
        const Loc moved = temporary(b.ne, b.dtype);
        copy(b, moved);
        binary(op, a, moved, out, alpha);
        return;
    }
    if (same_place(b, out) && !overlap(a, out)) { // commutative here: see above
        binary(op, b, a, out, alpha);
        return;
    }
    const Scalar factor = scalar(alpha);
    const Tensor x = tensor(a, 4), y = tensor(b, 4);
    AclLibrary & l = acl();
    if (same_place(a, out)) { // the Inplace form, never an aliased output (fact sheet 7, trap 17)
        switch (op) {
        case GGML_OP_ADD:
            call("aclnnInplaceAdd", l.aclnnInplaceAddGetWorkspaceSize, l.aclnnInplaceAdd, x.get(), y.get(),
                 factor.get());
            return;
        case GGML_OP_SUB:
            call("aclnnInplaceSub", l.aclnnInplaceSubGetWorkspaceSize, l.aclnnInplaceSub, x.get(), y.get(),
                 factor.get());
            return;
        case GGML_OP_MUL:
            call("aclnnInplaceMul", l.aclnnInplaceMulGetWorkspaceSize, l.aclnnInplaceMul, x.get(), y.get());
            return;
        default:
            call("aclnnInplaceDiv", l.aclnnInplaceDivGetWorkspaceSize, l.aclnnInplaceDiv, x.get(), y.get());
            return;
        }
    }
    if (overlap(a, out)) {
        const Loc moved = temporary(a.ne, a.dtype);
        copy(a, moved);
        binary(op, moved, b, out, alpha);
        return;
    }
    const Tensor z = tensor(out, 4);
    switch (op) {
    case GGML_OP_ADD:
        call("aclnnAdd", l.aclnnAddGetWorkspaceSize, l.aclnnAdd, x.get(), y.get(), factor.get(), z.get());
        return;
    case GGML_OP_SUB:
        call("aclnnSub", l.aclnnSubGetWorkspaceSize, l.aclnnSub, x.get(), y.get(), factor.get(), z.get());
        return;
    case GGML_OP_MUL:
        call("aclnnMul", l.aclnnMulGetWorkspaceSize, l.aclnnMul, x.get(), y.get(), z.get());
        return;
    default:
        call("aclnnDiv", l.aclnnDivGetWorkspaceSize, l.aclnnDiv, x.get(), y.get(), z.get());
        return;
    }
}

void Runner::mul(const Loc & a, const Loc & b, const Loc & out) {
    binary(GGML_OP_MUL, a, b, out);
}
void Runner::add(const Loc & a, const Loc & b, const Loc & out, float alpha) {
    binary(GGML_OP_ADD, a, b, out, alpha);
}

void Runner::scale(const Loc & x, float factor, const Loc & out) {
    const Scalar by = scalar(factor);
    const Tensor a  = tensor(x, 4);
    if (same_place(x, out)) {
        call("aclnnInplaceMuls", acl().aclnnInplaceMulsGetWorkspaceSize, acl().aclnnInplaceMuls, a.get(),
             by.get());
        return;
    }
    if (overlap(x, out)) {
        const Loc moved = temporary(x.ne, x.dtype);
        scale(x, factor, moved);
        copy(moved, out);
        return;
    }
    const Tensor b = tensor(out, 4);
    call("aclnnMuls", acl().aclnnMulsGetWorkspaceSize, acl().aclnnMuls, a.get(), by.get(), b.get());
}

Loc Runner::dense_f16(const Loc & x, int64_t n_rows_padded) {
    if (x.dtype == ACL_FLOAT16 && x.is_contiguous() && x.offset % 16 == 0) {
        return x;
    }
    const int64_t rows = std::max(n_rows_padded, x.n_elements() / x.ne[0]);
    const Loc out      = x.as_contiguous(ACL_FLOAT16, temporary_bytes(size_t(rows * x.ne[0]) * 2));
    cast(x, out);
    return out;
}

// ---- a graph ----

ggml_status Runner::compute(ggml_cgraph * graph) {
    try {
        device().bind();
        if (is_failed_) {
            throw AclFailure(ACL_ERROR_RT_STREAM_CONTEXT,
                             "an earlier failure left the stream unusable; load the model again");
        }
        settings_ = settings();
        if (temporaries_.size == 0) {
            temporaries_.grow(kMinTemporaries);
        }
        if (!settings_.graph_dump.empty()) {
            dump(graph);
        }
        plan(graph);
        for (int i = 0; i < graph->n_nodes; ++i) {
            settle_temporaries();
            run(graph, i);
        }
        node_ = nullptr;
        settle_temporaries();
        // One wait per graph: what failed on the device becomes this graph's status, not the next one's.
        synchronize();
        overrides_.clear();
        constants_.clear();
        return GGML_STATUS_SUCCESS;
    } catch (const AclFailure & failure) {
        device().note_failure(failure.code,
                              failure.what() + (node_ != nullptr ? " in " + text_of(node_) : std::string()));
        node_ = nullptr;
        overrides_.clear();
        const bool is_memory = failure.code == ACL_ERROR_RT_MEMORY_ALLOCATION;
        if (is_memory) {
            acl().aclrtSynchronizeStreamWithTimeout(stream_, settings_.timeout_ms);
        }
        // A refusal in phase 1 leaves the stream as it was; an asynchronous fault (507xxx) poisons it.
        is_failed_ = failure.code >= ACL_ERROR_RT_INTERNAL_ERROR && failure.code <= kLastRuntimeError;
        return is_memory ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
    }
}

// Appends the graph to the file of the setting, once for as long as the same graph is computed.
void Runner::dump(const ggml_cgraph * graph) {
    std::string text;
    for (int i = 0; i < graph->n_nodes; ++i) {
        text += std::to_string(i) + " " + text_of(graph->nodes[i]) + "\n";
    }
    const auto fingerprint = uint64_t{std::hash<std::string>{}(text)};
    if (fingerprint == dumped_) {
        return;
    }
    dumped_ = fingerprint;
    std::ofstream file(settings_.graph_dump, std::ios::app);
    file << "graph of " << graph->n_nodes << " nodes\n" << text;
    if (!file.flush()) {
        GGML_LOG_ERROR("CANN: the graph cannot be written to %s\n", settings_.graph_dump.c_str());
    }
}

void Runner::run(const ggml_cgraph * graph, int i) {
    ggml_tensor * node = graph->nodes[i];
    if (is_done_[size_t(i)] != 0 || ggml_is_empty(node)) {
        return;
    }
    node_ = node;
    switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_VIEW:
    case GGML_OP_RESHAPE:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
        return;
    case GGML_OP_MUL_MAT:
        op_mul_mat(node);
        return;
    case GGML_OP_ADD:
    case GGML_OP_SUB:
    case GGML_OP_MUL:
    case GGML_OP_DIV:
        op_binary(node);
        return;
    case GGML_OP_SCALE:
        op_scale(node);
        return;
    case GGML_OP_SQR:
    case GGML_OP_SQRT:
    case GGML_OP_LOG:
    case GGML_OP_SIN:
    case GGML_OP_COS:
    case GGML_OP_CLAMP:
    case GGML_OP_UNARY:
        op_unary(node);
        return;
    case GGML_OP_GLU:
        op_glu(node);
        return;
    case GGML_OP_NORM:
    case GGML_OP_RMS_NORM: {
        const auto fused = norms_.find(node);
        if (fused == norms_.end()) {
            op_norm(node, nullptr, nullptr, loc(node));
        } else {
            const auto [by, plus] = fused->second;
            const auto other      = [&](const ggml_tensor * t, const ggml_tensor * x) {
                return t == nullptr ? nullptr : (t->src[0] == x ? t->src[1] : t->src[0]);
            };
            op_norm(node, other(by, node), other(plus, by), loc(plus != nullptr ? plus : by));
        }
        return;
    }
    case GGML_OP_SOFT_MAX:
        op_soft_max(node);
        return;
    case GGML_OP_ROPE: {
        const auto pair = rope_pairs_.find(node);
        Loc x = loc(node->src[0]), y = loc(node);
        if (pair != rope_pairs_.end()) { // the second one's heads follow the first one's in memory
            x.ne[1] += pair->second->ne[1];
            y.ne[1] += pair->second->ne[1];
        }
        op_rope(node, x, y);
        return;
    }
    case GGML_OP_GET_ROWS:
        op_get_rows(node);
        return;
    case GGML_OP_SET_ROWS:
        op_set_rows(node);
        return;
    case GGML_OP_CPY:
    case GGML_OP_CONT:
    case GGML_OP_DUP:
        op_copy(node->src[0], node);
        return;
    case GGML_OP_CONCAT:
        op_concat(node);
        return;
    case GGML_OP_REPEAT:
        op_repeat(node);
        return;
    case GGML_OP_SUM_ROWS:
    case GGML_OP_MEAN:
        op_reduce(node);
        return;
    default:
        throw AclFailure(ACL_ERROR_API_NOT_SUPPORT, std::string("no operator for ") + ggml_op_name(node->op));
    }
}

} // namespace cann310b
