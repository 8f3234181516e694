#include "sim-op.h"

#include "sim-core.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace sim {

const std::vector<aclDataType> kFloats     = {ACL_FLOAT, ACL_FLOAT16};
const std::vector<aclDataType> kArithmetic = {ACL_FLOAT, ACL_FLOAT16, ACL_INT32,  ACL_INT64, ACL_INT16,
                                              ACL_INT8,  ACL_UINT8,   ACL_DOUBLE, ACL_BOOL};
const std::vector<aclDataType> kMovable    = {ACL_FLOAT,  ACL_FLOAT16, ACL_INT32,  ACL_INT64,  ACL_INT16,
                                              ACL_INT8,   ACL_UINT8,   ACL_DOUBLE, ACL_UINT16, ACL_UINT32,
                                              ACL_UINT64, ACL_BOOL,    ACL_BF16};
const std::vector<aclDataType> kIndices    = {ACL_INT32, ACL_INT64};

namespace {

constexpr uintptr_t kTensorAlign    = 32;   // fact sheet 3.1 and section 8 rule 8
constexpr uintptr_t kWorkspaceAlign = 64;   // as aclrtMalloc
constexpr size_t kMaxRanges         = 64;   // byte ranges reported per operand before one span of all is used
constexpr size_t kMaxRuns           = 4096; // runs compared when two strided operands may overlap

uint8_t * first_byte(const Operand & o) {
    return static_cast<uint8_t *>(o.data) + o.shape.offset * dtype_size(o.shape.dtype);
}

struct Bytes {
    const uint8_t * begin;
    size_t n;
};

// Bytes the operand touches as runs in memory, at most `limit` of them; empty vector: too many.
std::vector<Bytes> runs_of(const Operand & o, size_t limit) {
    const int64_t size = dtype_size(o.shape.dtype);
    if (o.is_whole_storage) {
        return {{static_cast<const uint8_t *>(o.data), (size_t) (o.shape.n_storage() * size)}};
    }
    // Merge dims from the inside while they are dense.
    const TensorShape & s = o.shape;
    int64_t run           = 1;
    std::vector<std::pair<int64_t, int64_t>> outer; // (extent, stride) that do not merge
    for (size_t d = s.ne.size(); d-- > 0;) {
        if (s.ne[d] == 1 || s.stride[d] == 0) {
            continue; // a repeated element is one element
        }
        if (outer.empty() && s.stride[d] == run) {
            run *= s.ne[d];
        } else {
            outer.emplace_back(s.ne[d], s.stride[d]);
        }
    }
    size_t n_runs = 1;
    for (const auto & dim : outer) {
        n_runs *= (size_t) dim.first;
        if (n_runs > limit) {
            return {};
        }
    }
    std::vector<Bytes> runs;
    for (size_t i = 0; i < n_runs; ++i) {
        int64_t at = 0, rest = (int64_t) i;
        for (const auto & dim : outer) {
            at += rest % dim.first * dim.second;
            rest /= dim.first;
        }
        runs.push_back({first_byte(o) + at * size, (size_t) (run * size)});
    }
    std::sort(runs.begin(), runs.end(), [](const Bytes & a, const Bytes & b) { return a.begin < b.begin; });
    return runs;
}

Bytes extent_of(const Operand & o) {
    const int64_t size = dtype_size(o.shape.dtype);
    if (o.is_whole_storage) {
        return {static_cast<const uint8_t *>(o.data), (size_t) (o.shape.n_storage() * size)};
    }
    return {first_byte(o), (size_t) (o.shape.reach() * size)};
}

bool meet(const Bytes & a, const Bytes & b) {
    return a.begin < b.begin + b.n && b.begin < a.begin + a.n;
}

bool same_view(const Operand & a, const Operand & b) {
    if (first_byte(a) != first_byte(b) || a.shape.dtype != b.shape.dtype) {
        return false;
    }
    // Leading ones and strides of single elements do not matter.
    const auto plain = [](const TensorShape & s) {
        std::vector<std::pair<int64_t, int64_t>> dims;
        for (size_t d = 0; d < s.ne.size(); ++d) {
            if (s.ne[d] == 1) {
                continue;
            }
            if (!dims.empty() && dims.back().second == s.stride[d] * s.ne[d]) {
                dims.back().first *= s.ne[d];
                dims.back().second = s.stride[d];
            } else {
                dims.emplace_back(s.ne[d], s.stride[d]);
            }
        }
        return dims;
    };
    return plain(a.shape) == plain(b.shape);
}

bool overlap(const Operand & a, const Operand & b) {
    if (a.shape.n_elements() == 0 || b.shape.n_elements() == 0 || !meet(extent_of(a), extent_of(b))) {
        return false;
    }
    const std::vector<Bytes> p = runs_of(a, kMaxRuns), q = runs_of(b, kMaxRuns);
    if (p.empty() || q.empty()) {
        return false; // too finely strided to tell; never reported rather than wrongly
    }
    for (size_t i = 0, j = 0; i < p.size() && j < q.size();) {
        if (meet(p[i], q[j])) {
            return true;
        }
        (p[i].begin + p[i].n <= q[j].begin ? i : j) += 1;
    }
    return false;
}

// An output whose elements share memory would be written twice in no particular order.
bool overlaps_itself(const TensorShape & s) {
    std::vector<std::pair<int64_t, int64_t>> dims; // (stride, extent)
    for (size_t d = 0; d < s.ne.size(); ++d) {
        if (s.ne[d] > 1) {
            dims.emplace_back(s.stride[d], s.ne[d]);
        }
    }
    std::sort(dims.begin(), dims.end());
    int64_t reach = 1;
    for (const auto & dim : dims) {
        if (dim.first < reach) {
            return true;
        }
        reach = dim.first * (dim.second - 1) + reach;
    }
    return false;
}

void add_ranges(std::vector<Range> & to, const Operand & o) {
    if (o.shape.n_elements() == 0) {
        return;
    }
    std::vector<Bytes> runs = runs_of(o, kMaxRanges);
    if (runs.empty()) {
        runs.push_back(extent_of(o));
    }
    for (const Bytes & run : runs) {
        to.push_back({run.begin, run.n});
    }
}

// A copy of a call's name that is kept for ever: the runtime remembers the pointer as the thread's current
// call, also when the library that held the literal has been closed.
const std::string & kept(std::string name) {
    static std::mutex lock;
    static auto * const names = new std::unordered_set<std::string>;
    const std::lock_guard<std::mutex> guard(lock);
    return *names->insert(std::move(name)).first;
}

// What the worker thread needs of an operand, without the client's handle.
struct Window {
    const uint8_t * begin = nullptr;
    size_t n              = 0; // bytes the operand's elements reach over
    size_t n_with_slack   = 0; // with the chip's over-read
    Span span;
    std::string name;
};

Window window_of(const Operand & o) {
    Window w;
    w.name = o.role;
    if (o.data == nullptr) {
        return w;
    }
    const int64_t size = dtype_size(o.shape.dtype);
    const Bytes extent = extent_of(o);
    w.begin            = extent.begin;
    w.n                = extent.n;
    w.n_with_slack     = extent.n + (size_t) (o.over_read * size);
    w.span.dtype       = o.shape.dtype;
    w.span.rank        = (int) o.shape.ne.size();
    for (int d = 0; d < w.span.rank; ++d) {
        w.span.ne[d]     = o.shape.ne[(size_t) d];
        w.span.stride[d] = o.shape.stride[(size_t) d];
    }
    return w;
}

} // namespace

