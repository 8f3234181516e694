// What a person may set: how weights are laid out, and the switches of a debugging session.
//
// Read from the environment (GGML_CANN310B_LAYOUT, _GRAPH_DUMP, _SYNC_EACH_OP, _TIMEOUT_MS) when first asked
// for, and changed later by name through ggml_backend_reg_get_proc_address("ggml_backend_cann_configure").
#pragma once

#include <string>

namespace cann310b {

struct Settings {
    std::string layout = "auto"; // auto | dual | nd
    std::string graph_dump;      // file that every new graph is written to; empty: none
    bool sync_each_op = false;   // wait after each operator, so that a fault names the one that caused it
    int timeout_ms    = 120'000; // longest wait for one graph
};

Settings settings();
// Empty when the setting is in force, else what is wrong with it.
std::string configure(const std::string & key, const std::string & value);

} // namespace cann310b
