// Process state, contexts, faults, trace, verdicts.
#include "sim-state.h"
#include "sim-tensor.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

namespace sim {
namespace {

thread_local Context * t_context = nullptr;
thread_local const char * t_call = "a call";
thread_local std::string t_error;
thread_local std::string t_given; // what recent_error() handed out, valid until its next call

// What is still alive, one per line.
std::string leaks(const State & s) {
    std::string text;
    for (const auto & [base, a] : s.allocations) {
        text += "\n  device memory: " + a.call + " #" + std::to_string(a.number) + ", " +
                std::to_string(a.asked) + " bytes";
    }
    if (!s.host_blocks.empty()) {
        text += "\n  host memory: " + std::to_string(s.host_blocks.size()) + " blocks of aclrtMallocHost";
    }
    for (const auto & [handle, stream] : s.streams) {
        if (!stream->is_default) {
            text += "\n  stream " + std::to_string(stream->number);
        }
    }
    for (const auto & [handle, event] : s.events) {
        text += "\n  event " + std::to_string(event->number);
    }
    for (const auto & [handle, context] : s.contexts) {
        if (context->is_alive && !context->is_primary) {
            text += "\n  context " + std::to_string(context->number);
        }
    }
    for (const std::string & line : living_objects()) {
        text += "\n  " + line;
    }
    return text;
}

// The way out of a process that used ACL: reset, then finalize. Runs after every atexit handler.
__attribute__((destructor)) void judge_exit() {
    State & s = state();
    if (s.pid != getpid()) {
        return; // a forked child that never came near ACL
    }
    if (s.n_set_device > 0) {
        fatal("exit without reset: aclrtSetDevice was called " + std::to_string(s.n_set_device) +
              " times more than aclrtResetDevice");
    }
    if (s.n_init > 0 && !s.was_finalized) {
        fatal("exit without aclFinalize");
    }
    const std::string left = leaks(s);
    if (!left.empty()) {
        fatal("leak at exit:" + left);
    }
}

} // namespace

State & state() {
    static State * const s = [] {
        auto * made = new State; // never destroyed: streams and exit handlers may outlive static destructors
        made->pid   = getpid();
        pthread_atfork(nullptr, nullptr, [] {
            State & child = state();
            if (child.n_init > 0 || child.was_finalized) {
                child.is_forked = true;
            } else {
                child.pid = getpid(); // ACL was not started yet: a process like any other
            }
        });
        return made;
    }();
    return *s;
}

void fatal(const std::string & what) {
    std::fprintf(stderr, "acl-sim: FATAL: %s\n", what.c_str());
    std::fflush(stderr);
    std::abort();
}

void set_error(std::string_view call, int code, std::string_view reason) {
    t_error = std::string(call) + ": " + std::string(reason) + " (" + std::to_string(code) + ")";
    // The vendor's log: nothing, unless both variables ask for it when the library is opened.
    static const bool is_logging = [] {
        const char *level   = std::getenv("ASCEND_GLOBAL_LOG_LEVEL"),
                   *print   = std::getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
        constexpr char kOff = '4';
        return print != nullptr && *print == '1' && level != nullptr && *level != kOff;
    }();
    if (is_logging) {
        std::printf("[ERROR] ACL(%d,acl-sim): %s\n", int(getpid()), t_error.c_str());
        std::fflush(stdout);
    }
}

const char * recent_error() {
    t_given.swap(t_error);
    t_error.clear();
    return t_given.empty() ? nullptr : t_given.c_str();
}

const char * current_call() {
    return t_call;
}

void set_current_call(const char * call) {
    t_call = call;
}

aclError enter_call(const char * call) {
    t_call    = call;
    State & s = state();
    if (s.is_forked) {
        set_error(call, ACL_ERROR_RT_INTERNAL_ERROR, "ACL is unusable in a forked child");
        return ACL_ERROR_RT_INTERNAL_ERROR;
    }
    const std::lock_guard<std::mutex> guard(s.lock);
    const int64_t n = ++s.n_calls[call];
    for (const Fault & fault : config().faults) {
        if (fault.call == call && (n == fault.nth || (fault.persistent && n > fault.nth))) {
            set_error(call, fault.code, "injected fault");
            trace_call(call, fault.code);
            return fault.code;
        }
    }
    return ACL_SUCCESS;
}

void trace_call(std::string_view call, aclError rc,
                const std::vector<std::pair<const char *, std::string>> & more) {
    static const int file   = config().trace.empty() ? -1
                                                     : open(config().trace.c_str(),
                                                            O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    static const auto start = std::chrono::steady_clock::now();
    if (file < 0) {
        return;
    }
    static std::mutex lock;
    static std::map<std::thread::id, int> threads;
    const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::lock_guard<std::mutex> guard(lock);
    const int thread = threads.emplace(std::this_thread::get_id(), int(threads.size())).first->second;
    std::string line = "{\"t\":" + std::to_string(t) + ",\"thread\":" + std::to_string(thread) +
                       ",\"call\":\"" + std::string(call) + "\"";
    for (const auto & [key, value] : more) {
        line += ",\"" + std::string(key) + "\":" + value;
    }
    line += ",\"rc\":" + std::to_string(rc) + "}\n";
    // One write a line: other writers may append to the same file.
    if (write(file, line.data(), line.size()) != ssize_t(line.size())) {
        fatal("cannot write the trace " + config().trace);
    }
}

Context * current_context(State & s) {
    if (t_context == nullptr || s.contexts.count(t_context) == 0 || !t_context->is_alive) {
        return nullptr;
    }
    return t_context;
}

void set_current_context(Context * context) {
    t_context = context;
}

Stream * find_stream(State & s, aclrtStream handle, aclError * rc) {
    Context * context = current_context(s);
    if (context == nullptr) {
        set_error(t_call, ACL_ERROR_RT_CONTEXT_NULL, "no context on this thread: call aclrtSetDevice first");
        *rc = ACL_ERROR_RT_CONTEXT_NULL;
        return nullptr;
    }
    if (s.is_lost) {
        set_error(t_call, ACL_ERROR_RT_LOST_HEARTBEAT, "the device is lost");
        *rc = ACL_ERROR_RT_LOST_HEARTBEAT;
        return nullptr;
    }
    if (context->failure != ACL_SUCCESS) {
        set_error(t_call, context->failure, "the context failed before: " + context->failure_text);
        *rc = context->failure;
        return nullptr;
    }
    if (handle == nullptr) {
        if (context->fallback == nullptr) {
            context->fallback = create_stream(s, *context, true);
        }
        return context->fallback;
    }
    const auto found = s.streams.find(handle);
    if (found == s.streams.end()) {
        set_error(t_call, ACL_ERROR_RT_PARAM_INVALID, "the stream was destroyed or never created");
        *rc = ACL_ERROR_RT_PARAM_INVALID;
        return nullptr;
    }
    if (found->second->context != context->number) {
        set_error(t_call, ACL_ERROR_RT_STREAM_CONTEXT, "the stream belongs to another context");
        *rc = ACL_ERROR_RT_STREAM_CONTEXT;
        return nullptr;
    }
    return found->second.get();
}

bool hold_device(State & s, bool take) {
    if (config().exclusive.empty() || s.lock_file >= 0) {
        return true;
    }
    const int file = open(config().exclusive.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
        fatal("ACL_SIM_CONFIG: exclusive: cannot open the lock file " + config().exclusive + ": " +
              std::strerror(errno));
    }
    const bool is_free = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (is_free && take) {
        s.lock_file = file;
    } else {
        close(file);
    }
    return is_free;
}

void let_device_go(State & s) {
    if (s.lock_file >= 0) {
        flock(s.lock_file, LOCK_UN); // a forked child may still have the descriptor
        close(s.lock_file);
        s.lock_file = -1;
    }
}

std::string leaks_now() {
    return leaks(state());
}

} // namespace sim
