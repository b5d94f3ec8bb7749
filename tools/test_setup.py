"""What scripts/setup says on a machine without Rust, or with one that is too old."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SETUP = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "setup"
CURL = "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
# All that the script itself needs. Neither Rust nor a way to install anything.
PROGRAMS = ["bash", "dirname", "head", "id", "sed", "sort", "uname"]


class Setup(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        self.home = pathlib.Path(home.name)
        self.bin = self.home / "bin"
        self.bin.mkdir()
        for name in PROGRAMS:
            os.symlink(shutil.which(name), self.bin / name)

    def program(self, name, says):
        """A program that says this when it is asked for its version, and notes when it is run for something else."""
        path = self.bin / name
        path.write_text('#!/usr/bin/env bash\n[ "$1" = --version ] && { echo "%s"; exit; }\necho "$0 $*" >>"$HOME/ran"\n' % says)
        path.chmod(0o755)
        if not (self.bin / "env").exists():
            os.symlink(shutil.which("env"), self.bin / "env")

    def run_setup(self, os_release):
        (self.home / "os-release").write_text(os_release)
        environment = {"PATH": str(self.bin), "HOME": str(self.home), "OS_RELEASE": str(self.home / "os-release")}
        ended = subprocess.run([SETUP, "build"], env=environment, capture_output=True, text=True)
        self.assertEqual(ended.stdout, "")
        self.assertFalse((self.home / "ran").exists(), "something was run")
        sudo = "" if os.getuid() == 0 else "sudo "
        return ended.returncode, ended.stderr.replace("setup:   " + sudo, "setup:   ")

    def assert_says(self, os_release, command):
        code, said = self.run_setup(os_release)
        self.assertEqual(code, 1)
        self.assertIn("setup:   %s\nsetup: Then run this again.\n" % command, said)
        return said

    def test_without_rust_it_names_the_command_of_this_system_and_installs_nothing(self):
        self.program("curl", "curl 8")
        self.program("apt-get", "apt 3")
        packaged = "apt-get install -y rustup && rustup default stable"
        for system, command in {
            'ID=debian\nVERSION_ID="12"\n': CURL,
            'ID=debian\nVERSION_ID="13"\n': packaged,
            "ID=debian\nVERSION_CODENAME=forky\n": packaged,
            'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n': CURL,
            'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n': packaged,
            "ID=fedora\nVERSION_ID=43\n": "dnf install -y rustup && rustup-init -y",
            "ID=arch\n": "pacman -S --noconfirm rustup && rustup default stable",
            'ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"\n': CURL,
            "": CURL,
        }.items():
            with self.subTest(system):
                self.assertIn("Rust is missing; Sealog needs 1.", self.assert_says(system, command))

    def test_where_curl_is_missing_too_it_comes_first(self):
        self.assert_says('ID=debian\nVERSION_ID="12"\n', "apt-get install -y curl ca-certificates && " + CURL)

    def test_a_rust_that_is_too_old_is_noticed(self):
        self.program("cargo", "cargo 1.63.0")
        self.program("rustc", "rustc 1.63.0 (4b91a6ea7 2022-08-08)")
        said = self.assert_says('ID=debian\nVERSION_ID="13"\n', "apt-get install -y rustup && rustup default stable")
        self.assertIn("Rust 1.63.0 is too old", said)
        self.program("rustup", "rustup 1.28")
        self.assert_says('ID=debian\nVERSION_ID="13"\n', "rustup update stable && rustup default stable")

    def test_rustup_without_a_toolchain_is_noticed(self):
        for name in "cargo", "rustc":
            self.program(name, "error: no default toolchain is configured")
        self.program("rustup", "rustup 1.28")
        self.assert_says("ID=arch\n", "rustup default stable")

    def test_a_rust_that_is_new_enough_is_taken(self):
        self.program("cargo", "cargo 1.100.0")
        self.program("rustc", "rustc 1.100.0 (0123456789 2027-01-01)")
        self.program("cc", "cc 12")
        self.assertEqual(self.run_setup("ID=arch\n"), (0, ""))

    def test_rust_that_rustup_has_just_installed_is_found_by_a_shell_that_was_open_before(self):
        self.program("cc", "cc 12")
        self.program("cargo", "cargo 1.100.0")
        self.program("rustc", "rustc 1.100.0 (0123456789 2027-01-01)")
        (self.home / ".cargo/bin").mkdir(parents=True)
        for name in "cargo", "rustc":
            (self.bin / name).rename(self.home / ".cargo/bin" / name)
        self.assertEqual(self.run_setup("ID=arch\n"), (0, ""))


if __name__ == "__main__":
    unittest.main()
