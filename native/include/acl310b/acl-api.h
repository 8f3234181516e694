// Our own declarations of the part of ACL that plugin and simulator use: types, constants, and the functions
// as lists of rows, from which the plugin's loader, the prototypes below and the header check are made.
//
//   X(result, name, (arguments), need)      need: required | optional
//
// `optional`: missing in some CANN release or of no use to a client that must run; the loader leaves null.
// The ABI is that of libascendcl and libnnopbase; native/tools/header_check.py compiles every value, layout
// and signature against the vendor's headers. Behaviour on a 310B is described where it is simulated
// (acl-sim/).
#pragma once

#ifndef __cplusplus
#include <stdbool.h>
#endif
#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef int32_t aclnnStatus;
typedef uint16_t aclFloat16; // bits of an IEEE half
typedef void * aclrtContext;
typedef void * aclrtStream;
typedef void * aclrtEvent;
typedef void * aclrtDrvMemHandle;
typedef void (*aclrtHostFunc)(void * args);

typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;
typedef struct aclOpExecutor aclOpExecutor;

// ---------------------------------------------------------------------------------------------------------------
// status codes. The vendor has some of these as macros; an anonymous enum keeps them out of the preprocessor.

enum {
    ACL_SUCCESS                           = 0,
    ACL_ERROR_INVALID_PARAM               = 100000,
    ACL_ERROR_UNINITIALIZE                = 100001,
    ACL_ERROR_REPEAT_INITIALIZE           = 100002,
    ACL_ERROR_INVALID_FILE                = 100003,
    ACL_ERROR_REPEAT_FINALIZE             = 100037,
    ACL_ERROR_COMPILING_STUB_MODE         = 100039,
    ACL_ERROR_INVALID_OPP_PATH            = 148049,
    ACL_ERROR_BAD_ALLOC                   = 200000,
    ACL_ERROR_API_NOT_SUPPORT             = 200001,
    ACL_ERROR_INVALID_DEVICE              = 200002,
    ACL_ERROR_MEMORY_ADDRESS_UNALIGNED    = 200003,
    ACL_ERROR_INTERNAL_ERROR              = 500000,
    ACL_ERROR_FAILURE                     = 500001,
    ACL_ERROR_RT_PARAM_INVALID            = 107000,
    ACL_ERROR_RT_INVALID_DEVICEID         = 107001,
    ACL_ERROR_RT_CONTEXT_NULL             = 107002,
    ACL_ERROR_RT_STREAM_CONTEXT           = 107003,
    ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID  = 107006,
    ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL = 107007,
    ACL_ERROR_RT_ADDR_UNALIGNED           = 107008,
    ACL_ERROR_RT_INVALID_MEMORY_TYPE      = 107016,
    ACL_ERROR_RT_INVALID_HANDLE           = 107017,
    ACL_ERROR_RT_INVALID_MALLOC_TYPE      = 107018,
    ACL_ERROR_RT_WAIT_TIMEOUT             = 107019,
    ACL_ERROR_RT_TASK_TIMEOUT             = 107020,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT      = 207000,
    ACL_ERROR_RT_MEMORY_ALLOCATION        = 207001,
    ACL_ERROR_RT_MEMORY_FREE              = 207002,
    ACL_ERROR_RT_AICORE_OVER_FLOW         = 207003,
    ACL_ERROR_RT_NO_DEVICE                = 207004,
    ACL_ERROR_RT_RESOURCE_ALLOC_FAIL      = 207005,
    ACL_ERROR_RT_NO_PERMISSION            = 207006,
    ACL_ERROR_RT_NO_EVENT_RESOURCE        = 207007,
    ACL_ERROR_RT_NO_STREAM_RESOURCE       = 207008,
    ACL_ERROR_RT_DEVICE_OOM               = 207018,
    ACL_ERROR_RT_INTERNAL_ERROR           = 507000,
    ACL_ERROR_RT_TS_ERROR                 = 507001,
    ACL_ERROR_RT_STREAM_NOT_COMPLETE      = 507004,
    ACL_ERROR_RT_EVENT_NOT_COMPLETE       = 507006,
    ACL_ERROR_RT_CONTEXT_RELEASE_ERROR    = 507007,
    ACL_ERROR_RT_SOC_VERSION              = 507008,
    ACL_ERROR_RT_LOST_HEARTBEAT           = 507010,
    ACL_ERROR_RT_MODEL_EXECUTE            = 507011,
    ACL_ERROR_RT_SYS_DMA                  = 507013,
    ACL_ERROR_RT_AICORE_TIMEOUT           = 507014,
    ACL_ERROR_RT_AICORE_EXCEPTION         = 507015,
    ACL_ERROR_RT_AICORE_TRAP_EXCEPTION    = 507016,
    ACL_ERROR_RT_AICPU_TIMEOUT            = 507017,
    ACL_ERROR_RT_AICPU_EXCEPTION          = 507018,
    ACL_ERROR_RT_DEV_SETUP_ERROR          = 507033,
    ACL_ERROR_RT_VECTOR_CORE_TIMEOUT      = 507034,
    ACL_ERROR_RT_VECTOR_CORE_EXCEPTION    = 507035,
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT      = 507046,
    ACL_ERROR_RT_EVENT_SYNC_TIMEOUT       = 507047,
    ACL_ERROR_RT_DEVICE_MEM_ERROR         = 507053,
    ACL_ERROR_RT_DRV_INTERNAL_ERROR       = 507899,
    ACL_ERROR_RT_AICPU_INTERNAL_ERROR     = 507900,
};

