"""Ends a process group as soon as the process that started it is gone, however that went; a script of `processes`.

It leads the group that all children of a stack are in, and its standard input is a pipe that only its parent can write
to. The kernel closes that pipe when the parent ends, even by SIGKILL. So no list of processes has to be kept, there is
no moment at which a new child is not yet known, and it works wherever there are process groups (PR_SET_PDEATHSIG works
only on Linux, not for grandchildren, and fires when the thread that forked ends). Standard library only: it starts in
20 ms.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the others of the group
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)  # this process too: nothing is left


if __name__ == "__main__":
    main()
