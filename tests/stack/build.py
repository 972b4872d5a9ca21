"""`python -m stack.build`: all that docker-compose.yml runs, so that no test waits for it.

The programs take ten minutes on two processors, once; the image some minutes, and seconds after a change of the code.
"""

from __future__ import annotations

import subprocess
import sys

from stack.engine import StackError, configuration
from stack.images import image
from stack.programs import COMPOSE, TEMPORAL, UI, program


def build() -> None:
    for each in (TEMPORAL, UI, COMPOSE):
        for one in each.commands:
            program(each, one)
    services = configuration(("demo", "upgrade"))["services"].values()
    for reference in sorted({service["image"] for service in services}):
        image(reference)


if __name__ == "__main__":
    try:
        build()
    except FileNotFoundError:
        sys.exit("error: there is no Go here, which builds Temporal's server: install it (https://go.dev/dl)")
    except (subprocess.CalledProcessError, StackError, LookupError) as e:
        sys.exit(f"error: {e}")
