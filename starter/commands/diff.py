"""hostler diff"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.blocks import command
from starter.commands.common import ForceConflictsOption, Reading, Session, ValidateOption, validate_of

if TYPE_CHECKING:
    from resources.validation import Validate
    from starter.sdk.client import HostlerClient

DIFFERENT, FAILED = 1, 2
"""Exit codes, as kubectl diff has them: 0 no difference, 1 differences, more than 1 an error."""


@command
def diff(
    *,
    files: Annotated[
        list[str], typer.Option("-f", "--filename", help="A file, a directory, or - for standard input; repeatable.")
    ],
    validate: ValidateOption = "strict",
    force_conflicts: ForceConflictsOption = False,
    here: Reading,
) -> None:
    """Show what `hostler apply` would change, field by field: a hot update of running VMs, a new VM (pools roll, a
    single machine is Outdated), no effect on VMs, or a refusal; which machines and pools a changed class affects; and
    what a pool would do, step by step.

    Exit code 0: no difference; 1: differences; more than 1: an error, as kubectl diff.
    """
    from resources.manifests import ManifestError
    from resources.settings import SettingsError
    from starter.sdk.errors import HostlerError

    how = validate_of(validate)

    class Failed(HostlerError):
        exit_code = FAILED

    try:
        different = _show(here, files, how, force_conflicts)
    except HostlerError as e:
        if e.exit_code > DIFFERENT:
            raise
        raise Failed(str(e)) from e
    except (ManifestError, SettingsError) as e:
        raise Failed(str(e)) from e
    if different:
        raise typer.Exit(DIFFERENT)


def _show(here: Session, files: list[str], how: Validate, force_conflicts: bool) -> bool:
    from starter.commands.files import read
    from starter.outlet import warn
    from starter.output import Busy
    from starter.sdk.apply.diff import differences

    loaded = read(files, how)
    for warning in loaded.warnings:
        warn(warning)
    different = False

    async def body(client: HostlerClient) -> None:
        nonlocal different
        async with Busy("comparing with what exists") as busy:
            plan = await client.plan(
                *loaded.manifests, cluster=here.cluster, validate=how, force_conflicts=force_conflicts
            )
            found = await differences(client, plan)
            for line in (line for difference in found for line in difference.lines()):
                busy.say(line)
            different = bool(found)

    here.run(body, anywhere=True)
    return different
