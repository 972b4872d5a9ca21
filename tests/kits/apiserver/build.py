"""Builds the control plane that the tests run against: `make kube`.

The versions are those of tests/kube/go.mod and tests/kube/etcd/go.mod; what is built already is left alone. Needs Go
and the modules, two processors for ten minutes, and 4 GB for Go's caches. Standard library only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from paths import ROOT, TESTS

MODULES = TESTS / "kube"
CACHE = ROOT / ".cache" / "kube"


@dataclass(frozen=True)
class Module:
    """A go.mod and the commands that are built from it: a binary's name and its package."""

    folder: Path
    path: str
    commands: dict[str, str]

    @property
    def version(self) -> str:
        """The version that go.mod pins, such as `v1.36.3`."""
        file = self.folder / "go.mod"
        pinned = re.search(rf"^\s*(?:require )?{re.escape(self.path)} (v\S+)", file.read_text(), re.MULTILINE)
        if pinned is None:
            raise ValueError(f"{file} requires no {self.path}")
        return pinned[1]


ETCD = Module(MODULES / "etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"})
KUBERNETES = Module(
    MODULES,
    "k8s.io/kubernetes",
    {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")},
)


def binaries_folder() -> Path:
    """Where the binaries of the pinned versions are, or will be."""
    return CACHE / f"{KUBERNETES.version}-etcd-{ETCD.version}"


def build() -> Path:
    """Builds what is missing; returns the folder. Raises CalledProcessError when Go fails, FileNotFoundError without
    Go."""
    target = binaries_folder()
    target.mkdir(parents=True, exist_ok=True)
    for module in (ETCD, KUBERNETES):
        for name in module.commands:
            if (target / name).exists():
                continue
            go_build(module, name, target / name, _linker_flags(module))
    return target


def go_build(module: Module, name: str, target: Path, flags: str = "-s -w") -> None:
    """Builds one command of a module. `flags`: for the linker; by default without symbols."""
    print(f"building {name} {module.version}", flush=True)
    unfinished = target.with_name(f"{target.name}.unfinished")
    argv = ["go", "build", "-trimpath", "-ldflags", flags, "-o", str(unfinished), module.commands[name]]
    subprocess.run(argv, cwd=module.folder, check=True)
    unfinished.rename(target)  # a file with the final name is whole, even after an interrupted build


def _linker_flags(module: Module) -> str:
    """Without symbols, and with the version that Kubernetes' own build gives: an API server without one says v0.0.0."""
    flags = ["-s", "-w"]
    if module is KUBERNETES:
        major, minor, _ = module.version.removeprefix("v").split(".")
        values = {"gitVersion": module.version, "gitMajor": major, "gitMinor": minor}
        flags += [f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items()]
    return " ".join(flags)


if __name__ == "__main__":
    try:
        print(f"{build()} has etcd and Kubernetes' control plane")
    except FileNotFoundError:
        sys.exit("error: there is no Go here, which builds the control plane: install it (https://go.dev/dl)")
    except subprocess.CalledProcessError as e:
        sys.exit(f"error: go build failed with exit code {e.returncode}")
