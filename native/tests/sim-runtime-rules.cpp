// The simulated runtime as a judge: each case is a client that does one thing wrong, and what a real board
// answers or, where a board would corrupt memory in silence, the name under which the simulator ends the
// process.
#include "sim-runtime-client.h"

#include <array>
#include <thread>

using namespace client;

// ---- fatal: silent corruption on a board ----

TEST_CASE(host_read_of_device_memory_dies_by_name) {
    EXPECT_DEATH("host dereference of device memory: 8 bytes into memory allocated by aclrtMalloc #1", {
        begin();
        volatile int64_t * p = static_cast<int64_t *>(device_memory());
        std::fprintf(stderr, "%lld\n", static_cast<long long>(p[1]));
    });
}

TEST_CASE(host_write_to_device_memory_dies_by_name) {
    EXPECT_DEATH("host dereference of device memory", {
        begin();
        std::memset(device_memory(), 0, 16);
    });
}

#ifndef __SANITIZE_THREAD__ // whose allocator ends the process first, in its own words
TEST_CASE(c_free_of_a_device_pointer_dies_by_name) {
    EXPECT_DEATH("host dereference of device memory", {
        begin();
        std::free(device_memory());
    });
}
#endif

TEST_CASE(free_while_queued_work_needs_it_is_fatal_on_every_run) {
    EXPECT_DEATH("memory in use: aclrtFree frees memory that aclnnSilu", {
        begin(R"({"delay_us_max": 500, "seed": 7})");
        aclrtStream s = stream();
        void * x      = device_memory();
        launch(x, device_memory(), s);
        aclrtFree(x);
    });
}

TEST_CASE(overwriting_while_queued_work_reads_it_is_fatal) {
    EXPECT_DEATH("memory in use: aclrtMemcpy overwrites memory that aclnnSilu", {
        begin();
        aclrtStream s = stream();
        void * x      = device_memory();
        launch(x, device_memory(), s);
        const std::array<char, 16> host{};
        aclrtMemcpy(x, kBytes, host.data(), host.size(), ACL_MEMCPY_HOST_TO_DEVICE);
    });
}

TEST_CASE(reading_a_result_without_waiting_is_fatal) {
    EXPECT_DEATH("memory in use: aclrtMemcpy reads memory that aclnnSilu", {
        begin();
        aclrtStream s = stream();
        void * y      = device_memory();
        launch(device_memory(), y, s);
        std::array<char, 16> host{};
        aclrtMemcpy(host.data(), host.size(), y, host.size(), ACL_MEMCPY_DEVICE_TO_HOST);
    });
}

TEST_CASE(host_pointer_given_as_device_memory_is_fatal) {
    EXPECT_DEATH("the kind says H2D, the addresses are H2H", {
        begin();
        std::array<char, 16> a{}, b{};
        aclrtMemcpy(a.data(), a.size(), b.data(), b.size(), ACL_MEMCPY_HOST_TO_DEVICE);
    });
}

TEST_CASE(copy_beyond_an_allocation_is_fatal) {
    EXPECT_DEATH("leave the allocation #1", {
        begin();
        const std::array<char, 8192> host{};
        aclrtMemcpy(device_memory(), host.size(), host.data(), host.size(), ACL_MEMCPY_HOST_TO_DEVICE);
    });
}

TEST_CASE(double_free_is_fatal) {
    EXPECT_DEATH("double free: aclrtFree of memory that was already freed by aclrtFree", {
        begin();
        void * p = device_memory();
        aclrtFree(p);
        aclrtFree(p);
    });
}

TEST_CASE(exit_without_reset_is_fatal) {
    EXPECT_DEATH("exit without reset", {
        begin();
        std::exit(0);
    });
}

TEST_CASE(exit_without_finalize_is_fatal) {
    EXPECT_DEATH("exit without aclFinalize", {
        begin();
        aclrtResetDevice(0);
        std::exit(0);
    });
}

