"""Intel: the memory bandwidth, through Level Zero in the image.

This has never run on an Intel GPU. It starts no kernel: that needs SPIR-V. The functions and structures are those of
https://oneapi-src.github.io/level-zero-spec/, version 1.0. The wall clock measures the copies, because a synchronous
command list returns when a copy is complete.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, ClassVar, Final

from gpu.probe.result import COPIES, REPEATS, ProbeError, allocate_pair, check_bytes, load_library, summarise_copies

LIBRARY: Final = "libze_loader.so.1"
NEVER_RAN: Final = True

OUT_OF_MEMORY = frozenset({0x70000002, 0x70000003})
DEVICE_PROPERTIES, CONTEXT, QUEUE, DEVICE_MEMORY = 0x3, 0xD, 0xE, 0x15
GPU = 1
SYNCHRONOUS = 1
PATTERN = 0xA5
ALIGNMENT = 64


class _Properties(ctypes.Structure):
    """ze_device_properties_t."""

    _fields_: ClassVar = [
        ("stype", ctypes.c_uint32),
        ("pnext", ctypes.c_void_p),
        ("type", ctypes.c_uint32),
        ("vendor", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("subdevice", ctypes.c_uint32),
        ("clock", ctypes.c_uint32),
        ("max_allocation", ctypes.c_uint64),
        ("counts", ctypes.c_uint32 * 7),
        ("timer", ctypes.c_uint64),
        ("timer_bits", ctypes.c_uint32 * 2),
        ("uuid", ctypes.c_ubyte * 16),
        ("name", ctypes.c_char * 256),
    ]


class _Description(ctypes.Structure):
    """The beginning of ze_context_desc_t and ze_device_mem_alloc_desc_t, and all of ze_command_queue_desc_t."""

    _fields_: ClassVar = [
        ("stype", ctypes.c_uint32),
        ("pnext", ctypes.c_void_p),
        ("first", ctypes.c_uint32),
        ("index", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("priority", ctypes.c_uint32),
    ]


class Driver:
    """Level Zero, with errors as exceptions."""

    def __init__(self) -> None:
        self.library = load_library(LIBRARY)
        self.call("zeInit", 0)
        self.found = [(driver, device) for driver in self._list("zeDriverGet") for device in self._gpus(driver)]

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the loader.

        Raises
        ------
        ProbeError
            If it returns an error.
        """
        code = int(getattr(self.library, name)(*arguments)) & 0xFFFFFFFF
        if code:
            raise ProbeError("out of memory" if code in OUT_OF_MEMORY else "driver error", f"{name}: {code:#x}")

    def devices(self) -> list[dict[str, Any]]:
        """Return the facts about each visible GPU.

        Raises
        ------
        ProbeError
            If no GPU is visible.
        """
        if not self.found:
            raise ProbeError("no device", "zeDeviceGet: the loader shows no GPU")
        return [{"index": index, **self._describe(device)} for index, (_, device) in enumerate(self.found)]

    def test(self, index: int) -> dict[str, Any]:
        """Measure copies within the memory of one GPU, and check the copied bytes."""
        driver, device = self.found[index]
        context, commands = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("zeContextCreate", driver, ctypes.byref(_Description(CONTEXT)), ctypes.byref(context))
        queue = _Description(QUEUE, mode=SYNCHRONOUS)
        self.call("zeCommandListCreateImmediate", context, device, ctypes.byref(queue), ctypes.byref(commands))

        def allocate(size: int) -> ctypes.c_void_p:
            pointer, wanted = ctypes.c_void_p(), _Description(DEVICE_MEMORY)
            words = (ctypes.c_size_t(size), ctypes.c_size_t(ALIGNMENT), device, ctypes.byref(pointer))
            self.call("zeMemAllocDevice", context, ctypes.byref(wanted), *words)
            return pointer

        def release(pointer: ctypes.c_void_p) -> None:
            self.library.zeMemFree(context, pointer)

        size, source, target = allocate_pair(allocate, release)
        try:
            host = ctypes.create_string_buffer(bytes([PATTERN]) * size, size)
            self._copy(commands, source, host, size)
            self._time_copies(commands, target, source, size)
            seconds = [self._time_copies(commands, target, source, size) for _ in range(REPEATS)]
            found = ctypes.create_string_buffer(size)
            self._copy(commands, found, target, size)
            check_bytes(found.raw[:: size // 4096], PATTERN, "zeCommandListAppendMemoryCopy")
        finally:
            for pointer in (source, target):
                release(pointer)
            self.library.zeCommandListDestroy(commands)
            self.library.zeContextDestroy(context)
        return {"kernel": None, "bandwidth": summarise_copies(size, seconds)}

    def _list(self, name: str, *first: Any) -> list[ctypes.c_void_p]:
        count = ctypes.c_uint32()
        self.call(name, *first, ctypes.byref(count), None)
        handles = (ctypes.c_void_p * count.value)()
        self.call(name, *first, ctypes.byref(count), handles)
        return [ctypes.c_void_p(handle) for handle in handles]

    def _gpus(self, driver: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        devices = self._list("zeDeviceGet", driver)
        return [device for device in devices if self._properties(device).type == GPU]

    def _properties(self, device: ctypes.c_void_p) -> _Properties:
        properties = _Properties(DEVICE_PROPERTIES)
        self.call("zeDeviceGetProperties", device, ctypes.byref(properties))
        return properties

    def _describe(self, device: ctypes.c_void_p) -> dict[str, Any]:
        properties = self._properties(device)
        return {
            "name": properties.name.decode(),
            "uuid": bytes(properties.uuid).hex(),
            "memory_bytes": properties.max_allocation,
        }

    def _copy(self, commands: Any, target: Any, source: Any, size: int) -> None:
        self.call("zeCommandListAppendMemoryCopy", commands, target, source, ctypes.c_size_t(size), None, 0, None)

    def _time_copies(self, commands: Any, target: Any, source: Any, size: int) -> float:
        start = time.monotonic()
        for _ in range(COPIES):
            self._copy(commands, target, source, size)
        return time.monotonic() - start