// ---------------------------------------------------------------------------------------------------------------
// enumerations

typedef enum {
    ACL_DT_UNDEFINED  = -1,
    ACL_FLOAT         = 0,
    ACL_FLOAT16       = 1,
    ACL_INT8          = 2,
    ACL_INT32         = 3,
    ACL_UINT8         = 4,
    ACL_INT16         = 6,
    ACL_UINT16        = 7,
    ACL_UINT32        = 8,
    ACL_INT64         = 9,
    ACL_UINT64        = 10,
    ACL_DOUBLE        = 11,
    ACL_BOOL          = 12,
    ACL_STRING        = 13,
    ACL_COMPLEX64     = 16,
    ACL_COMPLEX128    = 17,
    ACL_BF16          = 27,
    ACL_INT4          = 29,
    ACL_UINT1         = 30,
    ACL_COMPLEX32     = 33, // this and the following: not on a 310B
    ACL_HIFLOAT8      = 34,
    ACL_FLOAT8_E5M2   = 35,
    ACL_FLOAT8_E4M3FN = 36,
    ACL_FLOAT8_E8M0   = 37,
    ACL_FLOAT6_E3M2   = 38,
    ACL_FLOAT6_E2M3   = 39,
    ACL_FLOAT4_E2M1   = 40,
    ACL_FLOAT4_E1M2   = 41,
} aclDataType;

typedef enum {
    ACL_FORMAT_UNDEFINED        = -1,
    ACL_FORMAT_NCHW             = 0,
    ACL_FORMAT_NHWC             = 1,
    ACL_FORMAT_ND               = 2,
    ACL_FORMAT_NC1HWC0          = 3,
    ACL_FORMAT_FRACTAL_Z        = 4,
    ACL_FORMAT_NC1HWC0_C04      = 12,
    ACL_FORMAT_HWCN             = 16,
    ACL_FORMAT_NDHWC            = 27,
    ACL_FORMAT_FRACTAL_NZ       = 29,
    ACL_FORMAT_NCDHW            = 30,
    ACL_FORMAT_NDC1HWC0         = 32,
    ACL_FRACTAL_Z_3D            = 33,
    ACL_FORMAT_NC               = 35,
    ACL_FORMAT_NCL              = 47,
    ACL_FORMAT_FRACTAL_NZ_C0_16 = 50,
    ACL_FORMAT_FRACTAL_NZ_C0_32 = 51,
    ACL_FORMAT_FRACTAL_NZ_C0_2  = 52,
    ACL_FORMAT_FRACTAL_NZ_C0_4  = 53,
    ACL_FORMAT_FRACTAL_NZ_C0_8  = 54,
} aclFormat;

