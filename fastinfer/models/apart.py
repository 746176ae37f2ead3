"""Work that is done in a thread which ends with it.

libgomp, which torch's threads on a CPU belong to, keeps a team of threads for each thread that ever
began one, for as long as that lives. With more of them than cores it stops spinning and sleeps
between any two operations: a decoder that runs in a thread of its own, beside a main thread that
has loaded the models, then takes a third longer for every token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def apart(work: Callable[[], T]) -> T:
    """What `work` returns or raises."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # the caller's to handle
            done.set_exception(error)

    # Not an executor, which at Ctrl-C would wait for a long download's end.
    thread = threading.Thread(target=run, name="apart", daemon=True)
    thread.start()
    thread.join()
    return done.result()
