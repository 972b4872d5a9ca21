"""A worker's process with a workflow whose first task never ends, and with little patience.

python -m processes.wont_end --settings FILE
"""

from __future__ import annotations

import sys
import time

from temporalio import workflow

import worker

GIVEN_UP_AFTER, LOST_AFTER = 0.5, 3.0


@workflow.defn
class WontEnd:
    @workflow.run
    async def run(self) -> None:
        time.sleep(3600)  # noqa: ASYNC251 - nothing interrupts it


if __name__ == "__main__":
    from processes.wont_end import (
        WontEnd as Imported,  # imported by its module's name, which the sandbox passes through
    )

    vars(worker).update(
        WORKFLOWS=[*worker.WORKFLOWS, Imported],
        OURS=(*worker.OURS, "processes"),
        GIVEN_UP_AFTER=GIVEN_UP_AFTER,
        LOST_AFTER=LOST_AFTER,
    )
    sys.exit(worker.main())
