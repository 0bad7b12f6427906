"""The other end of ``processes``: a process that runs one task after the other until its driver is gone.

Its environment is set before it starts, so that libraries find their thread settings when they are loaded. Two file
descriptors come with it: a socket on which tasks arrive and outcomes leave, and a pipe on which nothing is ever
written, which ends when the driver does, however that dies.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from multiprocessing.connection import Connection

from shoal.workers.outcome import Outcome, attempt, described

#: The first thing a worker says.
READY = b"ready"


def serve(socket: int, alive: int) -> None:
    """Run tasks until the socket ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for handle in (socket, alive):
        os.set_inheritable(handle, False)
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    connection = Connection(socket)
    with contextlib.suppress(EOFError, ConnectionError):
        connection.send_bytes(READY)
        while True:
            connection.send_bytes(_answer(connection.recv_bytes()))


def _answer(message: bytes) -> bytes:
    """The pickled outcome of a pickled (function, argument)."""
    try:
        work, task = pickle.loads(message)
    except (pickle.UnpicklingError, AttributeError, ImportError, TypeError, ValueError, EOFError) as error:
        return pickle.dumps(Outcome("bug", f"a task does not arrive in its worker: {described(error)}"))
    outcome = attempt(work, task)
    try:
        return pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError) as error:
        return pickle.dumps(Outcome("bug", f"what a task returns does not travel: {described(error)}"))


def _end_with(alive: int) -> None:
    """End this process at once when the driver has ended, even in the middle of a task."""
    os.read(alive, 1)
    os._exit(0)
