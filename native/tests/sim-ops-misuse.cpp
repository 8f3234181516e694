// What a board would answer with silent corruption ends the process by name: rules 8 and 10 of section 8, and
// workspaces (rule 4). Each case is a client with one mistake.
#include "sim-ops-client.h"

#include <thread>

using namespace client;

TEST_CASE(executor_used_twice) {
    EXPECT_DEATH("rule 8: aclnnNeg: 'executor' is no living aclOpExecutor: already destroyed", {
        Board board;
        const Array x(board, ACL_FLOAT, 64), y(board, ACL_FLOAT, 64);
        const Tensor tx(x, {64}), ty(y, {64});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        aclnnNegGetWorkspaceSize(tx, ty, &size, &executor);
        aclnnNeg(nullptr, size, executor, board.stream);
        aclnnNeg(nullptr, size, executor, board.stream);
    });
}

TEST_CASE(executor_of_another_operator) {
    EXPECT_DEATH("aclnnNeg was given the executor of aclnnAbs", {
        Board board;
        const Array x(board, ACL_FLOAT, 64), y(board, ACL_FLOAT, 64);
        const Tensor tx(x, {64}), ty(y, {64});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        aclnnAbsGetWorkspaceSize(tx, ty, &size, &executor);
        aclnnNeg(nullptr, size, executor, board.stream);
    });
}

TEST_CASE(list_destroyed_after_its_member) {
    EXPECT_DEATH("rule 8: aclDestroyTensorList: member 0 was already destroyed", {
        Board board;
        const Array x(board, ACL_FLOAT, 64);
        const aclTensor * member = Tensor(x, {64}).release();
        aclTensorList * list     = aclCreateTensorList(&member, 1);
        aclDestroyTensor(member);
        aclDestroyTensorList(list);
    });
}

TEST_CASE(member_destroyed_after_its_list) {
    EXPECT_DEATH("aclDestroyTensor: 'handle' is no living aclTensor: already destroyed", {
        Board board;
        const Array x(board, ACL_FLOAT, 64);
        const aclTensor * member = Tensor(x, {64}).release();
        aclTensorList * list     = aclCreateTensorList(&member, 1);
        aclDestroyTensorList(list);
        aclDestroyTensor(member);
    });
}

TEST_CASE(tensor_destroyed_twice) {
    EXPECT_DEATH("rule 8: aclDestroyTensor", {
        Board board;
        const Array x(board, ACL_FLOAT, 64);
        aclTensor * t = Tensor(x, {64}).release();
        aclDestroyTensor(t);
        aclDestroyTensor(t);
    });
}

TEST_CASE(handle_of_the_wrong_kind) {
    EXPECT_DEATH("'self' is no living aclTensor: it is an aclScalar made by aclCreateScalar", {
        Board board;
        const Array y(board, ACL_FLOAT, 64);
        const Tensor ty(y, {64});
        const Scalar one(1.0F);
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        aclnnNegGetWorkspaceSize(reinterpret_cast<aclTensor *>((aclScalar *) one), ty, &size, &executor);
    });
}

TEST_CASE(tensor_destroyed_between_the_phases) {
    EXPECT_DEATH("rule 8: aclnnNeg: self was destroyed between", {
        Board board;
        const Array x(board, ACL_FLOAT, 64), y(board, ACL_FLOAT, 64);
        aclTensor * tx = Tensor(x, {64}).release();
        const Tensor ty(y, {64});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        aclnnNegGetWorkspaceSize(tx, ty, &size, &executor);
        aclDestroyTensor(tx);
        aclnnNeg(nullptr, size, executor, board.stream);
    });
}

TEST_CASE(tensor_may_be_destroyed_after_phase_2) { // R4: the add-on does so without a sync
    Board board;
    const Array x(board, ACL_FLOAT, Values{1, 2}), y(board, ACL_FLOAT, 2);
    uint64_t size            = 0;
    aclOpExecutor * executor = nullptr;
    {
        const Tensor tx(x, {2}), ty(y, {2});
        CHECK_EQ(aclnnNegGetWorkspaceSize(tx, ty, &size, &executor), 0);
        CHECK_EQ(aclnnNeg(nullptr, size, executor, board.stream), 0);
    }
    board.sync();
    CHECK(y.download() == (Values{-1, -2}));
}

TEST_CASE(unaligned_tensor_data) {
    EXPECT_DEATH("rule 8: aclnnNeg: self (FLOAT[4]) starts at", {
        Board board;
        Array x(board, ACL_FLOAT, 64);
        const Array y(board, ACL_FLOAT, 64);
        x.data = static_cast<char *>(x.data) + 16;
        const Tensor tx(x, {4}), ty(y, {4});
        CALL(board, Neg, tx, ty);
    });
}

TEST_CASE(unaligned_element_by_offset_is_fine) {
    Board board;
    const Array x(board, ACL_FLOAT, Values{1, 2, 3, 4}), y(board, ACL_FLOAT, Values{0, 0, 0, 0});
    const Tensor tx(x, {2}, {1}, 1), ty(y, {2}, {1}, 2);
    CHECK_EQ(CALL(board, Neg, tx, ty), 0);
    CHECK(y.download() == (Values{0, 0, -2, -3}));
}

