"""Writes the frames of a GigE Vision or USB3 Vision camera to the standard output, for :mod:`.genicam`.

A program of its own, run by the Python that has Aravis: that is a system package, which a virtual environment does not
see. It needs nothing but the standard library and PyGObject. Each frame is :data:`HEADER` and so many bytes; a frame of
0 bytes came damaged. It ends when its standard input does, so that it never outlives the station. What went wrong is
one line of JSON on the standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import threading
import time
from typing import Any, NoReturn

HEADER = struct.Struct("<4sIIIQI")
"""Mark, width, height, pixel format (PFNC), number of the frame, bytes that follow."""
MARK = b"ARVF"
MISSING, REFUSED, LOST = 3, 4, 5
"""Exit codes: Aravis is not installed; a setting is not possible; there is no such camera, or it went away."""

_BUFFERS = 8
_POP_MICROSECONDS = 300_000
_LAST_SECONDS = 1.5


def main() -> None:
    """Open the camera, set it, and write frames until something ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="")
    parser.add_argument("--set", action="append", default=[], help="FEATURE=VALUE")
    options = parser.parse_args()
    ended = threading.Event()
    threading.Thread(target=_end_with_input, args=(ended,), daemon=True).start()
    aravis = _aravis()
    camera = _opened(aravis, options.device)
    for setting in options.set:
        _set(camera, setting)
    _stream(aravis, camera, ended)


def _end_with_input(ended: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    ended.set()
    time.sleep(_LAST_SECONDS)  # for giving the camera back; a write that nobody reads may prevent it
    os._exit(0)


def _fail(code: int, sentence: str) -> NoReturn:
    print(json.dumps({"code": code, "sentence": sentence}), file=sys.stderr, flush=True)
    os._exit(code)  # threads of Aravis may hold up a usual exit


def _aravis() -> Any:
    try:
        import gi

        gi.require_version("Aravis", "0.8")
        from gi.repository import Aravis
    except (ImportError, ValueError) as error:
        _fail(MISSING, str(error))
    return Aravis


def _opened(aravis: Any, device: str) -> Any:
    aravis.update_device_list()  # without it, a camera that is named is found but may send nothing
    found = [aravis.get_device_id(number) for number in range(aravis.get_n_devices())]
    try:
        camera = aravis.Camera.new(device or None)
    except Exception as error:
        there = f"found are {', '.join(found)}" if found else "no camera was found"
        _fail(LOST, f"{getattr(error, 'message', error)}; {there}")
    if camera is None:
        _fail(LOST, "not found")
    return camera


def _set(camera: Any, setting: str) -> None:
    name, _, value = setting.partition("=")
    try:
        camera.get_device().set_features_from_string(f"{name}={value}")
    except Exception as error:
        _fail(REFUSED, f"{name} cannot be set to {value} ({getattr(error, 'message', error)})")


def _stream(aravis: Any, camera: Any, ended: threading.Event) -> None:
    lost = threading.Event()
    camera.get_device().connect("control-lost", lambda *_: lost.set())
    output = sys.stdout.buffer
    try:
        stream = camera.create_stream(None, None)
        payload = camera.get_payload()
        for _ in range(_BUFFERS):
            stream.push_buffer(aravis.Buffer.new_allocate(payload))
        camera.start_acquisition()
    except Exception as error:
        _fail(LOST, str(getattr(error, "message", error)))
    while not lost.is_set() and not ended.is_set():
        buffer = stream.timeout_pop_buffer(_POP_MICROSECONDS)
        if buffer is None:
            continue  # a camera with a trigger may give nothing for long; one that went away is noticed by its control
        whole = buffer.get_status() == aravis.BufferStatus.SUCCESS
        data = bytes(buffer.get_data()) if whole else b""
        size = (buffer.get_image_width(), buffer.get_image_height()) if whole else (0, 0)
        kind = buffer.get_image_pixel_format() if whole else 0
        number = buffer.get_frame_id()
        stream.push_buffer(buffer)
        output.write(HEADER.pack(MARK, *size, kind & 0xFFFFFFFF, number, len(data)) + data)
        output.flush()
    if lost.is_set():
        _fail(LOST, "it no longer answers")
    _give_back(camera)


def _give_back(camera: Any) -> NoReturn:
    """Stop the camera and let others have it, which otherwise takes seconds."""
    try:
        camera.stop_acquisition()
        camera.get_device().leave_control()
    except Exception:  # a USB camera has no control to leave; it is over in any case
        os._exit(0)
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
