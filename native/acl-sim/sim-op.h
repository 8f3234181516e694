// Phase 1 and phase 2 of an aclnn operator, as every operator shares them.
//
//   aclnnStatus aclnnSiluGetWorkspaceSize(const aclTensor * self, aclTensor * out, uint64_t * size,
//                                         aclOpExecutor ** executor) {
//       return plan_op("aclnnSilu", size, executor, [&](Plan & p) {
//           const int x = p.in("self", self), y = p.out("out", out);
//           p.dtypes({x, y}, kFloats);
//           p.require_same_shape(x, y);
//           p.run([=](const Spans & s) { map_unary(Unary::silu, {}, s[x], s[y]); });
//       });
//   }
//
// Phase 1 decides everything: a broken rule throws Refusal, which plan_op turns into the code a 310B gives,
// with a line for aclGetRecentErrMsg. What a real toolkit does not notice (a misaligned address, an output
// that overlaps an input, a view larger than its storage) ends the process: on a board it would be silent
// corruption.
//
// Phase 2 turns the plan into one task of the stream: byte ranges read and written, predicted time, kernel.
#pragma once

#include "sim-cost.h"
#include "sim-kernel.h"
#include "sim-tensor.h"

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace sim {

// Status codes of the aclnn layer (fact sheet 3.3).
constexpr aclnnStatus kAclnnOk           = 0;
constexpr aclnnStatus kAclnnNullptr      = 161001;
constexpr aclnnStatus kAclnnInvalid      = 161002;
constexpr aclnnStatus kAclnnRuntimeError = 361001;
constexpr aclnnStatus kAclnnInner        = 561000;
constexpr aclnnStatus kAclnnInnerNull    = 561103; // the usual answer for a missing kernel on 310B

struct Refusal {
    aclnnStatus code;
    std::string reason;
};

using Spans  = std::vector<Span>; // by operand number; a missing optional operand has no data
using Kernel = std::function<void(const Spans &)>;
// Returns what went wrong on the device, empty when nothing did. The stream then fails with 507015.
using FaultyKernel = std::function<std::string(const Spans &)>;

enum class Access { read, write, update };

struct Operand {
    std::string role;
    Access access            = Access::read;
    const aclTensor * tensor = nullptr;
    uint64_t serial          = 0;
    TensorShape shape;
    void * data           = nullptr;
    int64_t over_read     = 0;     // elements past `reach` that the chip may touch: must be mapped
    bool is_whole_storage = false; // NZ: every byte of the storage is read or written
};

class Plan {
  public:
    explicit Plan(const char * op) : op_(op) {}

    // ---- operands, numbered in the order they are named; null: 161001 ----
    int in(const char * role, const aclTensor * tensor) { return add(role, tensor, Access::read); }
    int out(const char * role, const aclTensor * tensor) { return add(role, tensor, Access::write); }
    int update(const char * role, const aclTensor * tensor) { return add(role, tensor, Access::update); }
    int in_optional(const char * role, const aclTensor * tensor);  // -1 when null
    int out_optional(const char * role, const aclTensor * tensor); // -1 when null
    std::vector<int> in_list(const char * role, const aclTensorList * list);
    double number(const char * role, const aclScalar * scalar);
    std::vector<int64_t> integers(const char * role, const aclIntArray * array);

    const TensorShape & shape(int operand) const { return operands_[(size_t) operand].shape; }
    const std::vector<int64_t> & ne(int operand) const { return shape(operand).ne; }
    int rank(int operand) const { return (int) ne(operand).size(); }
    Operand & operand(int operand) { return operands_[(size_t) operand]; }
    int n_operands() const { return (int) operands_.size(); }

    // ---- rules; each throws Refusal ----
    [[noreturn]] void refuse(aclnnStatus code, const std::string & reason) const;
    void require(bool condition, const std::string & reason) const; // 161002
    void dtypes(std::initializer_list<int> operands, const std::vector<aclDataType> & allowed) const;
    void require_same_dtype(int a, int b) const;
    void require_same_shape(int a, int b) const;
    void require_shape(int operand, const std::vector<int64_t> & ne) const;
    std::vector<int64_t> broadcast(int a, int b) const;      // shape of a and b together
    void require_promotion(int a, int b, int y) const;       // y can hold what a op b computes
    int dim(const char * role, int64_t dim, int rank) const; // -rank <= dim < rank; returns 0 <= dim

    // ---- costs ----
    void workspace(uint64_t bytes) { workspace_ += bytes; }
    // The chip works on a contiguous copy of this operand: workspace and a pass over it.
    void make_contiguous(int operand);
    void cost(const MatmulCost & c) {
        matmul_    = c;
        is_matmul_ = true;
    }
    void cost_us(double us) { fixed_us_ = us; }
    // Replaces the bytes counted from the operands (a gather reads rows, not the table).
    void bytes(uint64_t n) { bytes_ = n; }

    // ---- the work ----
    void run(Kernel kernel);
    void run_faulty(FaultyKernel kernel) { kernel_ = std::move(kernel); }
    // An output may be this input (any input when negative), element for element: read before it is written.
    void allow_alias(int operand = -1) {
        alias_allowed_ = true;
        alias_operand_ = operand;
    }
    // For ops that have an Inplace form: an output that is an input is a mistake (fact sheet 7, trap 17).
    void forbid_alias() { alias_forbidden_ = true; }

    const char * op() const { return op_; }

  private:
    friend aclnnStatus plan_op(const char *, uint64_t *, aclOpExecutor **,
                               const std::function<void(Plan &)> &);
    friend aclnnStatus run_op(const char *, void *, uint64_t, aclOpExecutor *, aclrtStream);

    int add(const char * role, const aclTensor * tensor, Access access);
    void check_memory() const;
    void check_overlaps() const;
    bool is_empty() const;
    uint64_t n_bytes() const;
    double predicted_us() const;

    const char * op_;
    std::vector<Operand> operands_;
    FaultyKernel kernel_;
    uint64_t workspace_ = 0;
    MatmulCost matmul_;
    bool is_matmul_       = false;
    bool alias_allowed_   = false;
    int alias_operand_    = -1;
    bool alias_forbidden_ = false;
    double fixed_us_      = -1;
    uint64_t copied_      = 0;
    uint64_t bytes_       = UINT64_MAX;
};

// Phase 1: runs `body`, which names operands, checks rules and leaves a kernel.
aclnnStatus plan_op(const char * op, uint64_t * workspace_size, aclOpExecutor ** executor,
                    const std::function<void(Plan &)> & body);
// Phase 2.
aclnnStatus run_op(const char * op, void * workspace, uint64_t workspace_size, aclOpExecutor * executor,
                   aclrtStream stream);

// Sets of dtypes of fact sheet 4.3.
extern const std::vector<aclDataType> kFloats;     // FLOAT, FLOAT16
extern const std::vector<aclDataType> kArithmetic; // Add, Sub, Mul, Div and their scalar forms
extern const std::vector<aclDataType> kMovable;    // copies: generic, BF16 included
extern const std::vector<aclDataType> kIndices;    // INT32, INT64

} // namespace sim

struct aclOpExecutor : sim::Object {
    explicit aclOpExecutor(sim::Plan p) : plan(std::move(p)) {}
    sim::Plan plan;
    uint64_t workspace = 0;
    bool repeatable    = false;
    bool ran           = false;
};

#define ACLNN_EXPORT extern "C" __attribute__((visibility("default")))
