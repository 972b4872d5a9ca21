"""Writes deploy/rbac: roles, service accounts and bindings for workers, from resources/rights.py.

    python tools/rbac.py deploy/rbac

tests/unit/test_deploy.py holds the files to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from resources.rights import CONFIG_NEEDS, NEEDS, Need

NAMESPACE = "hostler"
RBAC = "rbac.authorization.k8s.io"
ACCOUNTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cluster": ("cluster", ("cluster",)),
    "watch": ("watch", ("watch",)),
    "drain": ("drain", ("drain",)),
    "cloud": ("cloud", ("cloud",)),
    "secrets": ("cloud", ("secrets",)),
    "nodes": ("nodes", ("cluster", "watch", "drain")),
    "all": ("all", ("cluster", "watch", "drain", "cloud", "secrets")),
}
"""The account that each file makes, and the roles that it binds to it."""
CONFIGS = "machine-configs"
"""The file with what machine configs need, for all accounts with a role that needs it."""
WORDS = {
    "secrets": "The account of a worker with the role cloud, in the cluster with the Secrets that classes name.",
    "all": "The account of a worker with all roles, in a cluster that has machines and their classes' Secrets.",
}
MADE = "# Made by `make rbac` from resources/rights.py. How it is used: docs/production.md, Rights in the clusters.\n"


def files() -> dict[str, str]:
    """The text of each file, by its name."""
    made = {"roles.yaml": _file("What workers may do, by role. Nobody has these rights without a binding.", _roles())}
    for name, (account, roles) in ACCOUNTS.items():
        named = f"role{'s' if len(roles) > 1 else ''} {', '.join(roles)}"
        words = f"The account of a worker with the {named}, in a cluster with machines."
        made[f"{name}.yaml"] = _file(WORDS.get(name, words), _account(account, roles))
    words = "What machine configs need besides, in a cluster that has them, for each account that there may be."
    made[f"{CONFIGS}.yaml"] = _file(words, _configs())
    return made


def _file(words: str, documents: Iterable[str]) -> str:
    return f"# {words}\n{MADE}" + "---\n".join(documents)


def _roles() -> Iterator[str]:
    yield f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"
    for name in dict.fromkeys(need.granted_by for need in NEEDS):
        yield from _of(name)


def _of(name: str) -> Iterator[str]:
    """A ClusterRole, and a Role in each namespace."""
    for namespace, some in _parts(name):
        kind, where = ("Role", f", namespace: {namespace}") if namespace else ("ClusterRole", "")
        rules = "".join(map(_rule, some))
        yield f"apiVersion: {RBAC}/v1\nkind: {kind}\nmetadata: {{name: {name}{where}}}\nrules:\n{rules}"


def _parts(name: str) -> list[tuple[str, list[Need]]]:
    """What a role grants, by namespace."""
    of = lambda need: need.namespace  # noqa: E731
    found = [need for need in (*NEEDS, *CONFIG_NEEDS) if need.granted_by == name]
    return [(namespace, list(some)) for namespace, some in groupby(sorted(found, key=of), of)]


def _rule(need: Need) -> str:
    group, verbs = need.group or '""', ", ".join(need.verbs)
    return f"  # {need.purpose}\n  - {{apiGroups: [{group}], resources: [{need.resource}], verbs: [{verbs}]}}\n"


def _account(account: str, roles: Iterable[str]) -> Iterator[str]:
    name = f"hostler-{account}"
    yield f"apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n"
    for role in roles:
        yield from _bindings(name, f"hostler-{role}")


def _configs() -> Iterator[str]:
    for name in dict.fromkeys(need.granted_by for need in CONFIG_NEEDS):
        yield from _of(name)
    for role, name in dict.fromkeys((need.role, need.granted_by) for need in CONFIG_NEEDS):
        accounts = [f"hostler-{account}" for account, roles in ACCOUNTS.values() if role in roles]
        subjects = "".join(
            f"  - {{kind: ServiceAccount, name: {account}, namespace: {NAMESPACE}}}\n" for account in accounts
        )
        yield (
            f"apiVersion: {RBAC}/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n"
            f"roleRef: {{apiGroup: {RBAC}, kind: ClusterRole, name: {name}}}\nsubjects:\n{subjects}"
        )


def _bindings(account: str, role: str) -> Iterator[str]:
    name = role if account == role else f"{account}-{role.removeprefix('hostler-')}"
    for namespace, _ in _parts(role):
        kind, there = ("Role", f", namespace: {namespace}") if namespace else ("ClusterRole", "")
        yield (
            f"apiVersion: {RBAC}/v1\nkind: {kind}Binding\nmetadata: {{name: {name}{there}}}\n"
            f"roleRef: {{apiGroup: {RBAC}, kind: {kind}, name: {role}}}\n"
            f"subjects: [{{kind: ServiceAccount, name: {account}, namespace: {NAMESPACE}}}]\n"
        )


if __name__ == "__main__":
    for name, text in files().items():
        Path(sys.argv[1], name).write_text(text)
