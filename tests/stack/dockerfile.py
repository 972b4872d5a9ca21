"""Builds a Dockerfile into layers, with the same COPY and RUN lines, on a Debian that debootstrap makes."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser

from stack.layers import CACHE, FROM_HERE, NETWORK, Image, Inside, debian, layer, run

SLIM = re.compile(r"python:3\.[\d.]+-slim-(?P<release>\w+)$")


@dataclass
class _Stage:
    key: str
    layers: list[Path]
    workdir: str = "/"
    user: str = "0:0"
    environment: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    healthcheck: dict[str, Any] | None = None


class Build:
    """One Dockerfile. Raises ValueError for an instruction that it does not know."""

    def __init__(self, context: Path) -> None:
        self.context = context
        self.stages: dict[str, _Stage] = {}
        self.ignored = _ignored(context)

    def image(self) -> Image:
        """The last stage's image."""
        stage = self.build()
        return Image(
            layers=stage.layers,
            entrypoint=stage.entrypoint,
            command=stage.command,
            user=stage.user,
            environment=stage.environment,
            workdir=stage.workdir,
            healthcheck=stage.healthcheck,
        )

    def build(self) -> _Stage:
        stage: _Stage | None = None
        with tempfile.TemporaryFile() as unused:
            parser = DockerfileParser(fileobj=unused)
            parser.content = (self.context / "Dockerfile").read_text()
            steps = [(s["instruction"], s["value"]) for s in parser.structure if s["instruction"] != "COMMENT"]
        for instruction, value in steps:
            if instruction == "FROM":
                stage = self._from(value)
            elif stage is None:
                raise ValueError(f"{instruction} before FROM")
            else:
                getattr(self, f"_{instruction.lower()}", self._unknown)(stage, value)
        assert stage is not None
        return stage

    def _unknown(self, stage: _Stage, value: str) -> None:
        raise ValueError(f"the Dockerfile has an instruction that is not known here, with {value!r}")

    def _from(self, value: str) -> _Stage:
        base, _, name = value.partition(" AS ")
        slim = SLIM.match(base)
        if slim is None:
            raise ValueError(f"{base}: only python:…-slim-… is known here")
        stage = _Stage(key=base, layers=[debian(slim["release"])])
        self.stages[name.strip()] = stage
        return stage

    def _workdir(self, stage: _Stage, value: str) -> None:
        stage.workdir = value
        self._layer(stage, f"WORKDIR {value}", lambda folder: (folder / value[1:]).mkdir(parents=True, exist_ok=True))

    def _run(self, stage: _Stage, value: str) -> None:
        layers, workdir = list(stage.layers), stage.workdir
        environment = {**FROM_HERE, **stage.arguments, **stage.environment}

        def make(folder: Path) -> None:
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                inside = Inside(
                    layers, ["/bin/sh", "-c", value], Path(scratch), environment, stage.user, workdir, binds=NETWORK
                )
                run(inside)
                folder.rmdir()
                shutil.move(inside.upper, folder)

        self._layer(stage, f"RUN {value}", make)

    def _copy(self, stage: _Stage, value: str) -> None:
        *sources, target = shlex.split(value)
        if sources[0].startswith("--from="):
            return self._copy_from(stage, self.stages[sources[0].removeprefix("--from=")], sources[1], target)
        place = str(Path(stage.workdir, target))
        digest = hashlib.sha256()
        files: list[tuple[Path, str]] = []
        for source in sources:
            whole = self.context / source
            found = sorted(p for p in whole.rglob("*") if p.is_file()) if whole.is_dir() else [whole]
            for path in found:
                if self._excluded(path.relative_to(self.context)):
                    continue
                inner = path.relative_to(whole) if whole.is_dir() else path.name
                files.append((path, f"{place}/{inner}"))
                digest.update(f"{inner}\0".encode() + path.read_bytes())
        if not files:
            raise FileNotFoundError(f"COPY {value}: nothing in the context (is it in .dockerignore?)")

        def make(folder: Path) -> None:
            for path, there in files:
                copy = folder / there[1:]
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)

        self._layer(stage, f"COPY {value} {digest.hexdigest()}", make)

    def _copy_from(self, stage: _Stage, origin: _Stage, source: str, target: str) -> None:
        def make(folder: Path) -> None:
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                argv = [
                    "/bin/sh",
                    "-c",
                    'mkdir -p "$(dirname "/mnt$2")" && cp -a "$1" "/mnt$2"',
                    "copy",
                    source,
                    target,
                ]
                run(Inside(list(origin.layers), argv, Path(scratch), {}, binds=[(folder, "/mnt", True)]))

        self._layer(stage, f"COPY --from {origin.key} {source} {target}", make)

    def _env(self, stage: _Stage, value: str) -> None:
        stage.environment |= _assignments(value)

    def _arg(self, stage: _Stage, value: str) -> None:
        stage.arguments |= _assignments(value)

    def _label(self, stage: _Stage, value: str) -> None:
        known = stage.arguments
        stage.labels |= {k: re.sub(r"\$\{(\w+)\}", lambda m: known[m[1]], v) for k, v in _assignments(value).items()}

    def _user(self, stage: _Stage, value: str) -> None:
        stage.user = value

    def _entrypoint(self, stage: _Stage, value: str) -> None:
        stage.entrypoint = json.loads(value)

    def _cmd(self, stage: _Stage, value: str) -> None:
        stage.command = json.loads(value)

    def _healthcheck(self, stage: _Stage, value: str) -> None:
        options, _, command = value.partition("CMD ")
        given = dict(re.findall(r"--([\w-]+)=(\S+)", options))
        stage.healthcheck = {
            "test": ["CMD", *json.loads(command)],
            **{k.replace("-", "_"): v for k, v in given.items()},
        }

    def _layer(self, stage: _Stage, step: str, make: Any) -> None:
        stage.key = hashlib.sha256(f"{stage.key}\n{step}".encode()).hexdigest()
        stage.layers = [layer(stage.key, make), *stage.layers]

    def _excluded(self, path: Path) -> bool:
        kept = not any(pattern == "*" for pattern in self.ignored)
        for pattern in self.ignored:
            allowed, plain = pattern.startswith("!"), pattern.lstrip("!")
            if _fits(path, plain):
                kept = allowed
        return not kept


def _ignored(context: Path) -> list[str]:
    lines = (line.strip() for line in (context / ".dockerignore").read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _fits(path: Path, pattern: str) -> bool:
    """Whether the path, or a folder that it is in, fits a pattern of .dockerignore."""
    names = [path, *path.parents][:-1]
    plain = pattern.removeprefix("**/")
    return any(fnmatch.fnmatch(n.name if pattern.startswith("**/") else str(n), plain) for n in names)


def _assignments(value: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in shlex.split(value) if "=" in part)
