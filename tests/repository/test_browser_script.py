"""The script that installs what the page needs, on machines made of a few fake commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "browser.sh"
TOOLS = ("bash", "dirname", "chmod", "sed", "tail", "mktemp", "rm", "cat", "mkdir", "touch", "env")


class Machine:
    """A clone with the script, and a PATH with basic tools and fake commands."""

    def __init__(self, directory: Path) -> None:
        self.clone = directory / "clone"
        self.programs = directory / "bin"
        (self.clone / "scripts").mkdir(parents=True)
        (self.clone / "frontend").mkdir()
        (self.clone / "frontend" / "package-lock.json").write_text("{}")
        shutil.copy(SCRIPT, self.clone / "scripts")
        self.programs.mkdir()
        for tool in TOOLS:
            real = shutil.which(tool)
            assert real is not None
            (self.programs / tool).symlink_to(real)
        self.command("id", "echo 0")

    def command(self, name: str, body: str) -> None:
        path = self.programs / name
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)

    def node(self, version: str = "v20.1.0", npm: str = "mkdir -p frontend/node_modules") -> None:
        self.command("node", f"echo {version}")
        self.command("npm", f'echo "npm $*" >> "{self.log}"\n{npm}')

    def package_manager(self) -> None:
        chromium = self.programs / "chromium"
        body = f'echo "apt-get $*" >> "{self.log}"\n[ "$1" = update ] || touch "{chromium}"'
        self.command("apt-get", f'{body}\n[ "$1" = update ] || chmod +x "{chromium}"')

    @property
    def log(self) -> Path:
        return self.clone / "calls.log"

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def run(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(self.clone / "scripts" / "browser.sh"), *options],
            env={"PATH": str(self.programs), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("version", [None, "v18.19.0"])
def test_without_node_it_says_so_and_goes_on_if_it_may(
    machine: Machine, version: str | None
) -> None:
    if version is not None:
        machine.node(version)
    done = machine.run("--browser")
    assert (done.returncode, machine.calls) == (1, [])
    assert "Node.js 20 or newer is missing. Hint: install it" in done.stderr
    may = machine.run("--browser", "--if-possible")
    assert (may.returncode, may.stderr) == (0, done.stderr)


def test_packages_are_installed_once(machine: Machine) -> None:
    machine.node()
    assert machine.run().returncode == 0
    assert machine.calls == ["npm ci --prefix frontend --ignore-scripts --no-audit --no-fund"]
    again = machine.run()
    assert (again.returncode, again.stderr, len(machine.calls)) == (0, "", 1)


def test_a_failure_of_npm_is_shown(machine: Machine) -> None:
    machine.node(npm="echo no network >&2; exit 1")
    done = machine.run("--browser")
    assert done.returncode == 1
    assert "no network\nbrowser: Installing the packages of frontend/ failed." in done.stderr
    assert machine.run("--browser", "--if-possible").returncode == 0


def test_a_missing_chromium_is_installed(machine: Machine) -> None:
    machine.node()
    machine.package_manager()
    assert machine.run("--browser").returncode == 0
    assert machine.calls[1:] == [
        "apt-get update -qq",
        "apt-get install -y --no-install-recommends chromium",
    ]


@pytest.mark.parametrize("environment", [{}, {"CHROMIUM": "/opt/chromium"}])
def test_a_browser_that_is_there_is_left_alone(
    machine: Machine, environment: dict[str, str]
) -> None:
    machine.node()
    machine.package_manager()
    if not environment:
        machine.command("google-chrome", "true")
    assert machine.run("--browser", **environment).returncode == 0
    assert len(machine.calls) == 1


def test_others_than_root_get_the_command(machine: Machine) -> None:
    machine.node()
    machine.command("id", "echo 1000")
    machine.package_manager()
    done = machine.run("--browser")
    assert done.returncode == 1
    assert "Install it with: sudo apt-get install chromium" in done.stderr
    assert len(machine.calls) == 1


def test_without_a_package_manager_it_says_what_to_do(machine: Machine) -> None:
    machine.node()
    done = machine.run("--browser")
    assert done.returncode == 1
    assert "Hint: install it, and put it on PATH or its path in CHROMIUM." in done.stderr
