"""hostler adopt"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.blocks import command
from starter.commands.common import Asking, MachineArgument, ValidateOption, one, validate_of

if TYPE_CHECKING:
    from resources.manifests import AnyManifest
    from resources.validation import Validate
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
            help="Its Machine and MachineClass; default: those of its earlier workflow. Repeatable.",
        ),
    ] = None,
    uid: Annotated[
        str | None,
        typer.Option("--uid", help="The VM to take over, if there are several with the name.", show_default=False),
    ] = None,
    validate: ValidateOption = "strict",
    here: Asking,
) -> None:
    """Give a machine that lost its workflow a new one, with the VM that carries its tags.

    Use it after somebody has terminated a machine's workflow: nothing manages the VM then. `hostler get orphans` lists
    such VMs. No VM is created or changed; the machine is Running again when its Node is Ready. If the VM is gone, the
    machine's pool replaces it.
    """
    machine = one(kind, name)[1]
    manifests = _manifests(files or [], validate_of(validate))

    async def body(client: HostlerClient) -> None:
        from starter.output import Busy

        async with Busy(f"looking for the VM of machine {machine}") as busy:
            busy.say(*told(await client.adopt(machine, *manifests, uid=uid)))

    here.run(body, anywhere=True)


def told(adopted: Adopted) -> list[str]:
    """Says what was done, what was not, and what comes next."""
    vm, label = adopted.vm, f"machine/{adopted.name}"
    notes = [f"{label}: {note}" for note in adopted.notes]
    if vm is None:
        return notes
    after = f"it checks its VM and Node now; to wait for it: hostler wait machine {adopted.name}"
    return [f"{label} adopted: {vm.provider_id} ({vm.state}), uid {vm.uid}", *notes, f"{label}: {after}"]


def _manifests(files: list[str], validate: Validate) -> list[AnyManifest]:
    from starter.commands.files import read
    from starter.outlet import warn

    if not files:
        return []
    loaded = read(files, validate)
    for warning in loaded.warnings:
        warn(warning)
    if loaded.secrets:
        warn(
            f"{', '.join(f'secret/{s.metadata.name}' for s in loaded.secrets)}: ignored; `hostler apply` sends Secrets"
        )
    return [*loaded.classes, *loaded.machines]