// ---- operands ----

int Plan::add(const char * role, const aclTensor * tensor, Access access) {
    if (tensor == nullptr) {
        refuse(kAclnnNullptr, std::string(role) + " is null");
    }
    check_object(tensor, ObjectKind::tensor, op_, role);
    Operand o;
    o.role   = role;
    o.access = access;
    o.tensor = tensor;
    o.serial = tensor->serial;
    o.shape  = tensor->shape;
    o.data   = tensor->data;
    require(o.shape.ne.size() <= kMaxDims, o.role + " has more than 8 dimensions: " + o.shape.text());
    operands_.push_back(std::move(o));
    return (int) operands_.size() - 1;
}

int Plan::in_optional(const char * role, const aclTensor * tensor) {
    return tensor == nullptr ? -1 : add(role, tensor, Access::read);
}

int Plan::out_optional(const char * role, const aclTensor * tensor) {
    return tensor == nullptr ? -1 : add(role, tensor, Access::write);
}

std::vector<int> Plan::in_list(const char * role, const aclTensorList * list) {
    if (list == nullptr) {
        refuse(kAclnnNullptr, std::string(role) + " is null");
    }
    check_object(list, ObjectKind::tensor_list, op_, role);
    std::vector<int> numbers;
    for (const aclTensor * tensor : list->tensors) {
        numbers.push_back(add(role, tensor, Access::read));
    }
    return numbers;
}

