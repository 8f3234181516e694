// The one NPU of the board: start and end, the calling thread's context, memory.
#pragma once

#include "acl-library.h"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace cann310b {

class Device {
  public:
    // Opens ACL and looks for an NPU. Empty when there is one, else why not; may then be tried again. aclInit
    // happens here, once.
    std::string start();
    // Makes the calling thread able to call ACL; sets the device on the first call of the process.
    void bind();
    // Gives the device back, so that another process may have it or a fault of it is cleared; the next bind()
    // takes it anew. Everything on it must have been freed: else nothing happens and the answer says what is
    // left.
    std::string reset();
    // Frees what is left, resets and finalizes, once; later calls from ggml become no-ops. Runs at exit, too.
    void shutdown();
    bool is_open() const;
    bool is_taken(); // some thread has set the device

    // Device memory with a mapped tail (a matmul may read a 16-row tile past its operand). Throws AclFailure.
    void * allocate(size_t n_bytes, const char * purpose);
    void release(void * address, size_t n_bytes);
    aclrtStream create_stream();
    void destroy_stream(aclrtStream stream);
    void copy(void * dst, const void * src, size_t n_bytes, aclrtMemcpyKind kind);
    void memory(size_t * free_bytes, size_t * total_bytes);

    std::string soc_name;
    // {"used": bytes, "peak": bytes, "allocations": n, "blocks": n, "free": bytes, "total": bytes,
    //  "layout": "dual" | "nd" | "undecided", "layout_why": "configured" | "fits" | "memory" | "",
    //  "layout_needed": bytes, "layout_free": bytes, "fused": ["aclnnRmsNorm", ...]}
    std::string memory_json();
    // What the second copy of the weights would take, and what was free when that was decided.
    void note_layout(const char * layout, const char * why, size_t needed_bytes, size_t free_bytes);
    // Logs what went wrong, and keeps the first of it for who asks whether a load failed because of the NPU.
    void note_failure(int code, const std::string & text);
    std::string take_failure(); // "<code> <text>", empty: nothing failed since it was last asked
    void note_fused(const std::vector<std::string> & names);

  private:
    std::mutex lock_;
    bool has_acl_         = false;
    bool is_init_         = false;
    bool is_closed_       = false;
    int pid_              = 0;
    aclrtContext context_ = nullptr;
    int epoch_            = 1; // of context_; a thread's binding to an earlier one is void
    std::set<void *> blocks_;
    std::set<aclrtStream> streams_;
    size_t used_ = 0, peak_ = 0, n_allocations_ = 0;
    const char *layout_ = "undecided", *layout_why_ = "";
    size_t layout_needed_ = 0, layout_free_ = 0;
    std::vector<std::string> fused_;
    std::string failure_;
};

Device & device();

} // namespace cann310b