typedef enum {
    ACL_DEVICE = 0, // the process runs on the board itself
    ACL_HOST   = 1,
} aclrtRunMode;

typedef enum {
    ACL_MEM_MALLOC_HUGE_FIRST      = 0,
    ACL_MEM_MALLOC_HUGE_ONLY       = 1,
    ACL_MEM_MALLOC_NORMAL_ONLY     = 2,
    ACL_MEM_MALLOC_HUGE_FIRST_P2P  = 3,
    ACL_MEM_MALLOC_HUGE_ONLY_P2P   = 4,
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
    ACL_MEM_MALLOC_HUGE1G_ONLY     = 6,
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
} aclrtMemMallocPolicy;

typedef enum {
    ACL_MEMCPY_HOST_TO_HOST     = 0,
    ACL_MEMCPY_HOST_TO_DEVICE   = 1,
    ACL_MEMCPY_DEVICE_TO_HOST   = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
    ACL_MEMCPY_DEFAULT          = 4,
} aclrtMemcpyKind;

typedef enum {
    ACL_DDR_MEM        = 0,
    ACL_HBM_MEM        = 1,
    ACL_DDR_MEM_HUGE   = 2,
    ACL_DDR_MEM_NORMAL = 3,
    ACL_HBM_MEM_HUGE   = 4,
    ACL_HBM_MEM_NORMAL = 5,
} aclrtMemAttr;

typedef enum {
    ACL_STREAM_STATUS_COMPLETE  = 0,
    ACL_STREAM_STATUS_NOT_READY = 1,
    ACL_STREAM_STATUS_RESERVED  = 0xFFFF,
} aclrtStreamStatus;

typedef enum {
    ACL_EVENT_STATUS_COMPLETE  = 0,
    ACL_EVENT_STATUS_NOT_READY = 1,
    ACL_EVENT_STATUS_RESERVED  = 2,
} aclrtEventStatus;

// Inverted against the two others: here 1 is done.
typedef enum {
    ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
    ACL_EVENT_RECORDED_STATUS_COMPLETE  = 1,
} aclrtEventRecordedStatus;

typedef enum {
    ACL_EVENT_WAIT_STATUS_COMPLETE  = 0,
    ACL_EVENT_WAIT_STATUS_NOT_READY = 1,
    ACL_EVENT_WAIT_STATUS_RESERVED  = 0xFFFF,
} aclrtEventWaitStatus;

typedef enum {
    ACL_DEV_ATTR_AICPU_CORE_NUM        = 1,
    ACL_DEV_ATTR_AICORE_CORE_NUM       = 101,
    ACL_DEV_ATTR_CUBE_CORE_NUM         = 102,
    ACL_DEV_ATTR_VECTOR_CORE_NUM       = 201,
    ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE = 301,
    ACL_DEV_ATTR_L2_CACHE_SIZE         = 302,
    ACL_DEV_ATTR_NPU_ARCH              = 601,
} aclrtDevAttr;

typedef enum {
    ACL_MEM_HANDLE_TYPE_NONE  = 0,
    ACL_MEM_HANDLE_TYPE_POSIX = 2,
} aclrtMemHandleType;

typedef enum {
    ACL_MEM_ALLOCATION_TYPE_PINNED = 0,
} aclrtMemAllocationType;

typedef enum {
    ACL_MEM_LOCATION_TYPE_HOST   = 0,
    ACL_MEM_LOCATION_TYPE_DEVICE = 1,
} aclrtMemLocationType;

typedef enum {
    ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM     = 0,
    ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
    ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF       = 0xFFFF,
} aclrtMemGranularityOptions;