double Plan::number(const char * role, const aclScalar * scalar) {
    if (scalar == nullptr) {
        refuse(kAclnnNullptr, std::string(role) + " is null");
    }
    check_object(scalar, ObjectKind::scalar, op_, role);
    require(scalar->dtype != ACL_BF16, std::string(role) + " is BF16, which a 310B does not take");
    return scalar->value;
}

std::vector<int64_t> Plan::integers(const char * role, const aclIntArray * array) {
    if (array == nullptr) {
        refuse(kAclnnNullptr, std::string(role) + " is null");
    }
    check_object(array, ObjectKind::int_array, op_, role);
    return array->values;
}

// ---- rules ----

void Plan::refuse(aclnnStatus code, const std::string & reason) const {
    throw Refusal{code, reason};
}

void Plan::require(bool condition, const std::string & reason) const {
    if (!condition) {
        refuse(kAclnnInvalid, reason);
    }
}

void Plan::dtypes(std::initializer_list<int> operands, const std::vector<aclDataType> & allowed) const {
    for (const int i : operands) {
        if (i >= 0 && std::find(allowed.begin(), allowed.end(), shape(i).dtype) == allowed.end()) {
            refuse(kAclnnInvalid, operands_[(size_t) i].role + " is " + dtype_name(shape(i).dtype) +
                                      ", which this op does not take on a 310B");
        }
    }
}

void Plan::require_same_dtype(int a, int b) const {
    require(shape(a).dtype == shape(b).dtype,
            operands_[(size_t) a].role + " and " + operands_[(size_t) b].role +
                " differ in dtype: " + shape(a).text() + ", " + shape(b).text());
}

void Plan::require_same_shape(int a, int b) const {
    require_shape(b, ne(a));
}

void Plan::require_shape(int operand, const std::vector<int64_t> & wanted) const {
    require(ne(operand) == wanted, operands_[(size_t) operand].role + " is " + shape(operand).text() +
                                       ", expected " + dims_text(wanted));
}

std::vector<int64_t> Plan::broadcast(int a, int b) const {
    const std::vector<int64_t> & p = ne(a);
    const std::vector<int64_t> & q = ne(b);
    std::vector<int64_t> out(std::max(p.size(), q.size()), 1);
    for (size_t i = 0; i < out.size(); ++i) { // from the last dim
        const int64_t x = i < p.size() ? p[p.size() - 1 - i] : 1;
        const int64_t y = i < q.size() ? q[q.size() - 1 - i] : 1;
        require(x == y || x == 1 || y == 1,
                "shapes do not broadcast: " + shape(a).text() + " and " + shape(b).text());
        out[out.size() - 1 - i] = x == 1 ? y : x;
    }
    return out;
}

void Plan::require_promotion(int a, int b, int y) const {
    const auto is_float = [this](int i) {
        return shape(i).dtype == ACL_FLOAT || shape(i).dtype == ACL_FLOAT16 || shape(i).dtype == ACL_DOUBLE;
    };
    require(!(is_float(a) || is_float(b)) || is_float(y), "the result of " + shape(a).text() + " and " +
                                                              shape(b).text() + " does not fit into " +
                                                              shape(y).text());
    require(shape(y).dtype != ACL_BOOL || (shape(a).dtype == ACL_BOOL && shape(b).dtype == ACL_BOOL),
            "the result of " + shape(a).text() + " and " + shape(b).text() + " does not fit into BOOL");
}

int Plan::dim(const char * role, int64_t dim, int rank) const {
    const int64_t n = std::max(rank, 1);
    require(dim >= -n && dim < n, std::string(role) + " is " + std::to_string(dim) +
                                      " for a tensor of rank " + std::to_string(rank));
    return (int) (dim < 0 ? dim + n : dim);
}

// ---- costs ----

void Plan::make_contiguous(int operand) {
    const TensorShape & s = shape(operand);
    if (s.is_contiguous()) {
        return;
    }
    const uint64_t n = (uint64_t) (s.n_elements() * dtype_size(s.dtype));
    workspace_ += n;
    copied_ += 2 * n;
}

void Plan::run(Kernel kernel) {
    kernel_ = [kernel = std::move(kernel)](const Spans & spans) {
        kernel(spans);
        return std::string();
    };
}

