"""hostler adopt"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.blocks import command
from starter.commands.common import Asking, MachineArgument, one

if TYPE_CHECKING:
    from resources.manifests import AnyManifest
    from starter.sdk.client import HostlerClient
    from starter.sdk.results import Adopted


@command
def adopt(
    *,
    kind: MachineArgument,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Its name.", show_default=False)] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--filename",
            help="Its Machine and MachineClass; default: as its former workflow had them. Repeatable.",
        ),
    ] = None,
    uid: Annotated[
        str | None, typer.Option("--uid", help="Which VM, where there are several of the name.", show_default=False)
    ] = None,
    here: Asking,
) -> None:
    """Give a machine that lost its workflow a new one, with the VM that carries its tags.

    For a workflow that somebody terminated: nothing looks after its VM any more. `hostler get orphans` lists such VMs.
    No VM is made and none is touched; the machine is Running again when its Node is Ready. One of a pool that has no VM
    any more is replaced by its pool.
    """
    machine = one(kind, name)[1]
    manifests = _manifests(files or [])

    async def body(client: HostlerClient) -> None:
        from starter.output import Busy

        async with Busy(f"looking for the VM of machine {machine}") as busy:
            busy.say(*told(await client.adopt(machine, *manifests, uid=uid)))

    here.run(body)


def told(adopted: Adopted) -> list[str]:
    """Says what was done, what was not, and what comes next."""
    vm, label = adopted.vm, f"machine/{adopted.name}"
    notes = [f"{label}: {note}" for note in adopted.notes]
    if vm is None:
        return notes
    after = f"it looks at its VM and Node now; wait for it: hostler wait machine {adopted.name}"
    return [f"{label} adopted: {vm.provider_id} ({vm.state}), uid {vm.uid}", *notes, f"{label}: {after}"]


def _manifests(files: list[str]) -> list[AnyManifest]:
    from starter.commands.files import read
    from starter.outlet import warn

    if not files:
        return []
    loaded = read(files)
    for warning in loaded.warnings:
        warn(warning)
    if loaded.secrets:
        warn(
            f"{', '.join(f'secret/{s.metadata.name}' for s in loaded.secrets)}: left alone; `hostler apply` sends them"
        )
    return [*loaded.classes, *loaded.machines]
