// The lock, the error that stays, and what errors are called.
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>

// Recursive, since a function that the host has queued may call CUDA.
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static CUresult lasting = CUDA_SUCCESS;

void lock_driver(void) { pthread_mutex_lock(&lock); }

CUresult unlock_driver(CUresult result)
{
    const CUresult answer = lasting ? lasting : result;
    pthread_mutex_unlock(&lock);
    return answer;
}

// Does all work that is left and takes the error that stays away, so that it fails one test and not
// those after it; its name, or nothing. A GPU's driver has nothing like it.
EXPORTED const char *driver_settle(void)
{
    lock_driver();
    for (int i = 0; i < device_count(); ++i) finish_device(i);
    const CUresult found = lasting;
    lasting = CUDA_SUCCESS;
    unlock_driver(CUDA_SUCCESS);
    return found ? driver_error_name(found) : "";
}

void break_driver(CUresult error)
{
    if (!lasting) lasting = error;
}

static const struct {
    CUresult error;
    const char *driver, *runtime, *text;
} known[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "cudaSuccess", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue",
     "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation",
     "out of memory"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice",
     "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "cudaErrorInvalidKernelImage",
     "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized",
     "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "cudaErrorFileNotFound",
     "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound",
     "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
     "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "cudaErrorMisalignedAddress",
     "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorLaunchFailure",
     "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported",
     "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "cudaErrorUnknown", "unknown error"},
};

static int number_of(CUresult error)
{
    const int last = sizeof known / sizeof *known - 1;
    for (int i = 0; i < last; ++i) {
        if (known[i].error == error) return i;
    }
    return last;
}

const char *driver_error_name(CUresult error) { return known[number_of(error)].driver; }

const char *runtime_error_name(CUresult error) { return known[number_of(error)].runtime; }

const char *error_text(CUresult error) { return known[number_of(error)].text; }