TEST_CASE(view_larger_than_its_storage) {
    EXPECT_DEATH("rule 10: aclnnNeg: out (FLOAT[8,8]) reaches element 63 of a storage of [32]", {
        Board board;
        const Array x(board, ACL_FLOAT, 64), y(board, ACL_FLOAT, 64);
        const Tensor tx(x, {8, 8}), ty(y, {8, 8}, {}, 0, ACL_FORMAT_ND, {32});
        CALL(board, Neg, tx, ty);
    });
}

TEST_CASE(write_past_the_allocation) {
    // The storage is a lie: the memory ends before the view does.
    EXPECT_DEATH("FATAL", {
        Board board;
        const Array x(board, ACL_FLOAT, 4096), y(board, ACL_FLOAT, 64);
        const Tensor tx(x, {4096}), ty(y, {4096}, {}, 0, ACL_FORMAT_ND, {4096});
        CALL(board, Neg, tx, ty);
    });
}

TEST_CASE(output_with_repeated_elements) {
    EXPECT_DEATH("elements of an output share memory", {
        Board board;
        const Array x(board, ACL_FLOAT, 64), y(board, ACL_FLOAT, 64);
        const Tensor tx(x, {4, 16}), ty(y, {4, 16}, {0, 1});
        CALL(board, Neg, tx, ty);
    });
}

TEST_CASE(output_overlaps_input) {
    EXPECT_DEATH("rule 10: aclnnNeg: out (FLOAT[32]) overlaps self (FLOAT[32]) while it is read", {
        Board board;
        const Array x(board, ACL_FLOAT, 64);
        const Tensor tx(x, {32}), ty(x, {32}, {1}, 8);
        CALL(board, Neg, tx, ty);
    });
}

TEST_CASE(interleaved_views_do_not_overlap) {
    Board board;
    const Array x(board, ACL_FLOAT, Values{1, 2, 3, 4});
    const Tensor even(x, {2}, {2}), odd(x, {2}, {2}, 1);
    CHECK_EQ(CALL(board, Neg, even, odd), 0);
    CHECK(x.download() == (Values{1, -1, 3, -3}));
}

TEST_CASE(add_into_its_own_input) {
    EXPECT_DEATH("trap 17: aclnnAdd: out is the memory of self: use the Inplace form", {
        Board board;
        const Array x(board, ACL_FLOAT, 64), y(board, ACL_FLOAT, 64);
        const Tensor tx(x, {64}), ty(y, {64}), out(x, {64});
        const Scalar one(1.0F);
        CALL(board, Add, tx, ty, one, out);
    });
}

TEST_CASE(workspace_too_small) {
    EXPECT_DEATH("workspace too small: aclnnMatmul asked for", {
        Board board;
        const Array a(board, ACL_FLOAT16, 1024), b(board, ACL_FLOAT16, 4096), y(board, ACL_FLOAT16, 64);
        const Tensor ta(a, {1, 64}), tb(b, {64, 64}), ty(y, {1, 64});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        aclnnMatmulGetWorkspaceSize(ta, tb, ty, 0, &size, &executor);
        aclnnMatmul(board.allocate(size), size - 1, executor, board.stream);
    });
}

TEST_CASE(unaligned_workspace) {
    EXPECT_DEATH("rule 8: aclnnMatmul: the workspace is not 64 B aligned", {
        Board board;
        const Array a(board, ACL_FLOAT16, 1024), b(board, ACL_FLOAT16, 4096), y(board, ACL_FLOAT16, 64);
        const Tensor ta(a, {1, 64}), tb(b, {64, 64}), ty(y, {1, 64});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        aclnnMatmulGetWorkspaceSize(ta, tb, ty, 0, &size, &executor);
        aclnnMatmul(static_cast<char *>(board.allocate(size + 64)) + 32, size, executor, board.stream);
    });
}

TEST_CASE(workspace_on_top_of_an_operand) {
    EXPECT_DEATH("rule 4: aclnnMatmul: the workspace overlaps mat2", {
        Board board;
        const Array a(board, ACL_FLOAT16, 1024), b(board, ACL_FLOAT16, 40960), y(board, ACL_FLOAT16, 64);
        const Tensor ta(a, {1, 64}), tb(b, {64, 64}), ty(y, {1, 64});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        aclnnMatmulGetWorkspaceSize(ta, tb, ty, 0, &size, &executor);
        aclnnMatmul(static_cast<char *>(b.data) + 128, size, executor, board.stream);
    });
}

TEST_CASE(workspace_freed_before_the_stream_ran) { // rule 4
    EXPECT_DEATH("FATAL", {
        configure(R"({"delay_us_max": 2000})");
        Board board;
        const Array a(board, ACL_FLOAT16, 1024), b(board, ACL_FLOAT16, 4096), y(board, ACL_FLOAT16, 64);
        const Tensor ta(a, {1, 64}), tb(b, {64, 64}), ty(y, {1, 64});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        void * workspace         = nullptr;
        aclnnMatmulGetWorkspaceSize(ta, tb, ty, 0, &size, &executor);
        aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST);
        aclnnMatmul(workspace, size, executor, board.stream);
        aclrtFree(workspace);
    });
}

