/* Level Zero without a GPU: one driver with a GPU and an NPU. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct properties {
    uint32_t stype; void *pnext; uint32_t type, vendor, device, flags, subdevice, clock; uint64_t max_allocation;
    uint32_t contexts, priority, threads, width, units, subslices, slices; uint64_t timer;
    uint32_t timestamp_bits, kernel_bits; uint8_t uuid[16]; char name[256];
};
struct queue { uint32_t stype; void *pnext; uint32_t ordinal, index, flags, mode, priority; };

int zeInit(uint32_t flags) { return flags != 0; }
static int list(uint32_t *count, void **handles, uint32_t most) {
    *count = most;
    for (uint32_t i = 0; handles != NULL && i < most; i++) handles[i] = (void *)(uintptr_t)(i + 1);
    return 0;
}
int zeDriverGet(uint32_t *count, void **drivers) { return list(count, drivers, 1); }
int zeDeviceGet(void *driver, uint32_t *count, void **devices) {
    return driver == NULL ? 1 : list(count, devices, getenv("FAKE_ZE_EMPTY") == NULL ? 2 : 0);
}
int zeDeviceGetProperties(void *device, struct properties *found) {
    if (found->stype != 0x3) return 0x78000004;
    found->type = device == (void *)1 ? 1 : 5;
    found->max_allocation = (uint64_t)48 << 30;
    memset(found->uuid, 7, sizeof found->uuid);
    strcpy(found->name, "Fake Intel");
    return 0;
}
int zeContextCreate(void *driver, const struct queue *wanted, void **context) {
    *context = (void *)9;
    return driver == NULL || wanted->stype != 0xd;
}
int zeContextDestroy(void *context) { return context != (void *)9; }
int zeCommandListCreateImmediate(void *context, void *device, const struct queue *wanted, void **commands) {
    *commands = (void *)8;
    return context != (void *)9 || device != (void *)1 || wanted->stype != 0xe || wanted->mode != 1;
}
int zeCommandListDestroy(void *commands) { return commands != (void *)8; }
int zeMemAllocDevice(void *context, const struct queue *wanted, size_t size, size_t align, void *device, void **pointer) {
    if (size > (size_t)4 << 20) return 0x70000003;
    *pointer = malloc(size);
    return context != (void *)9 || wanted->stype != 0x15 || align != 64 || device != (void *)1;
}
int zeMemFree(void *context, void *pointer) { free(pointer); return context != (void *)9; }
int zeCommandListAppendMemoryCopy(void *commands, void *target, const void *source, size_t size, void *signal,
                                  uint32_t waits, void **events) {
    memcpy(target, source, size);
    return commands != (void *)8 || signal != NULL || waits != 0 || events != NULL;
}
