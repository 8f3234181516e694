// What operators are written with: where a tensor's data lies, temporaries, and one call for both aclnn
// phases.
//
// Everything of one backend runs in order on one stream, so memory may be used again as soon as the call that
// read it is queued; only giving memory back to ACL needs a wait.
#pragma once

#include "device.h"
#include "settings.h"

#include "ggml-impl.h"

#include <array>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace cann310b {

// A strided view of device memory in ggml's order (ne[0] innermost), strides and offset in elements.
struct Loc {
    char * base       = nullptr; // 32 B aligned
    int64_t offset    = 0;
    aclDataType dtype = ACL_FLOAT;
    std::array<int64_t, 4> ne{1, 1, 1, 1};
    std::array<int64_t, 4> st{1, 1, 1, 1};

    int64_t n_elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
    bool is_contiguous() const;
    Loc as_contiguous(aclDataType type, char * at) const; // the same shape, dense, elsewhere
    Loc reshaped(std::array<int64_t, 4> shape) const;     // of a contiguous one
};

size_t size_of(aclDataType type);
bool same_place(const Loc & a, const Loc & b); // same memory, type, shape and strides
bool overlap(const Loc & a, const Loc & b);

struct TensorFree {
    void operator()(const aclTensor * t) const { acl().aclDestroyTensor(t); }
};
using Tensor = std::unique_ptr<aclTensor, TensorFree>;
struct ScalarFree {
    void operator()(const aclScalar * s) const { acl().aclDestroyScalar(s); }
};
using Scalar = std::unique_ptr<aclScalar, ScalarFree>;
struct IntsFree {
    void operator()(const aclIntArray * a) const { acl().aclDestroyIntArray(a); }
};
using Ints = std::unique_ptr<aclIntArray, IntsFree>;

// Dims in ggml's order, at least `rank` of them are kept (leading ones of extent 1 are dropped down to it).
Tensor tensor(const Loc & loc, size_t rank = 1);
// Free dims and strides, outermost first as aclnn has them.
Tensor tensor(char * base, int64_t offset, aclDataType type, const std::vector<int64_t> & ne,
              const std::vector<int64_t> & st);
Scalar scalar(float value);
Ints ints(const std::vector<int64_t> & values);

// Fused operators that this board's kernel package has, found out by asking phase 1 once (fact sheet 5).
struct Fused {
    bool rms_norm = false, layer_norm = false; // FP32
    bool swi_glu = false, ge_glu = false;      // FP16 and FP32
};

struct WorkspaceFailure : AclFailure {
    using AclFailure::AclFailure;
};

// Grow-only device memory of one backend.
class Block {
  public:
    explicit Block(const char * purpose) : purpose_(purpose) {}
    Block(const Block &)             = delete;
    Block & operator=(const Block &) = delete;
    ~Block() { device().release(base, size); }
    char * base = nullptr;
    size_t size = 0;
    bool fits(size_t n) const { return n <= size; }
    void grow(size_t n); // loses the content; nothing queued may use it

  private:
    const char * purpose_;
};

class Runner {
  public:
    Runner();
    ~Runner();
    Runner(const Runner &)             = delete;
    Runner & operator=(const Runner &) = delete;

    ggml_status compute(ggml_cgraph * graph);
    void synchronize();

    // ---- for operators ----
    Loc loc(const ggml_tensor * t) const;
    Loc temporary(const std::array<int64_t, 4> & ne, aclDataType type); // until the next node
    char * temporary_bytes(size_t n);

    template <typename First, typename... Args>
    void call(const char * name, First first, aclnnRunFunction second, Args... args) {
        uint64_t n_workspace     = 0;
        aclOpExecutor * executor = nullptr;
        check(first(args..., &n_workspace, &executor), name);
        try {
            check(second(n_workspace > 0 ? workspace_for(n_workspace) : nullptr, n_workspace, executor,
                         stream_),
                  name);
            if (settings_.sync_each_op) {
                wait(name);
            }
        } catch (const WorkspaceFailure &) { // phase 2 never saw the executor, so nobody else ends it
            if (acl().aclDestroyAclOpExecutor != nullptr) {
                acl().aclDestroyAclOpExecutor(executor);
            }
            throw;
        }
    }

    // ---- the small vocabulary all operators share ----
    void cast(const Loc & from, const Loc & to); // converts, or copies when the types are equal
    void copy(const Loc & from, const Loc & to); // same type, any strides
    void mul(const Loc & a, const Loc & b, const Loc & out);
    void add(const Loc & a, const Loc & b, const Loc & out, float alpha = 1.0F);
    void binary(ggml_op op, const Loc & a, const Loc & b, const Loc & out, float alpha = 1.0F);
    void scale(const Loc & x, float factor, const Loc & out);
    Loc dense_f16(const Loc & x, int64_t n_rows_padded = 0); // itself when it is dense FP16 already

    aclrtStream stream() const { return stream_; }

  private:
    struct Override {
        char * base       = nullptr;
        int64_t offset    = 0;
        aclDataType dtype = ACL_FLOAT16;
        int64_t row       = 0; // elements between rows of the root (its ne[0] unless rows are interleaved)
    };
    struct Group { // matmuls of one input: one launch when their FRACTAL_NZ copies follow each other in
                   // memory
        std::vector<ggml_tensor *> members;
        std::vector<ggml_tensor *> sums; // the addition of a bias to each member; empty without
        int64_t n = 0, k = 0, m = 0;
        char * nz   = nullptr; // of the first member, when all are adjacent
        char * bias = nullptr; // FP16, all of them in a row
        bool is_merged() const { return nz != nullptr && m < 16; }
    };
    struct Tables { // of rotary embedding
        Loc cos, sin;
    };