TEST_CASE(small_matmul_reads_a_whole_tile) { // rules 5 and 10, M16 and trap 8
    Board board;
    const int64_t k = 1024, n = 64;
    const Array tight(board, ACL_FLOAT16, k), roomy(board, ACL_FLOAT16, 16 * k), b(board, ACL_FLOAT16, n * k),
        y(board, ACL_FLOAT16, n);
    const Tensor tb(b, {k, n}, {1, k}), ty(y, {1, n});
    const auto multiply = [&](const Array & a) {
        const Tensor ta(a, {1, k});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        REQUIRE(aclnnMatmulGetWorkspaceSize(ta, tb, ty, 0, &size, &executor) == 0);
        CHECK_EQ(aclnnMatmul(board.allocate(size), size, executor, board.stream), 0);
        return aclrtSynchronizeStream(board.stream);
    };
    CHECK_EQ(multiply(roomy), ACL_SUCCESS);
    // One row of memory: the launch succeeds, the next synchronisation tells.
    CHECK_EQ(multiply(tight), ACL_ERROR_RT_AICORE_EXCEPTION);
    const char * text = aclGetRecentErrMsg();
    CHECK(text != nullptr && std::string(text).find("16-row tile of self") != std::string::npos);
}

TEST_CASE(index_out_of_range_is_a_device_fault) {
    Board board;
    const Array x(board, ACL_FLOAT, 40), i(board, ACL_INT32, Values{10}), y(board, ACL_FLOAT, 4);
    const Tensor tx(x, {10, 4}), ti(i, {1}), ty(y, {1, 4});
    uint64_t size            = 0;
    aclOpExecutor * executor = nullptr;
    CHECK_EQ(aclnnGatherV2GetWorkspaceSize(tx, 0, ti, ty, &size, &executor), 0);
    CHECK_EQ(aclnnGatherV2(nullptr, size, executor, board.stream), 0);
    CHECK_EQ(aclrtSynchronizeStream(board.stream), ACL_ERROR_RT_AICORE_EXCEPTION);
}

TEST_CASE(int64_comparison_crashes_the_board) { // 4.4
    EXPECT_DEATH("aclnnLtTensor on INT64 is a segmentation fault", {
        Board board;
        const Array x(board, ACL_INT64, 4), y(board, ACL_BOOL, 4);
        const Tensor tx(x, {4}), ty(y, {4});
        CALL(board, LtTensor, tx, tx, ty);
    });
}

TEST_CASE(int64_comparison_crashes_the_board_either_way) {
    EXPECT_DEATH("aclnnGtTensor on INT64 is a segmentation fault", {
        Board board;
        const Array x(board, ACL_INT64, 4), y(board, ACL_BOOL, 4);
        const Tensor tx(x, {4}), ty(y, {4});
        CALL(board, GtTensor, tx, tx, ty);
    });
}

TEST_CASE(matmul_into_its_own_operand) {
    EXPECT_DEATH("rule 10: aclnnMatmul: out (FLOAT16[16,16]) overlaps self", {
        Board board;
        const Array a(board, ACL_FLOAT16, 256), b(board, ACL_FLOAT16, 256);
        const Tensor ta(a, {16, 16}), tb(b, {16, 16}), ty(a, {16, 16});
        CALL(board, Matmul, ta, tb, ty, (int8_t) 0);
    });
}

TEST_CASE(launch_without_a_context) {
    Board board;
    const Array x(board, ACL_FLOAT, 4), y(board, ACL_FLOAT, 4);
    aclnnStatus code = 0;
    std::thread([&] {
        const Tensor tx(x, {4}), ty(y, {4});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        CHECK_EQ(aclnnNegGetWorkspaceSize(tx, ty, &size, &executor), 0);
        code = aclnnNeg(nullptr, size, executor, board.stream);
    }).join();
    CHECK_EQ(code, ACL_ERROR_RT_CONTEXT_NULL);
}

TEST_CASE(executor_that_never_ran_is_a_leak) {
    const check::Ending ending = check::run_child([] {
        Board board;
        const Array x(board, ACL_FLOAT, 4), y(board, ACL_FLOAT, 4);
        const Tensor tx(x, {4}), ty(y, {4});
        uint64_t size            = 0;
        aclOpExecutor * executor = nullptr;
        aclnnNegGetWorkspaceSize(tx, ty, &size, &executor);
    });
    CHECK(ending.output.find("aclOpExecutor #") != std::string::npos);
    CHECK(ending.output.find("aclnnNegGetWorkspaceSize") != std::string::npos);
}

TEST_CASE(forgotten_objects_are_named_at_finalize) {
    const check::Ending ending = check::run_child([] {
        Board board;
        const Array x(board, ACL_FLOAT, 4);
        Tensor(x, {4}).release();
    });
    CHECK(ending.output.find("aclTensor #") != std::string::npos);
    CHECK(ending.output.find("aclCreateTensor") != std::string::npos);
}

TEST_MAIN()
