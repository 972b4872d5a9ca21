"""`hostler up`: runs a stack until Ctrl-C, and says where everything is."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from resources.clouds import simulations
from resources.settings import PLACES, SETTINGS_VARIABLE
from starter import outlet
from starter.local.stack import Options, Stack


def examples_of(cloud: str) -> Path:
    """The folder of manifests to begin with, by the cloud's name in the settings."""
    return Path(__file__).parent.parent.parent / "examples" / cloud


def say(line: str) -> None:
    """Prints to standard output at once. A closed terminal is no reason to leave processes behind."""
    with suppress(OSError):
        outlet.say(line)


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Within it, SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal was closed) cancel the current task."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    numbers = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]  # nohup
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def run_stack(options: Options) -> None:
    """Run until a signal comes. Raises HostlerError when something cannot be started."""
    with cancelled_by_signals():
        try:
            async with Stack(options, say) as stack:
                say("Hostler is up. Ctrl-C stops it; the next `hostler up` continues from there, --fresh starts over.")
                for line in ("", *words(stack)):
                    say(line)
                try:
                    await asyncio.Event().wait()
                finally:
                    say("stopping; another Ctrl-C kills everything at once")
        except asyncio.CancelledError:
            say(f"stopped; the state stays in {options.directory}")
        finally:
            await asyncio.sleep(0.1)  # a loop that ends right after Temporal's client may crash (sdk-python#300)


def words(stack: Stack) -> Iterator[str]:
    """Where everything is, and what to try."""
    options = stack.options
    hostler = command(stack.settings_file)
    yield f"  Temporal's web UI  {stack.ui or '(of your server)'}"
    if options.simulator:
        api = f"of {shown(options.api_server_kubeconfig)}" if options.api_server_kubeconfig else stack.kube
        yield f"  Kubernetes API     {api}  (kubeconfig: {shown(stack.kubeconfig)})"
        for name, url in stack.clouds.items():
            yield f"  {simulations()[name].service.upper():<17}  {url}"
    else:
        yield f"  Kubernetes API     of {shown(stack.kubeconfig)}"
        yield "  clouds             the real ones: machines that you apply cost money"
    yield f"  logs               {shown(stack.directory / 'logs')}"
    yield ""
    yield "Try, in another terminal:"
    for name in stack.clouds if options.simulator else ():
        yield f"  {hostler} apply -f {shown(examples_of(name))}"
    if not options.simulator:
        yield f"  {hostler} apply -f FILE"
    yield f"  {hostler} get machines -w"
    yield f"  {program('kubectl')} --kubeconfig {shown(stack.kubeconfig)} get nodes"
    if options.temporal_address is None and "TEMPORAL_ADDRESS" in os.environ:
        yield ""
        yield (
            f"TEMPORAL_ADDRESS={os.environ['TEMPORAL_ADDRESS']} is set in this shell, so `hostler` would use that "
            f"server instead of {stack.temporal}: unset it first."
        )


def command(settings_file: Path) -> str:
    """The command line that calls `hostler` here, with the settings of this stack."""
    name = program("hostler")
    default = SETTINGS_VARIABLE not in os.environ and settings_file.absolute() == PLACES[0].absolute()
    return name if default else f"{name} --settings {shown(settings_file)}"


def program(name: str) -> str:
    """The command line that calls a program of this environment here: its name alone where that finds it."""
    ours = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    elsewhere = found is None or Path(found).resolve() != ours.resolve()
    return shown(ours) if elsewhere and ours.exists() else name


def shown(path: Path) -> str:
    """The path as one types it here: relative where that is shorter."""
    absolute = os.path.abspath(path)
    return shlex.quote(min(os.path.relpath(absolute), absolute, key=len))