bool Plan::is_empty() const {
    for (const Operand & o : operands_) {
        if (o.access != Access::read && o.shape.n_elements() == 0) {
            return true;
        }
    }
    return false;
}

uint64_t Plan::n_bytes() const {
    if (bytes_ != UINT64_MAX) {
        return bytes_ + copied_;
    }
    if (is_matmul_) {
        return matmul_bytes(matmul_) + matmul_.copied_bytes + copied_;
    }
    uint64_t n = copied_;
    for (const Operand & o : operands_) {
        const uint64_t once = (uint64_t) (o.shape.n_elements() * dtype_size(o.shape.dtype));
        n += o.access == Access::update ? 2 * once : once;
    }
    return n;
}

double Plan::predicted_us() const {
    static const CostKnobs knobs = cost_knobs(config().chip, config().cann);
    if (fixed_us_ >= 0) {
        return fixed_us_;
    }
    if (is_matmul_) {
        MatmulCost c = matmul_;
        c.copied_bytes += copied_;
        return matmul_us(knobs, c);
    }
    return vector_us(knobs, n_bytes());
}

// ---- memory: what a board would not notice until it computes garbage ----

void Plan::check_memory() const {
    for (const Operand & o : operands_) {
        if (o.shape.n_elements() == 0) {
            continue;
        }
        const std::string who = std::string(op_) + ": " + o.role + " (" + o.shape.text() + ")";
        if (o.data != nullptr && reinterpret_cast<uintptr_t>(o.data) % kTensorAlign != 0) {
            char address[32];
            std::snprintf(address, sizeof address, "%p", o.data);
            fatal("rule 8: " + who + " starts at " + address +
                  ": tensor data must be 32 B aligned (reach an element inside a buffer by the offset "
                  "argument)");
        }
        if (o.is_whole_storage) {
            continue;
        }
        if (o.shape.offset < 0 || o.shape.offset + o.shape.reach() > o.shape.n_storage()) {
            fatal("rule 10: " + who + " reaches element " +
                  std::to_string(o.shape.offset + o.shape.reach() - 1) + " of a storage of " +
                  dims_text(o.shape.storage) + ": view outside its storage");
        }
        if (o.access != Access::read && overlaps_itself(o.shape)) {
            fatal("rule 10: " + who + " with strides " + dims_text(o.shape.stride) +
                  ": elements of an output share memory");
        }
    }
}

void Plan::check_overlaps() const {
    for (const Operand & y : operands_) {
        if (y.access == Access::read || y.data == nullptr) {
            continue;
        }
        for (const Operand & x : operands_) {
            if (&x == &y || x.data == nullptr || (x.access != Access::read && &x < &y)) {
                continue;
            }
            const bool same = same_view(x, y);
            if (same && x.access == Access::read && alias_forbidden_) {
                fatal("trap 17: " + std::string(op_) + ": " + y.role + " is the memory of " + x.role +
                      ": use the Inplace form of the op");
            }
            const bool wanted = alias_operand_ < 0 || &x == &operands_[(size_t) alias_operand_];
            if (same && alias_allowed_ && wanted) {
                continue;
            }
            if (overlap(x, y)) {
                fatal("rule 10: " + std::string(op_) + ": " + y.role + " (" + y.shape.text() + ") overlaps " +
                      x.role + " (" + x.shape.text() + ") while it is read");
            }
        }
    }
}

// ---- phase 1 ----

aclnnStatus plan_op(const char * op, uint64_t * workspace_size, aclOpExecutor ** executor,
                    const std::function<void(Plan &)> & body) {
    const std::string & call = kept(std::string(op) + "GetWorkspaceSize");
    if (const aclError injected = enter_call(call.c_str()); injected != ACL_SUCCESS) {
        return injected;
    }
    Plan plan(op);
    try {
        if (workspace_size == nullptr || executor == nullptr) {
            plan.refuse(kAclnnNullptr, "workspaceSize or executor is null");
        }
        body(plan);
    } catch (const Refusal & refusal) {
        set_error(call, refusal.code, refusal.reason);
        trace_call(call, refusal.code);
        return refusal.code;
    }
    plan.check_memory();
    if (plan.is_empty()) {
        plan.workspace_ = 0;
        plan.kernel_    = nullptr;
    }
    auto * made     = new aclOpExecutor(std::move(plan));
    made->kind      = ObjectKind::executor;
    made->workspace = made->plan.workspace_;
    object_created(*made, call);
    *workspace_size = made->workspace;
    *executor       = made;
    return kAclnnOk;
}

