/* A CUDA driver without a GPU: memory is the host's, and the kernel is C. FAKE_CUDA selects a fault. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1 << 20)

static int blocks;
static uint64_t used;
static float clock_ms;

static int fault(const char *name) {
    const char *chosen = getenv("FAKE_CUDA");
    return chosen != NULL && strcmp(chosen, name) == 0;
}

int cuInit(unsigned flags) {
    if (flags != 0) return 1;
    if (fault("no device")) return 100;
    return fault("mismatch") ? 803 : 0;
}
int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuDeviceGetCount(int *count) { *count = fault("empty") ? 0 : 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index + 40; return index < 2 ? 0 : 101; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Fake GPU %d", device - 40); return 0; }
int cuDeviceGetPCIBusId(char *bus, int size, int device) { snprintf(bus, size, "0000:0%d:00.0", device - 39); return 0; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, device, 16); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)80 << 30; return device < 40; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : -1;
    return device < 40;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)device; return device < 40; }
#ifndef OLD
int cuDevicePrimaryCtxRelease_v2(int device) {
    if (blocks != 0) fprintf(stderr, "%d blocks of memory are still allocated\n", blocks);
    return device < 40;
}
#endif
int cuCtxSetCurrent(void *context) { return context == NULL ? 201 : 0; }
int cuCtxSynchronize(void) { return fault("illegal address") ? 700 : 0; }
int cuMemAlloc_v2(uint64_t *pointer, size_t size) {
    uint64_t most = fault("no memory") ? 0 : fault("large memory") ? (uint64_t)1 << 40 : 20 * MIB;
    if (used + size > most) return 2;
    char *block = malloc(size + 64);
    *(size_t *)block = size;
    *pointer = (uint64_t)(uintptr_t)(block + 64);
    used += size;
    blocks++;
    return 0;
}
int cuMemFree_v2(uint64_t pointer) {
    char *block = (char *)(uintptr_t)pointer - 64;
    used -= *(size_t *)block;
    blocks--;
    free(block);
    return 0;
}
int cuMemcpyHtoD_v2(uint64_t target, const void *source, size_t size) {
    memcpy((void *)(uintptr_t)target, source, size);
    return 0;
}
int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t size) {
    memcpy(target, (void *)(uintptr_t)source, size);
    return 0;
}
int cuMemsetD8_v2(uint64_t target, unsigned char value, size_t size) {
    memset((void *)(uintptr_t)target, value, size);
    return 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void *stream) {
    if (stream != NULL) return 1;
    static unsigned calls;
    clock_ms += 1;
    /* One of 20 equal copies is enough. */
    if (calls++ % 20 == 0 && !fault("lost copy")) memcpy((void *)(uintptr_t)target, (void *)(uintptr_t)source, size);
    return 0;
}
int cuModuleLoadData(void **module, const char *text) {
    if (strstr(text, ".visible .entry vector_add(") == NULL || fault("bad module")) return 200;
    if (fault("new driver") && strstr(text, ".target sm_50") != NULL) return 222;
    *module = (void *)1;
    return 0;
}
int cuModuleUnload(void *module) { return module != (void *)1; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = (void *)2;
    return module != (void *)1 || strcmp(name, "vector_add") != 0;
}
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra) {
    if (function != (void *)2 || grid_y * grid_z * block_y * block_z != 1 || shared || stream || extra) return 1;
    const float *left = (const float *)(uintptr_t) * (uint64_t *)parameters[0];
    const float *right = (const float *)(uintptr_t) * (uint64_t *)parameters[1];
    float *sum = (float *)(uintptr_t) * (uint64_t *)parameters[2];
    uint32_t count = *(uint32_t *)parameters[3];
    for (uint64_t i = 0; i < (uint64_t)grid_x * block_x && i < count; i++) sum[i] = left[i] + right[i];
    if (fault("wrong result")) sum[4711] += 1;
    return 0;
}
int cuEventCreate(float **event, unsigned flags) { *event = malloc(sizeof(float)); return flags != 0; }
int cuEventRecord(float *event, void *stream) { *event = clock_ms; return stream != NULL; }
int cuEventSynchronize(float *event) { return event == NULL; }
int cuEventElapsedTime(float *ms, const float *start, const float *end) {
    *ms = fault("no clock") ? 0 : *end - *start;
    return 0;
}
int cuEventDestroy_v2(float *event) { free(event); return 0; }
int cuGetErrorName(int code, const char **name) {
    static const struct { int code; const char *name; } names[] = {
        {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) { *name = names[i].name; return 0; }
    return 1;
}
