// The simulated runtime over time: faults that show late, events, full queues, several processes. Numbers of
// rules are those of the fact sheet's section 8.
#include "sim-runtime-client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <dlfcn.h>
#include <fstream>
#include <future>
#include <thread>

using namespace client;
using namespace std::chrono_literals;

namespace {

void leave(std::initializer_list<aclrtStream> streams, std::initializer_list<void *> blocks) {
    for (aclrtStream s : streams) {
        CHECK_EQ(aclrtDestroyStream(s), ACL_SUCCESS);
    }
    for (void * block : blocks) {
        CHECK_EQ(aclrtFree(block), ACL_SUCCESS);
    }
    end();
}

size_t free_memory() {
    size_t n_free = 0, n_total = 0;
    REQUIRE(aclrtGetMemInfo(ACL_DDR_MEM, &n_free, &n_total) == ACL_SUCCESS);
    return n_free;
}

aclError copy_in(void * to) {
    const std::array<char, 16> host{};
    return aclrtMemcpy(to, kBytes, host.data(), host.size(), ACL_MEMCPY_HOST_TO_DEVICE);
}

// A task that stands in a stream until it is let go.
struct Gate {
    std::atomic<bool> is_open{false};
    std::atomic<int> n_passed{0};

    static void pass(void * self) {
        auto * gate = static_cast<Gate *>(self);
        while (!gate->is_open) {
            std::this_thread::sleep_for(100us);
        }
        ++gate->n_passed;
    }
};

} // namespace

// ---- rule 2: form ----

