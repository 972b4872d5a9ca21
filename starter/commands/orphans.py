"""hostler get orphans"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starter.commands.kinds import MACHINE
from starter.commands.rows import Form, Row, print_objects, print_rows

if TYPE_CHECKING:
    from resources.manifests import MachineClass
    from resources.orphans import Orphan
    from starter.sdk.client import HostlerClient
    from starter.sdk.results import Json

COLUMNS = ("NAME", "VM", "STATE", "UID", "WORKFLOW")
WIDE = (*COLUMNS, "ENDED", "ACCOUNT")


async def orphans(client: HostlerClient, names: list[str], files: list[str], form: Form) -> None:
    """Prints the orphans. Raises HostlerError at the end where an account could not be read: the list is not complete
    then."""
    from starter.outlet import warn
    from starter.output import Busy
    from starter.sdk.errors import HostlerError

    async with Busy(f"looking for VMs of cluster {client.cluster} without an owner"):
        report = await client.orphans(*_classes(files))
    chosen = (o for o in report.orphans if not names or o.vm.machine in names)
    found = sorted(chosen, key=lambda o: (o.vm.machine, o.vm.provider_id))
    if form in (Form.JSON, Form.YAML):
        await print_objects([_object(o) for o in found], form, single=len(names) == 1 and len(found) == 1)
    else:

        async def rows() -> list[Row]:
            return [_row(o) for o in found]

        where = f"cluster {client.cluster}" + (f" with name {', '.join(names)}" if names else "")
        nothing = f"No orphans found in {where}" + ("." if not report.unread else ", as far as it could be read.")
        await print_rows(WIDE if form is Form.WIDE else COLUMNS, "STATE", rows, form, False, nothing)
    if report.others:
        warn(others_words(report.others))
    if report.unread:
        raise HostlerError("\n".join(_unread(key, why) for key, why in sorted(report.unread.items())))


def _unread(account: str, why: str) -> str:
    return f"account {account} could not be listed, so its VMs are not known: {why}; try again when this is fixed"


def _classes(files: list[str]) -> list[MachineClass]:
    """The classes in the files. Raises ManifestError where there are none."""
    from resources.manifests import ManifestError
    from starter.commands.files import read
    from starter.outlet import warn

    if not files:
        return []
    loaded = read(files)
    for warning in loaded.warnings:
        warn(warning)
    if not loaded.classes:
        raise ManifestError(f"{', '.join(files)}: contains no MachineClass; a class says which account to search")
    return loaded.classes


def others_words(others: Mapping[str, int]) -> str:
    """What other installations have made, by Account.key."""
    found = ", ".join(f"{count} in {key}" for key, count in sorted(others.items()))
    return f"not listed are VMs of another installation's cluster with the same name: {found}"


def workflow_words(orphan: Orphan) -> str:
    """What stands in place of an owner."""
    if orphan.workflow == "RUNNING":
        return "of-another-life"  # a machine of this name runs, with another uid
    if orphan.doubtful:
        return "none-untagged"  # it may be another installation's
    return orphan.workflow or "none"


def _row(orphan: Orphan) -> Row:
    from starter.output import relative

    vm = orphan.vm
    cells = (vm.machine, vm.provider_id, vm.state, vm.uid, workflow_words(orphan))
    more = (relative(orphan.closed, datetime.now(UTC)), vm.account)
    # With `-o name` it is what `hostler adopt` takes.
    return Row((MACHINE, vm.machine), dict(zip(WIDE, (*cells, *more), strict=True)))


def _object(orphan: Orphan) -> Json:
    """The orphan in Kubernetes' form, for programs; it is no manifest: `hostler adopt` takes the name."""
    vm = orphan.vm
    status = {
        "providerID": vm.provider_id,
        "state": vm.state,
        "account": vm.account,
        "workflow": workflow_words(orphan),
        "ended": orphan.closed.isoformat() if orphan.closed else None,
    }
    return {
        "apiVersion": "hostler.io/v1",
        "kind": "Orphan",
        "metadata": {"name": vm.machine, "uid": vm.uid},
        "status": {k: v for k, v in status.items() if v is not None},
    }
