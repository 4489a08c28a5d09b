"""NVIDIA: a kernel and the memory bandwidth, through the CUDA driver API.

The functions are those of https://docs.nvidia.com/cuda/cuda-driver-api/. The kernel is PTX text, which the driver
compiles; no toolkit is needed.
"""

from __future__ import annotations

import ctypes
from array import array
from pathlib import Path
from typing import Any, Final

from gpu.probe.result import COPIES, REPEATS, ProbeError, allocate_pair, check_bytes, load_library, summarise_copies

LIBRARY: Final = "libcuda.so.1"
NEVER_RAN: Final = False

OUT_OF_MEMORY = 2
NO_DEVICE = 100
INVALID_PTX = 218
UNSUPPORTED_PTX_VERSION = 222
MAJOR, MINOR, PROCESSORS = 75, 76, 16

ELEMENTS = 1 << 20
BLOCK = 256
PATTERN = 0xA5

PTX_TARGETS = (("6.0", "sm_50"), ("7.0", "sm_75"), ("8.0", "sm_90"))
"""PTX version and target, the most compatible first; a driver may drop old targets."""

KERNEL = Path(__file__).with_name("vector_add.ptx")


def render_kernel(version: str, target: str) -> str:
    """Return the kernel for a PTX version and a target."""
    (first_version, first_target), *_ = PTX_TARGETS
    text = KERNEL.read_text(encoding="utf-8")
    text = text.replace(f".version {first_version}", f".version {version}", 1)
    return text.replace(f".target {first_target}", f".target {target}", 1)


