// Device buffers for ggml, and how a tensor's data lies in them.
#pragma once

#include "device.h"

#include "ggml-backend-impl.h"
#include "ggml.h"

namespace cann310b {

// The chip multiplies FP16 only, so quantised weights are stored as FP16 from the moment they are uploaded:
// the tensor keeps its ggml type and strides, its bytes are those of a dense FP16 tensor of the same shape.
bool is_stored_as_f16(const ggml_tensor * tensor);

ggml_backend_buffer_type_t buffer_type();
void set_buffer_device(ggml_backend_dev_t dev);
bool is_our_buffer(const ggml_backend_buffer * buffer);

} // namespace cann310b
