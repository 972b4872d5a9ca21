"""What a machine is told by its owner: each message is a snapshot, and a late one changes nothing."""

from __future__ import annotations

from temporalio import workflow

from workflows.machine import hooks, hot_update, membership
from workflows.machine.preserve_requests import Preservable

with workflow.unsafe.imports_passed_through():
    from planners.machine.domain import taken
    from resources.fleet.membership import OwnerNews, PermitGranted
    from resources.machine.hooks import HookChange
    from resources.machine.manifest import HookKind


class Owned(Preservable):
    """The handlers of what does not concern the machine's template or preservation."""

    @workflow.signal
    def permit(self, permit: PermitGranted) -> None:
        """The machine may be Failed for its health, if one more fresh look finds it ill."""
        self.s.messages += 1
        membership.permitted(self, permit.reason)

    @workflow.signal
    def report_again(self) -> None:
        """The owner does not know the machine, or no longer does."""
        self.s.messages += 1
        membership.tell(self, again=True)

    @workflow.signal
    def owner_changed(self, news: OwnerNews) -> None:
        """An owner takes the machine over, gives it a place, or lets it go."""
        s = self.s
        s.messages += 1
        former = s.owner
        if former not in (None, news.owner):
            self.note_news("Refused", f"{news.owner} wants to take the machine over, which belongs to {former}")
        elif news.released:
            self._let_go()
        else:
            self._belong(news)
        if s.owner != former and s.created is not None and workflow.patched("owner-shown"):
            self.publish()  # lists and config pools find the owner by what is shown; one that is Running may not stir

    def _let_go(self) -> None:
        s = self.s
        if s.owner is None:
            return
        self.note("OwnerGone", f"{s.owner} has let the machine go: it belongs to nobody, and nobody replaces it")
        _drop_hooks(self, s.owner.user)
        membership.withdraw(self)
        s.owner, s.placement, s.domain, s.told_pool = None, None, {}, ""

    def _belong(self, news: OwnerNews) -> None:
        s = self.s
        if s.owner is None:
            self.note("OwnerFound", f"the machine belongs to {news.owner} from now on")
        s.owner = news.owner
        if news.placement is not None:
            s.placement, s.domain = news.placement, news.domain
            s.machine_class = taken(s, s.machine_class) if s.machine_class else None
        wanted = news.machine_class
        if wanted is not None and s.deletion is None and wanted.name != s.spec.class_.name:
            s.spec = s.spec.model_copy(update={"class_": s.spec.class_.model_copy(update={"name": wanted.name})})
            hot_update.take(self, hot_update.of_pool(s, wanted))
        membership.tell(self, again=True)


def _drop_hooks(m: Owned, owner: str) -> None:
    """Removes what the former owner held the machine by."""
    s, now = m.s, workflow.now()
    for hook in s.hooks.effective(s.spec.lifecycle_hooks, HookKind.PRE_DRAIN):
        if hook.owner == owner:
            change = HookChange(kind=HookKind.PRE_DRAIN, name=hook.name, owner=hook.owner, time=now)
            s.hooks.removed.append(change)
    hooks.show(m)
