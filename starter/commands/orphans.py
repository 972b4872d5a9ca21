"""hostler get orphans"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from starter.commands.forms import Form, Manner
from starter.commands.kinds import MACHINE
from starter.commands.rows import Column, Listing, show

if TYPE_CHECKING:
    from resources.manifests import MachineClass
    from resources.orphans import Orphan
    from starter.sdk.client import HostlerClient
    from starter.sdk.results import Json


async def orphans(client: HostlerClient, names: list[str], files: list[str], form: Form, manner: Manner) -> None:
    """Prints the orphans. Raises HostlerError at the end where an account could not be read: the list is not complete
    then."""
    from starter.outlet import warn
    from starter.output import Busy
    from starter.sdk.errors import HostlerError

    async with Busy(f"looking for VMs of cluster {client.cluster} without an owner"):
        report = await client.orphans(*_classes(files))
    chosen = (o for o in report.orphans if not names or o.vm.machine in names)
    found = sorted(chosen, key=lambda o: (o.vm.machine, o.vm.provider_id))
    where = f"cluster {client.cluster}" + (f" with name {', '.join(names)}" if names else "")
    nothing = f"No orphans found in {where}" + ("." if not report.unread else ", as far as it could be read.")
    await show([_listing(found, nothing)], form, manner, single=len(names) == 1 and len(found) == 1)
    if report.others:
        warn(others_words(report.others))
    if report.unread:
        raise HostlerError("\n".join(_unread(key, why) for key, why in sorted(report.unread.items())))


def _unread(account: str, why: str) -> str:
    return f"account {account} could not be listed, so its VMs are not known: {why}; try again when this is fixed"


def _classes(files: list[str]) -> list[MachineClass]:
    """The classes in the files. Raises ManifestError where there are none."""
    from resources.manifests import ManifestError
    from resources.validation import Validate
    from starter.commands.files import read
    from starter.outlet import warn

    if not files:
        return []
    loaded = read(files, Validate.WARN)  # nothing is sent
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


COLUMNS: tuple[Column[Orphan], ...] = (
    Column("NAME", lambda o: o.vm.machine),
    Column("VM", lambda o: o.vm.provider_id),
    Column("STATE", lambda o: o.vm.state, drop=1),
    Column("UID", lambda o: o.vm.uid, drop=3),
    Column("WORKFLOW", workflow_words, drop=2),
    Column("ENDED", lambda o: o.closed, wide=True),
    Column("ACCOUNT", lambda o: o.vm.account, wide=True),
)


def _listing(found: list[Orphan], nothing: str) -> Listing[Orphan]:
    async def find() -> list[Orphan]:
        return found

    async def objects(these: list[Orphan]) -> list[Json | None]:
        return [_object(o) for o in these]

    # With `-o name` it is what `hostler adopt` takes.
    return Listing(COLUMNS, find, lambda o: (MACHINE, o.vm.machine), objects, nothing, state="STATE")


def _object(orphan: Orphan) -> Json:
    """The orphan in Kubernetes' form, for programs; it is no manifest: `hostler adopt` takes the name."""
    from starter.sdk.results import timestamp

    vm = orphan.vm
    status = {
        "providerID": vm.provider_id,
        "state": vm.state,
        "account": vm.account,
        "workflow": workflow_words(orphan),
        "ended": timestamp(orphan.closed),
    }
    return {
        "apiVersion": "hostler.io/v1",
        "kind": "Orphan",
        "metadata": {"name": vm.machine, "uid": vm.uid},
        "status": {k: v for k, v in status.items() if v is not None},
    }
