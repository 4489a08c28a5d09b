"""A signal ends a wait of the main thread, whichever thread the system gives it to."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal, threading
from argosy.core.children import wake_on_signals

class Stop(Exception): pass

def stop(number, frame): raise Stop

signal.signal(signal.SIGTERM, stop)
wake_on_signals()
waiting = threading.Event()

def send():
    waiting.wait()
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=send, daemon=True).start()
lock = threading.Lock()
lock.acquire()
waiting.set()
try:
    lock.acquire()
except Stop:
    print("stopped")
"""


def test_a_signal_that_another_thread_gets_ends_the_wait_of_the_main_thread() -> None:
    done = subprocess.run((sys.executable, "-c", PROGRAM), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
