// Streams: one thread each, tasks in order, a random delay before each. See sim-core.h for what "pending"
// means.
#include "sim-state.h"

#include <algorithm>
#include <chrono>

namespace sim {
namespace {

using namespace std::chrono_literals;

constexpr auto kHungWait =
    30ms; // how long a synchronisation with time-out waits for a stream known to be hung

const Fault * fault_due(const State & s) {
    for (const Fault & fault : config().faults) {
        if (!fault.kind.empty() && s.n_launches > fault.after_launches && s.spent.count(&fault) == 0) {
            return &fault;
        }
    }
    return nullptr;
}

// Counts a thread into a stream that it waits for, so that destroying it meanwhile shows.
class Waiter {
  public:
    explicit Waiter(Stream & stream) : stream_(stream) { ++stream_.n_waiters; }
    ~Waiter() { --stream_.n_waiters; }
    Waiter(const Waiter &)             = delete;
    Waiter & operator=(const Waiter &) = delete;

  private:
    Stream & stream_;
};

Context * context_of(State & s, const Stream & stream) {
    for (auto & [handle, context] : s.contexts) {
        if (context->number == stream.context) {
            return context.get();
        }
    }
    return nullptr;
}

// Runs tasks until the stream closes. Holds the lock except while a task works.
void work(Stream & stream) {
    State & s = state();
    std::unique_lock<std::mutex> lock(s.lock);
    for (;;) {
        stream.moved.wait(lock,
                          [&] { return (!stream.queue.empty() && !stream.is_hung) || stream.is_closing; });
        if (stream.queue.empty() || stream.is_hung) {
            return; // closing
        }
        const uint64_t serial = stream.queue.front().first;
        Task task             = std::move(stream.queue.front().second);
        if (stream.failure == ACL_SUCCESS) {
            const auto delay =
                config().delay_us_max > 0
                    ? std::chrono::microseconds(stream.random() % uint64_t(config().delay_us_max))
                    : 0us;
            lock.unlock();
            if (delay > 0us) {
                std::this_thread::sleep_for(delay);
            }
            set_current_call(task.name.c_str());
            const std::string wrong = task.run ? task.run() : std::string();
            lock.lock();
            if (!wrong.empty() && stream.failure == ACL_SUCCESS) {
                stream.failure      = ACL_ERROR_RT_AICORE_EXCEPTION;
                stream.failure_text = task.name + ": " + wrong;
            }
        }
        stream.queue.pop_front();
        stream.n_done = serial;
        stream.moved.notify_all();
    }
}

} // namespace

Stream * create_stream(State & s, Context & context, bool is_default) {
    auto made          = std::make_shared<Stream>();
    Stream * stream    = made.get();
    stream->number     = s.next_number++;
    stream->context    = context.number;
    stream->is_default = is_default;
    stream->is_hung    = s.is_hung;
    stream->random.seed(config().seed * 1000003 + stream->number);
    s.streams[stream] = std::move(made);
    stream->worker    = std::thread(work, std::ref(*stream));
    return stream;
}

void close_stream(std::unique_lock<std::mutex> & lock, State & s, Stream & stream, bool drop) {
    if (stream.n_waiters > 0) {
        fatal("stream misuse: " + std::string(current_call()) + " while another thread waits for stream " +
              std::to_string(stream.number));
    }
    if (drop || stream.is_hung) {
        // A task that runs is left to finish; the others are dropped.
        while (stream.queue.size() > 1) {
            stream.queue.pop_back();
        }
    } else {
        stream.moved.wait(lock, [&] { return stream.queue.empty(); });
    }
    stream.is_closing = true;
    stream.moved.notify_all();
    std::thread worker = std::move(stream.worker);
    lock.unlock();
    worker.join();
    lock.lock();
    for (auto & [handle, event] : s.events) {
        if (event->stream.get() == &stream) {
            event->stream = nullptr;
        }
    }
    s.streams.erase(&stream);
}

void observe(Stream & stream, uint64_t serial) {
    stream.n_waited = std::max(stream.n_waited, serial);
    while (!stream.pending.empty() && stream.pending.front().serial <= serial) {
        stream.pending.pop_front();
    }
}

aclError wait_stream(std::unique_lock<std::mutex> & lock, Stream & stream, int64_t timeout_ms) {
    const uint64_t serial = stream.n_enqueued;
    const auto is_done    = [&] { return stream.n_done >= serial; };
    const Waiter waiter(stream);
    if (timeout_ms < 0) {
        stream.moved.wait(lock, is_done);
    } else {
        const auto patience =
            stream.is_hung
                ? std::min<std::chrono::milliseconds>(kHungWait, std::chrono::milliseconds(timeout_ms))
                : std::chrono::milliseconds(timeout_ms);
        if (!stream.moved.wait_for(lock, patience, is_done)) {
            set_error(current_call(), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "the stream did not finish in time");
            return ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
        }
    }
    observe(stream, serial);
    return report_failure(state(), stream, current_call());
}

aclError report_failure(State & s, Stream & stream, const char * call) {
    Context * context = context_of(s, stream);
    if (s.is_lost) {
        set_error(call, ACL_ERROR_RT_LOST_HEARTBEAT, "the device is lost");
        return ACL_ERROR_RT_LOST_HEARTBEAT;
    }
    if (stream.failure != ACL_SUCCESS && context != nullptr && context->failure == ACL_SUCCESS) {
        context->failure      = stream.failure;
        context->failure_text = stream.failure_text;
    }
    if (context == nullptr || context->failure == ACL_SUCCESS) {
        return ACL_SUCCESS;
    }
    set_error(call, context->failure, context->failure_text);
    return context->failure;
}

aclError enqueue(aclrtStream handle, Task && task, std::string_view call_site) {
    State & s = state();
    std::unique_lock<std::mutex> lock(s.lock);
    aclError rc     = ACL_SUCCESS;
    Stream * stream = find_stream(s, handle, &rc);
    if (stream == nullptr) {
        return rc;
    }
    // A stream whose fault nobody has waited for takes more work and drops it: launches say nothing of
    // faults.
    const bool is_launch = task.direction.empty();
    s.n_launches += is_launch ? 1 : 0;
    if (const Fault * fault = is_launch ? fault_due(s) : nullptr; fault != nullptr) {
        s.spent.insert(fault);
        if (fault->kind == "device_lost") {
            s.is_lost            = true;
            stream->failure      = ACL_ERROR_RT_LOST_HEARTBEAT;
            stream->failure_text = "injected: device lost";
        } else if (fault->kind == "aicore_exception") {
            stream->failure      = ACL_ERROR_RT_AICORE_EXCEPTION;
            stream->failure_text = "injected: AI core exception";
        } else {
            stream->is_hung = true;
            s.is_hung       = fault->kind == "hang";
            for (auto & [other, hung] : s.streams) {
                hung->is_hung = hung->is_hung || s.is_hung;
            }
        }
    }
    if (!stream->is_hung) {
        const Waiter waiter(*stream);
        stream->moved.wait(lock, [&] { return stream->queue.size() < kStreamDepth; });
    }
    const uint64_t serial = ++stream->n_enqueued;
    stream->predicted_us += task.predicted_us;
    stream->pending.push_back({serial,
                               task.name + " (task " + std::to_string(serial) + " of stream " +
                                   std::to_string(stream->number) + ")",
                               task.reads, task.writes});
    if (!config().trace.empty()) {
        const auto list = [&](const std::vector<Range> & ranges) {
            std::string text = "[";
            for (const Range & r : ranges) {
                text += (text.size() > 1 ? "," : "") + std::string("[") +
                        std::to_string(static_cast<const uint8_t *>(r.base) - s.client) + "," +
                        std::to_string(r.len) + "]";
            }
            return text + "]";
        };
        std::vector<std::pair<const char *, std::string>> more = {
            {"op", "\"" + task.name + "\""},       {"stream", std::to_string(stream->number)},
            {"shape", "\"" + task.shape + "\""},   {"dtype", "\"" + task.dtype + "\""},
            {"reads", list(task.reads)},           {"writes", list(task.writes)},
            {"bytes", std::to_string(task.bytes)}, {"predicted_us", std::to_string(task.predicted_us)},
        };
        if (!task.direction.empty()) {
            more.emplace_back("direction", "\"" + task.direction + "\"");
        }
        trace_call(call_site, ACL_SUCCESS, more);
    }
    stream->queue.emplace_back(serial, std::move(task));
    stream->moved.notify_all();
    return ACL_SUCCESS;
}

} // namespace sim