// Flags: macros at the vendor's, so anonymous here too.
enum {
    ACL_EVENT_SYNC                    = 0x01,
    ACL_EVENT_CAPTURE_STREAM_PROGRESS = 0x02,
    ACL_EVENT_TIME_LINE               = 0x08,
    ACL_STREAM_FAST_LAUNCH            = 0x01,
    ACL_STREAM_FAST_SYNC              = 0x02,
    ACL_STREAM_PERSISTENT             = 0x04,
    ACL_STREAM_HUGE                   = 0x08,
    ACL_STREAM_CPU_SCHEDULE           = 0x10,
    ACL_STREAM_DEVICE_USE_ONLY        = 0x20,
    ACL_CONTINUE_ON_FAILURE           = 0,
    ACL_STOP_ON_FAILURE               = 1,
};

// ---------------------------------------------------------------------------------------------------------------
// structures

typedef struct {
    uint32_t id;
    aclrtMemLocationType type;
} aclrtMemLocation;

typedef struct {
    aclrtMemHandleType handleType;
    aclrtMemAllocationType allocationType;
    aclrtMemAttr memAttr;
    aclrtMemLocation location;
    uint64_t reserve;
} aclrtPhysicalMemProp;

// ---------------------------------------------------------------------------------------------------------------
// libascendcl