TEST_CASE(reset_with_a_leak_names_it) {
    EXPECT_DEATH("device memory: aclrtMalloc #1, 4096 bytes", {
        begin();
        device_memory();
        aclrtResetDevice(0);
    });
}

TEST_CASE(waiting_for_an_event_nobody_recorded_is_fatal) {
    EXPECT_DEATH("event misuse: aclrtStreamWaitEvent on an event that was never recorded", {
        begin();
        aclrtEvent e = nullptr;
        aclrtCreateEvent(&e);
        aclrtStreamWaitEvent(stream(), e);
    });
}

TEST_CASE(unknown_configuration_key_is_fatal) {
    EXPECT_DEATH("unknown key 'memori_mb'", begin(R"({"memori_mb": 12})"));
}

// ---- codes ----

TEST_CASE(second_init_answers_100002) {
    begin();

    CHECK_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);

    end();
}

TEST_CASE(second_finalize_answers_100037) {
    begin();
    end();

    CHECK_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
}

TEST_CASE(reset_once_too_often_answers_507007) {
    begin();
    CHECK_EQ(aclrtResetDevice(0), ACL_SUCCESS);

    CHECK_EQ(aclrtResetDevice(0), ACL_ERROR_RT_CONTEXT_RELEASE_ERROR);

    CHECK_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST_CASE(call_without_a_context_on_another_thread_answers_107002) {
    begin();
    void * mine        = device_memory();
    aclError malloc_rc = ACL_SUCCESS, memcpy_rc = ACL_SUCCESS, stream_rc = ACL_SUCCESS, free_rc = -1;
    std::thread other([&] {
        void * p       = nullptr;
        aclrtStream s  = nullptr;
        const int host = 0;
        malloc_rc      = aclrtMalloc(&p, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
        memcpy_rc      = aclrtMemcpy(mine, kBytes, &host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE);
        stream_rc      = aclrtCreateStream(&s);
        free_rc        = aclrtFree(mine); // the one that needs none
    });
    other.join();

    CHECK_EQ(malloc_rc, ACL_ERROR_RT_CONTEXT_NULL);
    CHECK_EQ(memcpy_rc, ACL_ERROR_RT_CONTEXT_NULL);
    CHECK_EQ(stream_rc, ACL_ERROR_RT_CONTEXT_NULL);
    CHECK_EQ(free_rc, ACL_SUCCESS);
    end();
}

TEST_CASE(out_of_memory_answers_207001_and_says_how_much_is_free) {
    begin(R"({"memory_mb": 64, "used_mb": 32})");
    void * p = nullptr;

    CHECK_EQ(aclrtMalloc(&p, size_t{33} << 20, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_MEMORY_ALLOCATION);
    const char * said = aclGetRecentErrMsg();
    REQUIRE(said != nullptr);
    CHECK(std::strstr(said, "33554432 free") != nullptr);
    CHECK(aclGetRecentErrMsg() == nullptr); // read once, gone

    p = device_memory(size_t{16} << 20);
    CHECK_EQ(aclrtFree(p), ACL_SUCCESS);
    end();
}

TEST_CASE(injected_fault_hits_the_nth_call_only) {
    begin(R"({"faults": [{"call": "aclrtMalloc", "nth": 2, "code": 207001}]})");
    void * first  = device_memory();
    void * second = nullptr;

    CHECK_EQ(aclrtMalloc(&second, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_MEMORY_ALLOCATION);
    void * third = device_memory();

    aclrtFree(first);
    aclrtFree(third);
    end();
}

TEST_CASE(two_dimensional_copies_and_virtual_memory_are_not_supported) {
    begin();
    std::array<char, 16> host{};
    void * p = nullptr;

    CHECK_EQ(aclrtMemcpy2d(host.data(), 4, host.data(), 4, 4, 4, ACL_MEMCPY_HOST_TO_HOST),
             ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_EQ(aclrtReserveMemAddress(&p, kBytes, 0, nullptr, 0), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);

    end();
}

TEST_CASE(synchronisation_rejects_a_zero_time_out) {
    begin();

    CHECK_EQ(aclrtSynchronizeStreamWithTimeout(nullptr, 0), ACL_ERROR_RT_PARAM_INVALID);

    end();
}

TEST_CASE(hung_stream_times_out_with_507046) {
    begin(R"({"faults": [{"fault": "hang", "after_launches": 0}]})");
    aclrtStream s = stream();
    void *x = device_memory(), *y = device_memory();
    launch(x, y, s);

    CHECK_EQ(aclrtSynchronizeStreamWithTimeout(s, 20), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);

    CHECK_EQ(aclrtDestroyStream(s), ACL_SUCCESS);
    aclrtFree(x);
    aclrtFree(y);
    end();
}

TEST_CASE(lost_device_answers_507010_until_it_is_reset) {
    begin(R"({"faults": [{"fault": "device_lost", "after_launches": 0}]})");
    aclrtStream s = stream();
    void *x = device_memory(), *y = device_memory();
    launch(x, y, s);

    CHECK_EQ(aclrtSynchronizeStream(s), ACL_ERROR_RT_LOST_HEARTBEAT);
    void * more = nullptr;
    CHECK_EQ(aclrtMalloc(&more, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_LOST_HEARTBEAT);

    CHECK_EQ(aclrtDestroyStream(s), ACL_SUCCESS);
    aclrtFree(x);
    aclrtFree(y);
    end();
}

// ---- what must work ----

TEST_CASE(work_waits_for_an_event_of_another_stream) {
    begin(R"({"delay_us_max": 2000, "seed": 3})");
    aclrtStream first = stream(), second = stream();
    void *x = device_memory(), *y = device_memory(), *z = device_memory();
    std::array<float, kCount> host{};
    host.fill(1.0F);
    REQUIRE(aclrtMemcpy(x, kBytes, host.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_SUCCESS);
    aclrtEvent done = nullptr;
    REQUIRE(aclrtCreateEvent(&done) == ACL_SUCCESS);
    launch(x, y, first);
    REQUIRE(aclrtRecordEvent(done, first) == ACL_SUCCESS);
    REQUIRE(aclrtStreamWaitEvent(second, done) == ACL_SUCCESS);
    launch(y, z, second);
    REQUIRE(aclrtSynchronizeStream(second) == ACL_SUCCESS);
    REQUIRE(aclrtSynchronizeStream(first) == ACL_SUCCESS);
    REQUIRE(aclrtMemcpy(host.data(), kBytes, z, kBytes, ACL_MEMCPY_DEVICE_TO_HOST) == ACL_SUCCESS);

    const double once = 1.0 / (1.0 + std::exp(-1.0));
    CHECK_NEAR(host[kCount - 1], once / (1.0 + std::exp(-once)), 1e-5);
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    CHECK_EQ(aclrtQueryEventStatus(done, &status), ACL_SUCCESS);
    CHECK_EQ(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);

    aclrtDestroyEvent(done);
    aclrtDestroyStream(first);
    aclrtDestroyStream(second);
    for (void * p : {x, y, z}) {
        aclrtFree(p);
    }
    end();
}

TEST_CASE(chip_and_form_are_configurable) {
    begin(R"({"chip": "310B1", "run_mode": "separate", "memory_mb": 100, "used_mb": 40})");
    aclrtRunMode mode = ACL_DEVICE;
    size_t free_bytes = 0, total_bytes = 0;

    CHECK_EQ(std::string(aclrtGetSocName()), "Ascend310B1");
    CHECK_EQ(aclrtGetRunMode(&mode), ACL_SUCCESS);
    CHECK_EQ(mode, ACL_HOST);
    CHECK_EQ(aclrtGetMemInfo(ACL_DDR_MEM, &free_bytes, &total_bytes), ACL_SUCCESS);
    CHECK_EQ(total_bytes >> 20, 100U);
    CHECK_EQ(free_bytes >> 20, 60U);

    end();
}

TEST_MAIN()