    const Fused & fused();
    template <typename First, typename... Args>
    bool accepts(First first, aclnnRunFunction second, Args... args);
    void wait(const char * after);
    void dump(const ggml_cgraph * graph);
    void * workspace_for(size_t n);
    void settle_temporaries();
    void plan(const ggml_cgraph * graph);
    void plan_norms(const ggml_cgraph * graph);
    void plan_groups(const ggml_cgraph * graph);
    void plan_storage(const ggml_cgraph * graph);
    bool plan_alias(const ggml_cgraph * graph, const ggml_tensor * node);
    bool plan_rope_pair(const ggml_cgraph * graph, int i);
    bool is_internal(const ggml_tensor * root) const; // nobody outside this graph sees it
    bool takes_f16(const ggml_tensor * root) const;   // every consumer can read it as FP16
    int last_use(const ggml_tensor * root) const;
    size_t slot(size_t n_bytes, int first, int last);
    void run(const ggml_cgraph * graph, int i);

    void op_mul_mat(ggml_tensor * dst);
    void mul_mat_batched(const ggml_tensor * dst);
    void mul_mat_rows(const Loc & x, int64_t m, const Loc & weight, const char * nz, const char * bias,
                      const Loc & out);
    void mul_mat_group(const Group & group);
    void op_binary(ggml_tensor * dst);
    void op_unary(ggml_tensor * dst);
    void op_glu(ggml_tensor * dst);
    void op_scale(ggml_tensor * dst);
    void op_norm(ggml_tensor * dst, const ggml_tensor * weight, const ggml_tensor * bias, const Loc & out);
    void op_soft_max(ggml_tensor * dst);
    void op_rope(ggml_tensor * dst, const Loc & x, const Loc & out);
    void op_get_rows(ggml_tensor * dst);
    void op_set_rows(ggml_tensor * dst);
    void op_copy(const ggml_tensor * src, ggml_tensor * dst);
    void op_concat(ggml_tensor * dst);
    void op_repeat(ggml_tensor * dst);
    void op_reduce(ggml_tensor * dst);
    const Tables & rope_tables(const ggml_tensor * dst);
    bool fused_norm(const ggml_tensor * dst, const ggml_tensor * weight, const ggml_tensor * bias,
                    const Loc & out);
    bool fused_glu(ggml_glu_op op, const Loc & gate, const Loc & other, const Loc & out);
    bool norm_of_one_row(const ggml_tensor * dst, const ggml_tensor * weight, const Loc & out);

    aclrtStream stream_ = nullptr;
    Block workspace_{"a workspace"}, squares_{"squares of one row"}, temporaries_{"temporaries"},
        slots_{"activations"}, tables_{"rotary tables"};
    size_t temporary_at_ = 0, tables_at_ = 0;
    std::vector<std::unique_ptr<Block>> overflow_; // temporaries that did not fit, until the next node
    bool is_failed_ = false;
    Settings settings_;                  // of the graph in work
    const ggml_tensor * node_ = nullptr; // in work, for messages
    uint64_t dumped_          = 0;       // fingerprint of the last graph that was dumped

    // of the graph in work
    std::unordered_map<const ggml_tensor *, Override> overrides_;
    std::unordered_map<const ggml_tensor *, int> index_;
    std::unordered_map<const ggml_tensor *, std::vector<int>> consumers_; // of a root, views looked through
    std::unordered_map<const ggml_tensor *, bool> internal_;
    std::vector<char> is_done_; // nodes that an earlier node's fusion covers
    std::vector<Group> groups_;
    std::unordered_map<const ggml_tensor *, size_t> group_of_; // of its first member
    struct Slot {
        size_t at, size;
        int last;
    };
    std::vector<Slot> live_slots_;
    size_t slots_needed_ = 0;
    std::unordered_map<const ggml_tensor *, const ggml_tensor *> rope_pairs_; // first to second
    // a norm's multiplication by its weight and, with it, the addition of its bias
    std::unordered_map<const ggml_tensor *, std::pair<const ggml_tensor *, const ggml_tensor *>> norms_;
    std::unordered_map<const ggml_tensor *, const ggml_tensor *>
        aliases_; // a copy that is not made, its source
    std::map<std::string, Tables> graph_tables_;
    std::pair<int64_t, float> squares_of_{0, 0.0F}; // row length and eps that squares_ is prepared for
    std::vector<std::vector<float>> constants_;     // uploads the stream may still read
};

bool supports(const ggml_tensor * op);

// What is derived from weights (FRACTAL_NZ copies, FP16 biases), shared by all backends of the process. It is
// freed with the weights' buffer.
void forget_weight_copies(const void * base, size_t size);
// Makes the copies that are missing, on `runner`'s stream, and waits. `groups` are weights of one input:
// their copies are laid side by side. Does nothing under the layout 'nd' or when memory is short.
void make_weight_copies(Runner & runner, const std::vector<std::vector<const ggml_tensor *>> & groups);
char * weight_copy(const ggml_tensor * weight); // null when there is none
// An FP32 copy of a 1-D weight, multiplied by `factor`; null for tensors that are no weights.
char * scaled_copy(Runner & runner, const ggml_tensor * weight, float factor);
// The FP16 copies of 1-D F32 weights, one after the other.
char * bias_copy(Runner & runner, const std::vector<const ggml_tensor *> & biases);

} // namespace cann310b
