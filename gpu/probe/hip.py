"""AMD: the memory bandwidth, through the HIP runtime in the image.

This has never run on an AMD GPU. It starts no kernel: a code object for each architecture needs ROCm's compiler.
The functions are those of https://rocm.docs.amd.com/projects/HIP/en/latest/.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from gpu.probe.result import COPIES, REPEATS, ProbeError, allocate_pair, check_bytes, load_library, summarise_copies

LIBRARY: Final = "libamdhip64.so"
NEVER_RAN: Final = True

OUT_OF_MEMORY = 2
NO_DEVICE = 100
PATTERN = 0xA5


class Driver:
    """The HIP runtime, with errors as exceptions."""

    def __init__(self) -> None:
        self.library = load_library(LIBRARY)
        self.library.hipGetErrorName.restype = ctypes.c_char_p
        self.call("hipInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the runtime.

        Raises
        ------
        ProbeError
            If it returns an error.
        """
        code = int(getattr(self.library, name)(*arguments))
        if code:
            kind = {OUT_OF_MEMORY: "out of memory", NO_DEVICE: "no device"}.get(code, "driver error")
            raise ProbeError(kind, f"{name}: {self.library.hipGetErrorName(code).decode()} ({code})")

    def devices(self) -> list[dict[str, Any]]:
        """Return the facts about each visible GPU.

        Raises
        ------
        ProbeError
            If no GPU is visible.
        """
        count, version = ctypes.c_int(), ctypes.c_int()
        self.call("hipGetDeviceCount", ctypes.byref(count))
        if not count.value:
            raise ProbeError("no device", "hipGetDeviceCount: the runtime shows no GPU")
        self.call("hipDriverGetVersion", ctypes.byref(version))
        return [{"index": index, "hip": str(version.value), **self._describe(index)} for index in range(count.value)]

    def test(self, index: int) -> dict[str, Any]:
        """Measure copies within the memory of one GPU, and check the copied bytes."""
        self.call("hipSetDevice", index)
        size, source, target = allocate_pair(self._allocate, self._free)
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        try:
            self.call("hipMemset", source, PATTERN, ctypes.c_size_t(size))
            self.call("hipMemset", target, 0, ctypes.c_size_t(size))
            for event in events:
                self.call("hipEventCreate", ctypes.byref(event))
            self._time_copies(events, target, source, size)
            seconds = [self._time_copies(events, target, source, size) for _ in range(REPEATS)]
            found = ctypes.create_string_buffer(size)
            self.call("hipMemcpyDtoH", found, target, ctypes.c_size_t(size))
            check_bytes(found.raw[:: size // 4096], PATTERN, "hipMemcpyDtoD")
        finally:
            for event in events:
                if event.value:
                    self.library.hipEventDestroy(event)
            for pointer in (source, target):
                self._free(pointer)
        return {"kernel": None, "bandwidth": summarise_copies(size, seconds)}

    def _describe(self, index: int) -> dict[str, Any]:
        name, bus, memory = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32), ctypes.c_size_t()
        self.call("hipDeviceGetName", name, len(name), index)
        self.call("hipDeviceGetPCIBusId", bus, len(bus), index)
        self.call("hipDeviceTotalMem", ctypes.byref(memory), index)
        return {"name": name.value.decode(), "bus": bus.value.decode(), "memory_bytes": memory.value}

    def _allocate(self, size: int) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def _free(self, pointer: ctypes.c_void_p) -> None:
        self.library.hipFree(pointer)

    def _time_copies(self, events: list[ctypes.c_void_p], target: Any, source: Any, size: int) -> float:
        self.call("hipEventRecord", events[0], None)
        for _ in range(COPIES):
            self.call("hipMemcpyDtoDAsync", target, source, ctypes.c_size_t(size), None)
        self.call("hipEventRecord", events[1], None)
        self.call("hipEventSynchronize", events[1])
        milliseconds = ctypes.c_float()
        self.call("hipEventElapsedTime", ctypes.byref(milliseconds), *events)
        return milliseconds.value / 1000