#define ACL_RT_FUNCTIONS(X)                                                                                  \
    X(aclError, aclInit, (const char * configPath), required)                                                \
    X(aclError, aclFinalize, (void), required)                                                               \
    X(aclError, aclFinalizeReference, (uint64_t * refCount), optional)                                       \
    X(const char *, aclGetRecentErrMsg, (void), required)                                                    \
    X(aclError, aclrtGetVersion, (int32_t * major, int32_t * minor, int32_t * patch), optional)              \
    X(aclError, aclrtGetDeviceCount, (uint32_t * count), required)                                           \
    X(aclError, aclrtSetDevice, (int32_t deviceId), required)                                                \
    X(aclError, aclrtGetDevice, (int32_t * deviceId), required)                                              \
    X(aclError, aclrtResetDevice, (int32_t deviceId), required)                                              \
    X(aclError, aclrtResetDeviceForce, (int32_t deviceId), optional)                                         \
    X(aclError, aclrtSynchronizeDevice, (void), required)                                                    \
    X(aclError, aclrtSynchronizeDeviceWithTimeout, (int32_t timeout), optional)                              \
    X(const char *, aclrtGetSocName, (void), required)                                                       \
    X(aclError, aclrtGetRunMode, (aclrtRunMode * runMode), required)                                         \
    X(aclError, aclrtGetDeviceInfo, (uint32_t deviceId, aclrtDevAttr attr, int64_t * value), optional)       \
    X(aclError, aclrtCreateContext, (aclrtContext * context, int32_t deviceId), required)                    \
    X(aclError, aclrtDestroyContext, (aclrtContext context), required)                                       \
    X(aclError, aclrtSetCurrentContext, (aclrtContext context), required)                                    \
    X(aclError, aclrtGetCurrentContext, (aclrtContext * context), required)                                  \
    X(aclError, aclrtCreateStream, (aclrtStream * stream), required)                                         \
    X(aclError, aclrtCreateStreamWithConfig, (aclrtStream * stream, uint32_t priority, uint32_t flag),       \
      optional)                                                                                              \
    X(aclError, aclrtDestroyStream, (aclrtStream stream), required)                                          \
    X(aclError, aclrtDestroyStreamForce, (aclrtStream stream), optional)                                     \
    X(aclError, aclrtSynchronizeStream, (aclrtStream stream), required)                                      \
    X(aclError, aclrtSynchronizeStreamWithTimeout, (aclrtStream stream, int32_t timeout), required)          \
    X(aclError, aclrtStreamQuery, (aclrtStream stream, aclrtStreamStatus * status), optional)                \
    X(aclError, aclrtGetStreamAvailableNum, (uint32_t * streamCount), optional)                              \
    X(aclError, aclrtSetStreamFailureMode, (aclrtStream stream, uint64_t mode), optional)                    \
    X(aclError, aclrtCreateEvent, (aclrtEvent * event), required)                                            \
    X(aclError, aclrtCreateEventWithFlag, (aclrtEvent * event, uint32_t flag), required)                     \
    X(aclError, aclrtCreateEventExWithFlag, (aclrtEvent * event, uint32_t flag), optional)                   \
    X(aclError, aclrtDestroyEvent, (aclrtEvent event), required)                                             \
    X(aclError, aclrtRecordEvent, (aclrtEvent event, aclrtStream stream), required)                          \
    X(aclError, aclrtResetEvent, (aclrtEvent event, aclrtStream stream), required)                           \
    X(aclError, aclrtStreamWaitEvent, (aclrtStream stream, aclrtEvent event), required)                      \
    X(aclError, aclrtQueryEvent, (aclrtEvent event, aclrtEventStatus * status), optional)                    \
    X(aclError, aclrtQueryEventStatus, (aclrtEvent event, aclrtEventRecordedStatus * status), required)      \
    X(aclError, aclrtQueryEventWaitStatus, (aclrtEvent event, aclrtEventWaitStatus * status), optional)      \
    X(aclError, aclrtSynchronizeEvent, (aclrtEvent event), required)                                         \
    X(aclError, aclrtSynchronizeEventWithTimeout, (aclrtEvent event, int32_t timeout), optional)             \
    X(aclError, aclrtEventElapsedTime, (float * ms, aclrtEvent startEvent, aclrtEvent endEvent), optional)   \
    X(aclError, aclrtLaunchHostFunc, (aclrtStream stream, aclrtHostFunc fn, void * args), optional)          \
    X(aclError, aclrtMalloc, (void ** devPtr, size_t size, aclrtMemMallocPolicy policy), required)           \
    X(aclError, aclrtMallocAlign32, (void ** devPtr, size_t size, aclrtMemMallocPolicy policy), optional)    \
    X(aclError, aclrtFree, (void * devPtr), required)                                                        \
    X(aclError, aclrtFreeWithDevSync, (void * devPtr), optional)                                             \
    X(aclError, aclrtMallocHost, (void ** hostPtr, size_t size), required)                                   \
    X(aclError, aclrtFreeHost, (void * hostPtr), required)                                                   \
    X(aclError, aclrtMemcpy,                                                                                 \
      (void * dst, size_t destMax, const void * src, size_t count, aclrtMemcpyKind kind), required)          \
    X(aclError, aclrtMemcpyAsync,                                                                            \
      (void * dst, size_t destMax, const void * src, size_t count, aclrtMemcpyKind kind,                     \
       aclrtStream stream),                                                                                  \
      required)                                                                                              \
    X(aclError, aclrtMemcpy2d,                                                                               \
      (void * dst, size_t dpitch, const void * src, size_t spitch, size_t width, size_t height,              \
       aclrtMemcpyKind kind),                                                                                \
      optional)                                                                                              \
    X(aclError, aclrtMemcpy2dAsync,                                                                          \
      (void * dst, size_t dpitch, const void * src, size_t spitch, size_t width, size_t height,              \
       aclrtMemcpyKind kind, aclrtStream stream),                                                            \
      optional)                                                                                              \
    X(aclError, aclrtMemset, (void * devPtr, size_t maxCount, int32_t value, size_t count), required)        \
    X(aclError, aclrtMemsetAsync,                                                                            \
      (void * devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream), required)           \
    X(aclError, aclrtGetMemInfo, (aclrtMemAttr attr, size_t * free, size_t * total), required)               \
    X(aclError, aclrtReserveMemAddress,                                                                      \
      (void ** virPtr, size_t size, size_t alignment, void * expectPtr, uint64_t flags), optional)           \
    X(aclError, aclrtReleaseMemAddress, (void * virPtr), optional)                                           \
    X(aclError, aclrtMallocPhysical,                                                                         \
      (aclrtDrvMemHandle * handle, size_t size, const aclrtPhysicalMemProp * prop, uint64_t flags),          \
      optional)                                                                                              \
    X(aclError, aclrtFreePhysical, (aclrtDrvMemHandle handle), optional)                                     \
    X(aclError, aclrtMapMem,                                                                                 \
      (void * virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags), optional)       \
    X(aclError, aclrtUnmapMem, (void * virPtr), optional)                                                    \
    X(aclError, aclrtMemGetAllocationGranularity,                                                            \
      (aclrtPhysicalMemProp * prop, aclrtMemGranularityOptions option, size_t * granularity), optional)      \
    X(float, aclFloat16ToFloat, (aclFloat16 value), optional)                                                \
    X(aclFloat16, aclFloatToFloat16, (float value), optional)                                                \
    X(size_t, aclDataTypeSize, (aclDataType dataType), optional)

