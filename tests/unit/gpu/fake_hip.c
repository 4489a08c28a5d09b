/* A HIP runtime without a GPU. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float clock_ms;

int hipInit(unsigned flags) { return flags != 0; }
int hipGetDeviceCount(int *count) { *count = getenv("FAKE_HIP_EMPTY") == NULL; return 0; }
int hipDriverGetVersion(int *version) { *version = 60443484; return 0; }
int hipDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Fake AMD %d", device); return 0; }
int hipDeviceGetPCIBusId(char *bus, int size, int device) { snprintf(bus, size, "0000:c%d:00.0", device); return 0; }
int hipDeviceTotalMem(size_t *bytes, int device) { *bytes = (size_t)64 << 30; return device; }
int hipSetDevice(int device) { return device; }
int hipMalloc(void **pointer, size_t size) {
    if (size > (size_t)4 << 20) return 2;
    *pointer = malloc(size);
    return 0;
}
int hipFree(void *pointer) { free(pointer); return 0; }
int hipMemset(void *target, int value, size_t size) { memset(target, value, size); return 0; }
int hipMemcpyDtoH(void *target, void *source, size_t size) { memcpy(target, source, size); return 0; }
int hipMemcpyDtoDAsync(void *target, void *source, size_t size, void *stream) {
    clock_ms += 1;
    memcpy(target, source, size);
    return stream != NULL;
}
int hipEventCreate(float **event) { *event = malloc(sizeof(float)); return 0; }
int hipEventRecord(float *event, void *stream) { *event = clock_ms; return stream != NULL; }
int hipEventSynchronize(float *event) { return event == NULL; }
int hipEventElapsedTime(float *ms, const float *start, const float *end) { *ms = *end - *start; return 0; }
int hipEventDestroy(float *event) { free(event); return 0; }
const char *hipGetErrorName(int code) { return code == 2 ? "hipErrorOutOfMemory" : "hipErrorUnknown"; }
