"""Makes the virtual environment and installs Hostler and its tools into it: `python bootstrap.py [FOLDER]`.

Any Python can read this file, even 2.7, so that one that is too old says so in a sentence and not with a SyntaxError:
types in comments, no f-strings, no print, nothing outside the standard library.
"""
# ruff: noqa: RUF005, UP031

import os
import subprocess
import sys

NEEDED = (3, 11)
IMPORTS = """
import importlib, simulator.__main__, starter.main, worker
from resources.clouds import PROVIDERS
for provider in PROVIDERS.values():
    importlib.import_module(provider.driver)
"""
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def say(line):
    # type: (str) -> None
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fail(*lines):
    # type: (*str) -> None
    sys.stderr.write("error: " + "\n       ".join(lines) + "\n")
    sys.exit(1)


def check_python():
    # type: () -> None
    if sys.version_info[:2] < NEEDED:
        fail(
            "Hostler needs Python %d.%d or newer; %s is Python %s."
            % (NEEDED + (sys.executable, sys.version.split()[0])),
            "Install a newer one and name it: make PYTHON=/path/to/python3.11",
        )
    missing = []
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            missing.append(module)
    if missing:
        fail(
            "%s has no module %s, so it cannot make a virtual environment."
            % (sys.executable, " and no ".join(missing)),
            "Debian and Ubuntu ship it apart: apt install python%d.%d-venv" % sys.version_info[:2],
            "Or name another Python: make PYTHON=/path/to/python3.11",
        )


def has_pip(folder):
    # type: (str) -> bool
    """Whether there is a usable environment already; its Python may have been removed or be too old."""
    python = os.path.join(folder, "bin", "python")
    test = "import pip, sys; sys.exit(sys.version_info[:2] < %r)" % (NEEDED,)
    with open(os.devnull, "w") as quiet:
        try:
            return subprocess.call([python, "-c", test], stderr=quiet) == 0
        except OSError:
            return False


def run(*command):
    # type: (*str) -> None
    code = subprocess.call(command, cwd=ROOT)
    if code != 0:
        fail("%s ended with exit code %d; its words are above." % (" ".join(command), code))


def main():
    # type: () -> None
    check_python()
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, ".venv"))
    if not has_pip(folder):
        say("making a virtual environment in %s with Python %s" % (folder, sys.version.split()[0]))
        run(sys.executable, "-m", "venv", "--clear", folder)
    say("installing the versions of constraints.txt")
    python = os.path.join(folder, "bin", "python")
    # What is imported is compiled, and not what is there: most of the clouds' SDKs never is, and takes a minute.
    pins = "--constraint=constraints.txt"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", pins, "--editable", ".[dev]")
    run(python, "-c", IMPORTS)


if __name__ == "__main__":
    main()
