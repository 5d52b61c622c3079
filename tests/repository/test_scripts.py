"""The script that looks for Java, on machines made of a few fake commands.

Installing a package for real is nothing a test may do, so the package manager is a script that
writes down how it was called and puts a newer ``java`` on PATH.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
TOOLS = ("bash", "sed", "head", "tail", "mktemp", "rm", "cat", "chmod")


class Machine:
    """A PATH with the basic tools, and fake commands on top."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for tool in TOOLS:
            real = shutil.which(tool)
            assert real is not None
            (directory / tool).symlink_to(real)
        self.command("id", "echo 0")

    def command(self, name: str, body: str) -> None:
        path = self.directory / name
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)

    def java(self, version: str) -> None:
        self.command("java", f"""echo 'openjdk version "{version}" 2025-01-01' >&2""")

    def package_manager(self, name: str, *, installs: str | None = "17.0.1") -> None:
        java = self.directory / "java"
        body = f'echo "{name} $*" >> "{self.log}"'
        if installs is not None:
            line = f"""echo 'openjdk version \\"{installs}\\"' >&2"""
            body += f'\nprintf \'#!/bin/sh\\n%s\\n\' "{line}" > "{java}"; chmod +x "{java}"'
        self.command(name, body)

    @property
    def log(self) -> Path:
        return self.directory / "calls.log"

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SCRIPTS / "java.sh")],
            env={"PATH": str(self.directory), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["17.0.15", "17", "21.0.2", "25-ea"])
def test_a_new_java_is_left_alone(machine: Machine, version: str) -> None:
    machine.java(version)
    machine.package_manager("dnf")
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr, machine.calls) == (0, "", "", [])


@pytest.mark.parametrize("old", [None, "1.8.0_392", "11.0.21"])
@pytest.mark.parametrize("manager", ["dnf", "apk", "zypper", "pacman", "brew"])
def test_a_missing_java_is_installed(machine: Machine, manager: str, old: str | None) -> None:
    if old is not None:
        machine.java(old)
    machine.package_manager(manager)
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert len(machine.calls) == 1
    assert "17" in machine.calls[0]


@pytest.mark.parametrize(
    ("known", "package"), [(True, "openjdk-17-jre-headless"), (False, "default-jre-headless")]
)
def test_apt_takes_what_the_release_has(machine: Machine, known: bool, package: str) -> None:
    machine.package_manager("apt-get")
    machine.command("apt-cache", f"exit {0 if known else 100}")
    assert machine.run().returncode == 0
    assert machine.calls[0].startswith("apt-get update")
    assert machine.calls[1].endswith(package)


def test_without_root_one_message_has_the_command(machine: Machine) -> None:
    machine.command("id", "echo 1000")
    machine.package_manager("dnf")
    done = machine.run()
    assert done.returncode == 1
    assert done.stderr == (
        "java: Spark needs Java 17 or newer. "
        "Install it with: sudo dnf install -y java-17-openjdk-headless\n"
    )
    assert machine.calls == []


def test_without_a_package_manager_it_says_so(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 1
    assert "no known package manager" in done.stderr


def test_an_old_java_home_is_not_worked_around(machine: Machine, tmp_path: Path) -> None:
    machine.package_manager("dnf")
    done = machine.run(JAVA_HOME=str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "JAVA_HOME" in done.stderr
    assert machine.calls == []


def test_a_package_that_is_too_old_is_reported(machine: Machine) -> None:
    machine.package_manager("dnf", installs="11.0.2")
    done = machine.run()
    assert done.returncode == 1
    assert "too old" in done.stderr


def test_a_failed_installation_shows_its_last_words(machine: Machine) -> None:
    machine.command("dnf", "echo 'disk full' >&2; exit 1")
    done = machine.run()
    assert done.returncode == 1
    assert "disk full" in done.stderr