// ---- phase 2 ----

aclnnStatus run_op(const char * op, void * workspace, uint64_t workspace_size, aclOpExecutor * executor,
                   aclrtStream stream) {
    if (const aclError injected = enter_call(kept(op).c_str()); injected != ACL_SUCCESS) {
        return injected;
    }
    if (executor == nullptr) {
        set_error(op, kAclnnNullptr, "executor is null");
        return kAclnnNullptr;
    }
    // A single-use executor dies at the end of phase 2, so a second use finds it in its grave.
    check_object(executor, ObjectKind::executor, op, "executor");
    Plan & plan = executor->plan;
    if (std::strcmp(plan.op(), op) != 0) {
        fatal(std::string("rule 8: ") + op + " was given the executor of " + plan.op() + "GetWorkspaceSize");
    }
    for (Operand & o : plan.operands_) {
        if (!is_alive(o.tensor, o.serial)) {
            fatal(std::string("rule 8: ") + op + ": " + o.role +
                  " was destroyed between aclnn...GetWorkspaceSize and this call");
        }
        o.data = o.tensor->data; // aclSet...TensorAddr may have moved it
    }
    plan.check_memory();
    plan.check_overlaps();
    if (executor->workspace > 0) {
        if (workspace == nullptr || workspace_size < executor->workspace) {
            fatal(std::string("workspace too small: ") + op + " asked for " +
                  std::to_string(executor->workspace) + " bytes and got " +
                  (workspace == nullptr ? "null" : std::to_string(workspace_size)));
        }
        if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlign != 0) {
            fatal(std::string("rule 8: ") + op + ": the workspace is not 64 B aligned");
        }
        const Bytes area{static_cast<const uint8_t *>(workspace), executor->workspace};
        for (const Operand & o : plan.operands_) {
            if (o.data != nullptr && o.shape.n_elements() > 0 && meet(area, extent_of(o))) {
                fatal(std::string("rule 4: ") + op + ": the workspace overlaps " + o.role);
            }
        }
    }

    aclnnStatus status = kAclnnOk;
    if (plan.kernel_) {
        Task task;
        task.name         = op;
        task.bytes        = plan.n_bytes();
        task.predicted_us = plan.predicted_us();
        std::vector<Window> windows;
        for (const Operand & o : plan.operands_) {
            if (o.access != Access::write) {
                add_ranges(task.reads, o);
            }
            if (o.access != Access::read) {
                add_ranges(task.writes, o);
            }
            task.shape += (task.shape.empty() ? "" : (o.access == Access::read ? ", " : " -> ")) +
                          dims_text(o.shape.ne);
            task.dtype += (task.dtype.empty() ? "" : ",") + std::string(dtype_name(o.shape.dtype));
            windows.push_back(window_of(o));
        }
        if (executor->workspace > 0) {
            task.writes.push_back({workspace, executor->workspace});
        }
        const uint64_t n_workspace = executor->workspace;
        task.run = [kernel = plan.kernel_, windows = std::move(windows), workspace, n_workspace,
                    name = std::string(op)]() -> std::string {
            if (n_workspace > 0) {
                // The chip scribbles over its workspace: whoever keeps something there loses it.
                std::memset(dev_ptr(workspace, n_workspace), 0xa5, std::min<uint64_t>(n_workspace, 1 << 16));
            }
            Spans spans;
            for (const Window & w : windows) {
                Span span = w.span;
                if (w.n > 0) {
                    if (w.n_with_slack > w.n && !is_mapped(w.begin, w.n_with_slack)) {
                        return name + ": reading a full 16-row tile of " + w.name +
                               " leaves mapped memory (" + std::to_string(w.n_with_slack - w.n) +
                               " bytes past the operand)";
                    }
                    span.data = dev_ptr(w.begin, w.n);
                }
                spans.push_back(span);
            }
            return kernel(spans);
        };
        const aclError rc = enqueue(stream, std::move(task), op);
        if (rc != ACL_SUCCESS) {
            status = rc;
        }
    }
    executor->ran = true;
    if (!executor->repeatable) {
        object_destroyed(executor, ObjectKind::executor, op);
        delete executor;
    }
    return status;
}

} // namespace sim