TEST_CASE(host_to_host_copies_are_queued_on_a_board_only) {
    for (const bool board : {true, false}) {
        const check::Ending ending = check::run_child([&] {
            begin(board ? R"({"run_mode": "unified"})" : R"({"run_mode": "separate"})");
            aclrtStream s = stream();
            std::array<char, 4> a{'a'}, b{};
            CHECK_EQ(aclrtMemcpyAsync(b.data(), 4, a.data(), 4, ACL_MEMCPY_HOST_TO_HOST, s),
                     board ? ACL_SUCCESS : ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
            CHECK_EQ(aclrtSynchronizeStream(s), ACL_SUCCESS);
            CHECK_EQ(b[0], board ? 'a' : '\0');
            leave({s}, {});
        });
        CHECK_EQ(ending.exit_status, 0);
        std::cerr << ending.output;
    }
}

TEST_CASE(copies_answer_the_codes_of_their_arguments) {
    begin();
    void * p = device_memory();
    std::array<char, 16> host{};

    CHECK_EQ(aclrtMemcpy(p, 8, host.data(), 16, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_EQ(aclrtMemcpy(p, 8, host.data(), 8, static_cast<aclrtMemcpyKind>(99)), ACL_ERROR_INVALID_PARAM);
    CHECK_EQ(aclrtMemcpy(p, 8, host.data(), 0, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
    CHECK_EQ(aclrtMemset(p, 8, 0, 16), ACL_ERROR_RT_PARAM_INVALID);

    leave({}, {p});
}

// ---- rule 3: process, context, objects ----

TEST_CASE(init_with_another_configuration_answers_100000) {
    REQUIRE(aclInit(nullptr) == ACL_SUCCESS);
    REQUIRE(aclFinalize() == ACL_SUCCESS);

    CHECK_EQ(aclInit("/nowhere/acl.json"), ACL_ERROR_INVALID_FILE);
    CHECK_EQ(aclInit("/dev/null"), ACL_ERROR_INVALID_PARAM);
    CHECK_EQ(aclInit(nullptr), ACL_SUCCESS);

    CHECK_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST_CASE(device_without_init_answers_100001) {
    CHECK_EQ(aclrtSetDevice(0), ACL_ERROR_UNINITIALIZE);
}

TEST_CASE(second_device_answers_107001) {
    begin();
    CHECK_EQ(aclrtSetDevice(1), ACL_ERROR_RT_INVALID_DEVICEID);
    end();
}

TEST_CASE(context_of_a_reset_device_is_dead) {
    begin();
    aclrtContext old = nullptr;
    REQUIRE(aclrtGetCurrentContext(&old) == ACL_SUCCESS);
    REQUIRE(aclrtResetDevice(0) == ACL_SUCCESS);
    void * p = nullptr;

    CHECK_EQ(aclrtSetCurrentContext(old), ACL_ERROR_RT_CONTEXT_NULL);
    CHECK_EQ(aclrtMalloc(&p, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_CONTEXT_NULL);

    CHECK_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST_CASE(primary_context_cannot_be_destroyed) {
    begin();
    aclrtContext primary = nullptr;
    REQUIRE(aclrtGetCurrentContext(&primary) == ACL_SUCCESS);

    CHECK_EQ(aclrtDestroyContext(primary), ACL_ERROR_RT_CONTEXT_NULL);

    end();
}

TEST_CASE(stream_of_another_context_answers_107003) {
    begin();
    aclrtStream s      = stream();
    aclrtContext first = nullptr, second = nullptr;
    REQUIRE(aclrtGetCurrentContext(&first) == ACL_SUCCESS);
    REQUIRE(aclrtCreateContext(&second, 0) == ACL_SUCCESS);
    void * p = device_memory();

    CHECK_EQ(aclrtMemsetAsync(p, kBytes, 0, kBytes, s), ACL_ERROR_RT_STREAM_CONTEXT);
    CHECK_EQ(aclrtDestroyStream(s), ACL_ERROR_RT_STREAM_CONTEXT);

    CHECK_EQ(aclrtDestroyContext(second), ACL_SUCCESS);
    CHECK_EQ(aclrtSetCurrentContext(first), ACL_SUCCESS);
    leave({s}, {p});
}

TEST_CASE(last_stream_answers_207008) {
    begin();
    std::vector<aclrtStream> all;
    aclrtStream s = nullptr;
    aclError rc   = ACL_SUCCESS;
    while ((rc = aclrtCreateStream(&s)) == ACL_SUCCESS) {
        all.push_back(s);
    }

    CHECK_EQ(rc, ACL_ERROR_RT_NO_STREAM_RESOURCE);
    CHECK_EQ(all.size(), 480U); // 310B4
    for (aclrtStream one : all) {
        CHECK_EQ(aclrtDestroyStream(one), ACL_SUCCESS);
    }
    end();
}

TEST_CASE(leaked_stream_event_and_context_are_named) {
    const char * leaks[] = {"\n  stream ", "\n  event ", "\n  context "};
    for (int kind = 0; kind < 3; ++kind) {
        EXPECT_DEATH(leaks[kind], {
            begin();
            void * made = nullptr;
            kind == 0 ? aclrtCreateStream(&made)
                      : (kind == 1 ? aclrtCreateEvent(&made) : aclrtCreateContext(&made, 0));
            aclrtResetDevice(0);
        });
    }
}

TEST_CASE(error_text_belongs_to_the_thread_that_made_it) {
    begin();
    CHECK_EQ(aclrtFree(nullptr), ACL_ERROR_INVALID_PARAM);
    const char * theirs = "unset";
    std::thread([&] { theirs = aclGetRecentErrMsg(); }).join();

    CHECK(theirs == nullptr);
    const char * ours = aclGetRecentErrMsg();
    REQUIRE(ours != nullptr);
    CHECK(std::strstr(ours, "aclrtFree") != nullptr && std::strstr(ours, "100000") != nullptr);

    end();
}

TEST_CASE(call_in_a_forked_child_answers_507000) {
    begin();
    void * p       = device_memory();
    const pid_t id = fork();
    if (id == 0) {
        void * q = nullptr;
        // exit, not _exit: the child must not be blamed for what its parent still has.
        std::exit(aclrtMalloc(&q, kBytes, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_INTERNAL_ERROR &&
                          aclrtFree(p) == ACL_ERROR_RT_INTERNAL_ERROR
                      ? 7
                      : 8);
    }
    int status = 0;
    REQUIRE(waitpid(id, &status, 0) == id);

    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 7);
    leave({}, {p}); // the parent's device is untouched
}

TEST_CASE(child_forked_before_init_is_a_process_like_any_other) {
    uint32_t n = 0;
    REQUIRE(aclrtGetDeviceCount(&n) == ACL_SUCCESS);
    const check::Ending ending = check::run_child([] {
        begin();
        leave({}, {device_memory()});
    });

    CHECK_EQ(ending.exit_status, 0);
    std::cerr << ending.output;
}

TEST_CASE(second_process_finds_an_exclusive_device_busy) {
    char path[]  = "/tmp/acl-sim-test-XXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    const std::string config = R"({"exclusive": ")" + std::string(path) + "\"}";
    setenv("ACL_SIM_CONFIG", config.c_str(), 1);
    int up[2], down[2];
    REQUIRE(pipe(up) == 0 && pipe(down) == 0);
    const pid_t holder = fork();
    if (holder == 0) {
        begin(config.c_str());
        char byte = 'h';
        REQUIRE(write(up[1], &byte, 1) == 1 && read(down[0], &byte, 1) == 1);
        end();
        REQUIRE(write(up[1], &byte, 1) == 1 && read(down[0], &byte, 1) == 1);
        std::exit(check::failures());
    }
    char byte = 0;
    REQUIRE(read(up[0], &byte, 1) == 1);
    REQUIRE(aclInit(nullptr) == ACL_SUCCESS);
    uint32_t n = 9;

    CHECK_EQ(aclrtGetDeviceCount(&n), ACL_ERROR_RT_INVALID_DEVICEID);
    CHECK_EQ(n, 0U);
    CHECK_EQ(aclrtSetDevice(0), ACL_ERROR_RT_INVALID_DEVICEID);
    const char * said = aclGetRecentErrMsg();
    REQUIRE(said != nullptr);
    CHECK(std::strstr(said, "valid devId range is [0, 0)") != nullptr);

    REQUIRE(write(down[1], &byte, 1) == 1 && read(up[0], &byte, 1) == 1); // the other reset its device
    CHECK_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    REQUIRE(write(down[1], &byte, 1) == 1);
    int status = 0;
    REQUIRE(waitpid(holder, &status, 0) == holder);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end();
    unlink(path);
}

TEST_CASE(every_declared_symbol_is_exported_and_no_other) {
#define EXPORTED(result, name, arguments, need) CHECK(dlsym(RTLD_DEFAULT, #name) != nullptr);
    ACL_RT_FUNCTIONS(EXPORTED)
    ACL_BASE_FUNCTIONS(EXPORTED)
#undef EXPORTED
    for (const char * name : {"aclmdlRICaptureBegin", "aclrtMemcpyBatch", "aclrtHostRegister"}) {
        CHECK(dlsym(RTLD_DEFAULT, name) == nullptr);
    }
}

// ---- memory ----

TEST_CASE(small_blocks_are_aligned_to_64_bytes_and_no_more) {
    begin();
    void *a = device_memory(100), *b = device_memory(100);

    for (void * p : {a, b}) {
        CHECK_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0U);
        CHECK(reinterpret_cast<uintptr_t>(p) % 128 != 0);
    }

    leave({}, {a, b});
}

TEST_CASE(real_sizes_are_those_of_a_310b) {
    begin();
    const size_t before = free_memory();
    void * small        = device_memory(100);
    CHECK_EQ(before - free_memory(), 128U + 32U); // align32(size) + 32
    const size_t between = free_memory();
    void * large         = device_memory((size_t{3} << 20) + 1);
    CHECK_EQ(between - free_memory(), size_t{4} << 20); // pages of 2 MiB

    leave({}, {small, large});
}

TEST_CASE(malloc_refuses_size_0_and_what_a_board_lacks) {
    begin();
    void * p = nullptr;

    CHECK_EQ(aclrtMalloc(&p, 0, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
    CHECK_EQ(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST_P2P), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);

    end();
}

// ---- rule 5: faults show at the next synchronisation and poison the context ----

TEST_CASE(device_fault_shows_at_the_next_sync_and_poisons_the_context) {
    begin(R"({"faults": [{"fault": "aicore_exception", "after_launches": 1}]})");
    aclrtStream s = stream(), other = stream();
    void *x = device_memory(), *y = device_memory(), *z = device_memory();
    launch(x, y, s);
    launch(x, y, s); // breaks, and says nothing
    launch(x, y, s); // nor does this one: launch() demands 0

    CHECK_EQ(aclrtSynchronizeStream(s), ACL_ERROR_RT_AICORE_EXCEPTION);
    const char * said = aclGetRecentErrMsg();
    CHECK(said != nullptr && std::strstr(said, "AI core exception") != nullptr);
    aclrtStream more = nullptr;
    CHECK_EQ(aclrtMemsetAsync(z, kBytes, 0, kBytes, other), ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK_EQ(aclrtSynchronizeStream(other), ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK_EQ(aclrtSynchronizeDevice(), ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK_EQ(copy_in(z), ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK_EQ(aclrtCreateStream(&more), ACL_ERROR_RT_AICORE_EXCEPTION);

    leave({s, other}, {x, y, z}); // and yet everything can be given back
}

TEST_CASE(reset_brings_a_poisoned_device_back) {
    begin(R"({"faults": [{"fault": "aicore_exception", "after_launches": 0}]})");
    aclrtStream s = stream();
    void *x = device_memory(), *y = device_memory();
    launch(x, y, s);
    REQUIRE(aclrtSynchronizeStream(s) == ACL_ERROR_RT_AICORE_EXCEPTION);
    aclrtDestroyStream(s);
    aclrtFree(x);
    aclrtFree(y);
    REQUIRE(aclrtResetDevice(0) == ACL_SUCCESS);
    REQUIRE(aclrtSetDevice(0) == ACL_SUCCESS);
    s = stream();
    x = device_memory();
    y = device_memory();
    launch(x, y, s);

    CHECK_EQ(aclrtSynchronizeStream(s), ACL_SUCCESS);

    leave({s}, {x, y});
}

TEST_CASE(lost_device_is_lost_for_every_stream) {
    begin(R"({"faults": [{"fault": "device_lost", "after_launches": 0}]})");
    aclrtStream s = stream(), other = stream();
    void *x = device_memory(), *y = device_memory();
    launch(x, y, s);

    CHECK_EQ(aclrtSynchronizeStream(other), ACL_ERROR_RT_LOST_HEARTBEAT);
    CHECK_EQ(copy_in(x), ACL_ERROR_RT_LOST_HEARTBEAT);

    leave({s, other}, {x, y});
}

TEST_CASE(lost_device_comes_back_once_unless_the_fault_persists) {
    for (const bool persists : {false, true}) {
        const check::Ending ending = check::run_child([&] {
            begin(persists ? R"({"faults": [{"fault": "device_lost", "persistent": true}]})"
                           : R"({"faults": [{"fault": "device_lost"}]})");
            for (int round = 0; round < 2; ++round) {
                aclrtStream s = stream();
                void *x = device_memory(), *y = device_memory();
                launch(x, y, s);
                const bool lost = round == 0 || persists;
                CHECK_EQ(aclrtSynchronizeStream(s), lost ? ACL_ERROR_RT_LOST_HEARTBEAT : ACL_SUCCESS);
                aclrtDestroyStream(s);
                aclrtFree(x);
                aclrtFree(y);
                REQUIRE(aclrtResetDevice(0) == ACL_SUCCESS);
                REQUIRE(aclrtSetDevice(0) == ACL_SUCCESS);
            }
            end();
        });
        CHECK_EQ(ending.exit_status, 0);
        std::cerr << ending.output;
    }
}

TEST_CASE(stream_timeout_holds_one_stream_a_hang_holds_all) {
    for (const bool all : {false, true}) {
        const check::Ending ending = check::run_child([&] {
            begin(all ? R"({"faults": [{"fault": "hang"}]})"
                      : R"({"faults": [{"fault": "stream_timeout"}]})");
            aclrtStream s = stream(), other = stream();
            void *x = device_memory(), *y = device_memory(), *z = device_memory();
            launch(x, y, s);
            REQUIRE(aclrtMemsetAsync(z, kBytes, 0, kBytes, other) == ACL_SUCCESS);

            CHECK_EQ(aclrtSynchronizeStreamWithTimeout(s, 20), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
            CHECK_EQ(aclrtSynchronizeStreamWithTimeout(other, 2000),
                     all ? ACL_ERROR_RT_STREAM_SYNC_TIMEOUT : ACL_SUCCESS);
            CHECK_EQ(aclrtSynchronizeDeviceWithTimeout(20), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);

            leave({s, other}, {x, y, z});
        });
        CHECK_EQ(ending.exit_status, 0);
        std::cerr << ending.output;
    }
}

TEST_CASE(fault_that_persists_hits_every_call_from_the_nth) {
    begin(R"({"faults": [{"call": "aclrtMalloc", "nth": 2, "persistent": true, "code": 207001}]})");
    void *first = device_memory(), *p = nullptr;

    for (int i = 0; i < 3; ++i) {
        CHECK_EQ(aclrtMalloc(&p, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_MEMORY_ALLOCATION);
    }

    leave({}, {first});
}

// ---- rules 5 and 11 in queued work: what the host may not touch ----

TEST_CASE(destroying_a_stream_that_another_thread_waits_for_is_fatal) {
    EXPECT_DEATH("stream misuse: aclrtDestroyStream while another thread waits for stream", {
        begin();
        aclrtStream s        = stream();
        aclrtContext context = nullptr;
        aclrtGetCurrentContext(&context);
        Gate gate;
        aclrtLaunchHostFunc(s, Gate::pass, &gate);
        std::thread waiting([&] {
            aclrtSetCurrentContext(context);
            aclrtSynchronizeStream(s);
        });
        std::this_thread::sleep_for(100ms);
        aclrtDestroyStream(s);
    });
}

// ---- rule 12: time ----

TEST_CASE(full_stream_blocks_the_launching_thread) {
    constexpr int kDepth = 2048, kExtra = 10;
    begin();
    aclrtStream s        = stream();
    aclrtContext context = nullptr;
    REQUIRE(aclrtGetCurrentContext(&context) == ACL_SUCCESS);
    Gate gate;
    std::atomic<int> n_queued{0};
    std::thread launching([&] {
        aclrtSetCurrentContext(context);
        for (int i = 0; i < kDepth + kExtra; ++i) {
            aclrtLaunchHostFunc(s, Gate::pass, &gate);
            ++n_queued;
        }
    });
    for (int i = 0; i < 1000 && n_queued < kDepth; ++i) {
        std::this_thread::sleep_for(5ms);
    }
    std::this_thread::sleep_for(50ms); // time to queue one too many

    CHECK_EQ(n_queued.load(), kDepth);
    gate.is_open = true;
    launching.join();
    CHECK_EQ(aclrtSynchronizeStream(s), ACL_SUCCESS);
    CHECK_EQ(gate.n_passed.load(), kDepth + kExtra);

    leave({s}, {});
}

TEST_CASE(elapsed_time_is_the_predicted_time_of_the_work_between) {
    begin();
    aclrtStream s = stream();
    void *x = device_memory(), *y = device_memory();
    aclrtEvent from = nullptr, to = nullptr;
    REQUIRE(aclrtCreateEvent(&from) == ACL_SUCCESS && aclrtCreateEvent(&to) == ACL_SUCCESS);
    float ms = 0;
    CHECK_EQ(aclrtEventElapsedTime(&ms, from, to), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
    REQUIRE(aclrtRecordEvent(from, s) == ACL_SUCCESS);
    launch(x, y, s);
    launch(x, y, s);
    REQUIRE(aclrtRecordEvent(to, s) == ACL_SUCCESS);
    REQUIRE(aclrtSynchronizeStream(s) == ACL_SUCCESS);

    CHECK_EQ(aclrtEventElapsedTime(&ms, from, to), ACL_SUCCESS);
    CHECK(ms >= 0.028F && ms < 0.1F); // two launches of 14 us and 16 KiB of traffic
    CHECK_EQ(aclrtEventElapsedTime(&ms, to, from), ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL);

    aclrtDestroyEvent(from);
    aclrtDestroyEvent(to);
    leave({s}, {x, y});
}

TEST_CASE(synchronisation_traces_the_streams_predicted_time) {
    char path[]  = "/tmp/acl-sim-test-XXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    const std::string config = R"({"trace": ")" + std::string(path) + "\"}";
    begin(config.c_str());
    aclrtStream s = stream();
    void * x      = device_memory();
    REQUIRE(aclrtMemsetAsync(x, kBytes, 0, kBytes, s) == ACL_SUCCESS);
    REQUIRE(aclrtSynchronizeStream(s) == ACL_SUCCESS);
    leave({s}, {x});

    const auto number = [](const std::string & line, const std::string & key) {
        const size_t at = line.find("\"" + key + "\":");
        return at == std::string::npos ? -1.0 : std::stod(line.substr(at + key.size() + 3));
    };
    std::ifstream file(path);
    double of_work = -1, of_stream = -2;
    for (std::string line; std::getline(file, line);) {
        if (line.find("\"call\":\"aclrtMemsetAsync\"") != std::string::npos) {
            of_work = number(line, "predicted_us");
            CHECK_EQ(number(line, "bytes"), double(kBytes));
        } else if (line.find("\"call\":\"aclrtSynchronizeStream\"") != std::string::npos) {
            of_stream = number(line, "stream_predicted_us");
        }
    }
    CHECK(of_work >= 14.0);
    CHECK_NEAR(of_stream, of_work, 1e-3);
    unlink(path);
}

// ---- rule 13: events ----

TEST_CASE(event_may_complete_later_than_its_stream) {
    begin(R"({"event_late_us": 300000})");
    aclrtStream s = stream();
    aclrtEvent e  = nullptr;
    REQUIRE(aclrtCreateEvent(&e) == ACL_SUCCESS);
    REQUIRE(aclrtRecordEvent(e, s) == ACL_SUCCESS);
    REQUIRE(aclrtSynchronizeStream(s) == ACL_SUCCESS);
    aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_COMPLETE;
    aclrtEventWaitStatus waited       = ACL_EVENT_WAIT_STATUS_COMPLETE;

    CHECK_EQ(aclrtQueryEventStatus(e, &recorded), ACL_SUCCESS);
    CHECK_EQ(static_cast<int>(recorded), 0); // not ready
    CHECK_EQ(aclrtQueryEventWaitStatus(e, &waited), ACL_SUCCESS);
    CHECK_EQ(static_cast<int>(waited), 1); // the same state, the other way round
    CHECK_EQ(aclrtSynchronizeEventWithTimeout(e, 1), ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);

    CHECK_EQ(aclrtSynchronizeEvent(e), ACL_SUCCESS);
    CHECK_EQ(aclrtQueryEventStatus(e, &recorded), ACL_SUCCESS);
    CHECK_EQ(static_cast<int>(recorded), 1);

    aclrtDestroyEvent(e);
    leave({s}, {});
}

TEST_CASE(event_without_the_sync_flag_cannot_be_waited_for) {
    begin();
    aclrtStream s = stream();
    aclrtEvent e  = nullptr;
    REQUIRE(aclrtCreateEventWithFlag(&e, ACL_EVENT_TIME_LINE) == ACL_SUCCESS);
    REQUIRE(aclrtRecordEvent(e, s) == ACL_SUCCESS);

    CHECK_EQ(aclrtStreamWaitEvent(s, e), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_EQ(aclrtResetEvent(e, s), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);

    aclrtDestroyEvent(e);
    CHECK_EQ(aclrtRecordEvent(e, s), ACL_ERROR_RT_PARAM_INVALID); // destroyed
    leave({s}, {});
}

TEST_CASE(queued_wait_outlives_its_event) {
    begin();
    aclrtStream first = stream(), second = stream();
    aclrtEvent e = nullptr;
    Gate gate, behind;
    behind.is_open = true;
    REQUIRE(aclrtCreateEvent(&e) == ACL_SUCCESS);
    REQUIRE(aclrtLaunchHostFunc(first, Gate::pass, &gate) == ACL_SUCCESS);
    REQUIRE(aclrtRecordEvent(e, first) == ACL_SUCCESS);
    REQUIRE(aclrtStreamWaitEvent(second, e) == ACL_SUCCESS);
    REQUIRE(aclrtLaunchHostFunc(second, Gate::pass, &behind) == ACL_SUCCESS);
    REQUIRE(aclrtDestroyEvent(e) == ACL_SUCCESS);

    CHECK_EQ(aclrtSynchronizeStreamWithTimeout(second, 100), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    CHECK_EQ(behind.n_passed.load(), 0);
    gate.is_open = true;
    CHECK_EQ(aclrtSynchronizeStream(second), ACL_SUCCESS);
    CHECK_EQ(behind.n_passed.load(), 1);

    leave({first, second}, {});
}

TEST_CASE(wait_for_a_stream_that_stands_still_ends_with_that_stream) {
    begin(R"({"faults": [{"fault": "stream_timeout"}]})");
    aclrtStream first = stream(), second = stream();
    void *x = device_memory(), *y = device_memory();
    aclrtEvent e = nullptr;
    REQUIRE(aclrtCreateEvent(&e) == ACL_SUCCESS);
    launch(x, y, first);
    REQUIRE(aclrtRecordEvent(e, first) == ACL_SUCCESS);
    REQUIRE(aclrtStreamWaitEvent(second, e) == ACL_SUCCESS);
    CHECK_EQ(aclrtSynchronizeStreamWithTimeout(second, 50), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    REQUIRE(aclrtDestroyStream(first) == ACL_SUCCESS);

    CHECK_EQ(aclrtSynchronizeStream(second), ACL_ERROR_RT_AICORE_EXCEPTION);

    aclrtDestroyEvent(e);
    leave({second}, {x, y});
}

// ---- rule 14: the default board ----

TEST_CASE(default_board_has_15609_mb_of_which_2000_are_used) {
    begin("");
    size_t n_free = 0, n_total = 0;

    CHECK_EQ(aclrtGetMemInfo(ACL_DDR_MEM, &n_free, &n_total), ACL_SUCCESS);
    CHECK_EQ(n_total >> 20, 15609U);
    CHECK_EQ(n_free >> 20, 13609U);
    CHECK_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &n_free, &n_total), ACL_SUCCESS); // a board falls back to DDR
    CHECK_EQ(n_total >> 20, 15609U);

    end();
}

TEST_MAIN()