// ---------------------------------------------------------------------------------------------------------------
// libnnopbase

#define ACL_BASE_FUNCTIONS(X)                                                                                \
    X(aclnnStatus, aclnnInit, (const char * configPath), optional)                                           \
    X(aclnnStatus, aclnnFinalize, (void), optional)                                                          \
    X(aclTensor *, aclCreateTensor,                                                                          \
      (const int64_t * viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t * stride,         \
       int64_t offset, aclFormat format, const int64_t * storageDims, uint64_t storageDimsNum,               \
       void * tensorData),                                                                                   \
      required)                                                                                              \
    X(aclnnStatus, aclDestroyTensor, (const aclTensor * tensor), required)                                   \
    X(aclScalar *, aclCreateScalar, (void * value, aclDataType dataType), required)                          \
    X(aclnnStatus, aclDestroyScalar, (const aclScalar * scalar), required)                                   \
    X(aclIntArray *, aclCreateIntArray, (const int64_t * value, uint64_t size), required)                    \
    X(aclnnStatus, aclDestroyIntArray, (const aclIntArray * array), required)                                \
    X(aclFloatArray *, aclCreateFloatArray, (const float * value, uint64_t size), optional)                  \
    X(aclnnStatus, aclDestroyFloatArray, (const aclFloatArray * array), optional)                            \
    X(aclBoolArray *, aclCreateBoolArray, (const bool * value, uint64_t size), optional)                     \
    X(aclnnStatus, aclDestroyBoolArray, (const aclBoolArray * array), optional)                              \
    X(aclTensorList *, aclCreateTensorList, (const aclTensor * const * value, uint64_t size), required)      \
    X(aclnnStatus, aclDestroyTensorList, (const aclTensorList * array), required)                            \
    X(aclScalarList *, aclCreateScalarList, (const aclScalar * const * value, uint64_t size), optional)      \
    X(aclnnStatus, aclDestroyScalarList, (const aclScalarList * array), optional)                            \
    X(aclnnStatus, aclGetViewShape, (const aclTensor * tensor, int64_t ** viewDims, uint64_t * viewDimsNum), \
      optional)                                                                                              \
    X(aclnnStatus, aclGetFormat, (const aclTensor * tensor, aclFormat * format), optional)                   \
    X(aclnnStatus, aclGetDataType, (const aclTensor * tensor, aclDataType * dataType), optional)             \
    X(aclnnStatus, aclSetAclOpExecutorRepeatable, (aclOpExecutor * executor), optional)                      \
    X(aclnnStatus, aclDestroyAclOpExecutor, (aclOpExecutor * executor), optional)                            \
    X(aclnnStatus, aclSetInputTensorAddr,                                                                    \
      (aclOpExecutor * executor, const size_t index, aclTensor * tensor, void * addr), optional)             \
    X(aclnnStatus, aclSetOutputTensorAddr,                                                                   \
      (aclOpExecutor * executor, const size_t index, aclTensor * tensor, void * addr), optional)

#ifndef ACL310B_NO_PROTOTYPES
#ifdef __cplusplus
extern "C" {
#endif
#define ACL_PROTOTYPE(result, name, arguments, need) result name arguments;
ACL_RT_FUNCTIONS(ACL_PROTOTYPE)
ACL_BASE_FUNCTIONS(ACL_PROTOTYPE)
#undef ACL_PROTOTYPE
#ifdef __cplusplus
}
#endif
#endif