class Driver:
    """The CUDA driver, with errors as exceptions."""

    def __init__(self) -> None:
        self.library = load_library(LIBRARY)
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises
        ------
        ProbeError
            If the driver does not have the function, or it returns an error.
        """
        code = self._raw(name, *arguments)
        if code:
            kind = {OUT_OF_MEMORY: "out of memory", NO_DEVICE: "no device"}.get(code, "driver error")
            raise ProbeError(kind, f"{name}: {self._error(code)} ({code})")

    def devices(self) -> list[dict[str, Any]]:
        """Return the facts about each visible GPU.

        Raises
        ------
        ProbeError
            If no GPU is visible.
        """
        count, version = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if not count.value:
            raise ProbeError("no device", "cuDeviceGetCount: the driver shows no GPU")
        self.call("cuDriverGetVersion", ctypes.byref(version))
        cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        return [{"index": index, "cuda": cuda, **self._describe(index)} for index in range(count.value)]

    def test(self, index: int) -> dict[str, Any]:
        """Run the kernel and the copies on one GPU."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self.call("cuCtxSetCurrent", context)
            return {"kernel": self._add_vectors(), "bandwidth": self._copy()}
        finally:
            self._raw("cuDevicePrimaryCtxRelease_v2", device)

    def _raw(self, name: str, *arguments: Any) -> int:
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise ProbeError("driver error", f"{LIBRARY} has no {name}: the driver is too old") from None
        return int(function(*arguments))

    def _error(self, code: int) -> str:
        text = ctypes.c_char_p()
        known = self._raw("cuGetErrorName", code, ctypes.byref(text)) == 0
        return text.value.decode() if known and text.value else "unknown error"

    def _attribute(self, attribute: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    def _describe(self, index: int) -> dict[str, Any]:
        device, memory = ctypes.c_int(), ctypes.c_size_t()
        name, bus, uuid = (ctypes.create_string_buffer(size) for size in (256, 32, 16))
        self.call("cuDeviceGet", ctypes.byref(device), index)
        self.call("cuDeviceGetName", name, len(name), device)
        self.call("cuDeviceGetPCIBusId", bus, len(bus), device)
        self.call("cuDeviceGetUuid", uuid, device)
        self.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        return {
            "name": name.value.decode(),
            "bus": bus.value.decode(),
            "uuid": uuid.raw.hex(),
            "memory_bytes": memory.value,
            "capability": f"{self._attribute(MAJOR, device)}.{self._attribute(MINOR, device)}",
            "processors": self._attribute(PROCESSORS, device),
        }

    def _allocate(self, size: int) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def _free(self, pointer: ctypes.c_uint64) -> None:
        self._raw("cuMemFree_v2", pointer)

    def _load_module(self) -> tuple[ctypes.c_void_p, str]:
        """Let the driver compile the kernel, for the first target that it accepts."""
        refused = []
        for version, target in PTX_TARGETS:
            module = ctypes.c_void_p()
            text = render_kernel(version, target).encode()
            code = self._raw("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text))
            if not code:
                return module, target
            refused.append(f"{target}: {self._error(code)} ({code})")
            if code not in {INVALID_PTX, UNSUPPORTED_PTX_VERSION}:
                break
        raise ProbeError("driver error", f"cuModuleLoadData: {'; '.join(refused)}")

    def _add_vectors(self) -> dict[str, Any]:
        """Add two vectors with the kernel, and compare every element."""
        floats = ctypes.c_float * ELEMENTS
        left = floats.from_buffer(array("f", range(ELEMENTS)))
        right = floats.from_buffer(array("f", range(ELEMENTS, 0, -1)))
        result = floats()
        size = ctypes.c_size_t(ctypes.sizeof(floats))
        module, target = self._load_module()
        buffers: list[ctypes.c_uint64] = []
        try:
            function = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, b"vector_add")
            buffers += [self._allocate(size.value) for _ in range(3)]
            self.call("cuMemcpyHtoD_v2", buffers[0], left, size)
            self.call("cuMemcpyHtoD_v2", buffers[1], right, size)
            self._launch(function, [*buffers, ctypes.c_uint32(ELEMENTS)])
            self.call("cuMemcpyDtoH_v2", result, buffers[2], size)
        finally:
            for buffer in buffers:
                self._free(buffer)
            self._raw("cuModuleUnload", module)
        total = float(ELEMENTS)
        if bytes(result) != array("f", [total]).tobytes() * ELEMENTS:
            wrong = next(index for index, value in enumerate(result) if value != total)
            text = f"vector_add: element {wrong} is {result[wrong]}, expected {total}"
            raise ProbeError("wrong result", text)
        return {"elements": ELEMENTS, "target": target, "correct": True}

    def _launch(self, function: ctypes.c_void_p, values: list[Any]) -> None:
        parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        blocks = -(-ELEMENTS // BLOCK)
        self.call("cuLaunchKernel", function, blocks, 1, 1, BLOCK, 1, 1, 0, None, parameters, None)
        self.call("cuCtxSynchronize")

    def _copy(self) -> dict[str, Any]:
        """Measure copies within the GPU's memory, and check the copied bytes."""
        size, source, target = allocate_pair(self._allocate, self._free)
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        try:
            self.call("cuMemsetD8_v2", source, ctypes.c_ubyte(PATTERN), ctypes.c_size_t(size))
            self.call("cuMemsetD8_v2", target, ctypes.c_ubyte(0), ctypes.c_size_t(size))
            for event in events:
                self.call("cuEventCreate", ctypes.byref(event), 0)
            self._time_copies(events, target, source, size)  # the first one also waits for the GPU's clocks to rise
            seconds = [self._time_copies(events, target, source, size) for _ in range(REPEATS)]
            found = ctypes.create_string_buffer(size)
            self.call("cuMemcpyDtoH_v2", found, target, ctypes.c_size_t(size))
            check_bytes(found.raw[:: size // 4096], PATTERN, "cuMemcpyDtoD")
        finally:
            for event in events:
                if event.value:
                    self._raw("cuEventDestroy_v2", event)
            for pointer in (source, target):
                self._free(pointer)
        return summarise_copies(size, seconds)

    def _time_copies(self, events: list[ctypes.c_void_p], target: Any, source: Any, size: int) -> float:
        self.call("cuEventRecord", events[0], None)
        for _ in range(COPIES):
            self.call("cuMemcpyDtoDAsync_v2", target, source, ctypes.c_size_t(size), None)
        self.call("cuEventRecord", events[1], None)
        self.call("cuEventSynchronize", events[1])
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), *events)
        return milliseconds.value / 1000
