"""What scripts/release refuses before it builds anything, what it makes around programs that take no time to build, and what scripts/sbom says of the programs."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command, cwd=ROOT, **more):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, **more)


# Stands in for cargo-zigbuild: two programs that say what they are, as it puts them. All else is cargo's. What
# they begin with is their own, since that of this machine's compiler needs a newer glibc.
PROGRAM = r"""#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
void begin(long *stack) {
  char **words = (char **)(stack + 1);
#ifdef NEWER
  char random[1];
  if (getrandom(random, 1, 0) != 1) exit(1);
#endif
  if (stack[0] < 2 || strcmp(words[1], "--version")) exit(1);
  puts(SAYS);
  exit(0);
}
"""
CARGO = """#!/bin/bash
set -euo pipefail
if [ "$1" != zigbuild ]; then
  # The same each time, and slow.
  kept="${0%/*}/${*//[^a-z]/-}"
  [ -e "$kept" ] || { CARGO "$@" >"$kept.unfinished" && mv "$kept.unfinished" "$kept"; }
  exec cat "$kept"
fi
to="$CARGO_TARGET_DIR/x86_64-unknown-linux-gnu/release"
mkdir -p "$to"
for program in sealog sealog-verify; do
  more=()
  [ "${NEWER:-}" != "$program" ] || more=(-D NEWER)
  cc -O1 -g -fno-ident -nostartfiles -fno-stack-protector -Wl,--build-id=none "${more[@]}" -D "SAYS=\\"$program VERSION (${SAYS:-$SEALOG_COMMIT}, release)\\"" -o "$to/$program" "${0%/*}/program.c"
done
"""


# Read by bash before scripts/release: kills it with all that it has started before the step of this number.
HOOK = """case "$0" in */release)
  set -T
  step=0
  trap 'step=$((step + 1)); echo $step >"$STEPS"; [ $step -lt "$KILL_AT" ] || kill -9 0' DEBUG
esac
"""
# At how many steps it is killed, and at how many of the last ones beside them.
SOME, LAST = 8, 10


class Release(unittest.TestCase):
    """In a small repository with the two files that it reads."""

    def setUp(self):
        self.room = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.room)
        (self.room / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/release", self.room / "scripts")
        (self.room / "Cargo.toml").write_text('[workspace.package]\nversion = "1.2.3"\n[other]\nversion = "9"\n')
        (self.room / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [1.2.3]\n\n- Now.\n\n## [1.2.2]\n\n- Before.\n")
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments):
        done = run("git", "-c", "user.name=a", "-c", "user.email=a@b.example", *arguments, cwd=self.room)
        self.assertEqual(done.returncode, 0, done.stderr)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "all")

    def refused(self, *arguments, code=1, **more):
        done = run("scripts/release", *arguments, cwd=self.room, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertFalse((self.room / "target/dist-build").exists(), "nothing is built")
        return done.stderr

    def test_the_version_is_that_of_the_workspace(self):
        self.assertIn("Cargo.toml says 1.2.3; set `version` in [workspace.package] to 1.2.4 first", self.refused("1.2.4"))
        self.assertIn("see --help", self.refused("1.2.3", "1.2.3", code=2))
        self.assertIn("scripts/release VERSION", self.refused(code=2))

    def test_a_tree_with_changes_is_not_released(self):
        (self.room / "new").write_text("")
        self.assertIn("the tree has changes that no commit has: ?? new", self.refused("1.2.3"))

    def test_a_version_without_notes_is_not_released(self):
        (self.room / "CHANGELOG.md").write_text("## [Unreleased]\n\n- Later.\n\n## [1.2.3]\n\n## [1.2.2]\n\n- Before.\n")
        self.commit()
        self.assertIn('CHANGELOG.md has no section "## [1.2.3]" with text', self.refused("1.2.3"))

    def test_files_of_an_earlier_release_are_not_overwritten(self):
        output = self.room.parent / (self.room.name + "-out")
        output.mkdir()
        self.addCleanup(shutil.rmtree, output)
        (output / "sealog").write_text("")
        self.assertIn("is not empty; remove it or choose another", self.refused("1.2.3", "--output", str(output)))

    def test_a_machine_without_its_tools_is_told_all_of_them_first(self):
        bin = self.room.parent / (self.room.name + "-bin")
        bin.mkdir()
        self.addCleanup(shutil.rmtree, bin)
        for name in ("bash", "cat", "dirname", "env", "git", "realpath", "sed", "uname", "cargo", "strip"):
            (bin / name).symlink_to(shutil.which(name))
        # As Debian's, which has no venv.
        (bin / "python3").write_text("#!/bin/sh\nexit 1\n")
        (bin / "python3").chmod(0o755)
        done = self.refused("1.2.3", "--key", "a-key", env={"PATH": str(bin)})
        self.assertEqual(
            done,
            "release: there is no objdump (Debian: binutils), dpkg-deb (Debian: dpkg), ssh-keygen (Debian: openssh-client),"
            " Python 3.11 or newer with venv (Debian: python3-venv)\n",
        )

    def test_files_are_those_of_the_directory_in_which_it_is_called(self):
        elsewhere = self.room.parent / (self.room.name + "-elsewhere")
        elsewhere.mkdir()
        self.addCleanup(shutil.rmtree, elsewhere)
        (elsewhere / "out").mkdir()
        (elsewhere / "out/sealog").write_text("")
        for arguments, said in [(["--output", "out"], f"{elsewhere}/out is not empty"), (["--key", "key"], f"cannot read the key {elsewhere}/key")]:
            done = run(str(self.room / "scripts/release"), "1.2.3", *arguments, cwd=elsewhere)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)

    def test_a_key_that_cannot_be_read_stops_it_first(self):
        self.assertIn("cannot read the key", self.refused("1.2.3", "--key", "no-such-key"))
        self.assertIn("cannot sign with the key", self.refused("1.2.3", "--key", "CHANGELOG.md"))


class Workflow(unittest.TestCase):
    def test_the_forge_runs_the_same_script_with_arguments_that_it_has(self):
        text = (ROOT / ".github/workflows/release.yml").read_text()
        (line,) = [line for line in text.splitlines() if "scripts/release" in line]
        words = line.split()
        self.assertEqual(words[:2], ["scripts/release", '"${GITHUB_REF_NAME#v}"'])
        usage = run("scripts/release", "--help").stdout
        flags = [word for word in words if word.startswith("--")]
        self.assertEqual(flags, ["--twice", "--key", "--output"])
        for flag in flags:
            self.assertIn(f"\n  {flag} ", usage)
        # What it publishes is what the script wrote.
        self.assertIn('--output "$RUNNER_TEMP/dist"', line)
        self.assertIn('"$RUNNER_TEMP"/dist/*', text)
        self.assertIn('--notes-file "$RUNNER_TEMP/dist/RELEASE-NOTES.md"', text)


class Artefacts(unittest.TestCase):
    """Of a copy of this tree, with a program in place of the one that takes an hour to build."""

    @classmethod
    def setUpClass(cls):
        cls.home = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.home)
        cls.tree = cls.home / "tree"
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, files.split("\0")):
            (cls.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, cls.tree / name)
        for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "all"]):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.example", *command], cwd=cls.tree, check=True)
        cls.commit = run("git", "rev-parse", "--short=12", "HEAD", cwd=cls.tree).stdout.strip()
        cls.version = next(line.split('"')[1] for line in (ROOT / "Cargo.toml").read_text().splitlines() if line.startswith("version = "))
        tools = cls.tree / "target/venv-release"
        (tools / "bin").mkdir(parents=True)
        shutil.copy(ROOT / "tools/release/requirements.txt", tools / "installed-from")
        cargo = tools / "bin/cargo"
        cargo.write_text(CARGO.replace("CARGO ", shutil.which("cargo") + " ").replace("VERSION", cls.version))
        cargo.chmod(0o755)
        (tools / "bin/program.c").write_text(PROGRAM)
        # Most of a run is scripts/sbom, which a run that is killed does not need.
        python = tools / "bin/python3"
        python.write_text(f'#!/bin/bash\n[ -z "${{QUICK:-}}" ] || exec echo "$2"\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)

    def setUp(self):
        self.room = pathlib.Path(tempfile.mkdtemp(dir=self.home))

    def release(self, output, *arguments, **more):
        return run("scripts/release", self.version, "--output", str(output), *arguments, cwd=self.tree, **more)

    def test_a_release_has_all_its_files_with_sums_and_a_signature_and_is_the_same_twice(self):
        key = self.room / "key"
        self.assertEqual(run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)).returncode, 0)
        output = self.room / "out"
        output.mkdir()
        # Whoever builds it may keep files from others.
        done = self.release(output, "--key", str(key), "--twice", umask=0o077)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("two builds, the same bytes", done.stderr)
        self.assertEqual(done.stdout, f"{output}\n")
        name, version = f"sealog-{self.version}-linux-amd64", self.version
        programs = [f"{name}.tar.gz", f"{name}-symbols.tar.gz", f"sealog-verify-{version}-linux-amd64", f"sealog_{version}_amd64.deb"]
        papers = [f"sealog-{version}.cdx.json", f"sealog-verify-{version}.cdx.json", "RELEASE-NOTES.md"]
        self.assertEqual({file.name for file in output.iterdir()}, {*programs, *papers, "SHA256SUMS", "SHA256SUMS.sig"})
        self.assertEqual([file.name for file in self.room.iterdir() if file.name.startswith("out")], ["out"], "nothing beside it")

        sums = dict(reversed(line.split("  ")) for line in (output / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sums, {file: hashlib.sha256((output / file).read_bytes()).hexdigest() for file in programs + papers})
        (self.room / "signers").write_text("release@sealog " + key.with_suffix(".pub").read_text())
        check = ["ssh-keygen", "-Y", "verify", "-n", "sealog-release", "-f", str(self.room / "signers"), "-I", "release@sealog"]
        for text, code in [((output / "SHA256SUMS").read_text(), 0), ("another text", 255)]:
            self.assertEqual(run(*check, "-s", str(output / "SHA256SUMS.sig"), input=text).returncode, code)

        with tarfile.open(output / f"{name}.tar.gz") as archive:
            members = {member.name.removeprefix(f"{name}/"): member for member in archive.getmembers() if member.isfile()}
            verify = archive.extractfile(members["sealog-verify"]).read()
        self.assertEqual(set(members), {"sealog", "sealog-verify", "LICENSE", "README.md", "CHANGELOG.md", "sealog.toml", "sealog.service"})
        at = int(run("git", "log", "-1", "--format=%ct", cwd=self.tree).stdout)
        for file, member in members.items():
            mode = 0o755 if file.startswith("sealog") and "." not in file else 0o644
            self.assertEqual((member.uid, member.gid, member.mtime, oct(member.mode)), (0, 0, at, oct(mode)), file)
        alone = output / f"sealog-verify-{version}-linux-amd64"
        self.assertEqual(alone.read_bytes(), verify)
        self.assertEqual(run(str(alone), "--version").stdout, f"sealog-verify {version} ({self.commit}, release)\n")
        self.assertNotIn("debug_info", run("readelf", "--sections", "--wide", str(alone)).stdout)
        for file in [*programs[2:], *papers]:
            self.assertNotIn(str(self.home).encode(), (output / file).read_bytes(), f"{file} names a directory of this machine")

        deb = str(output / f"sealog_{version}_amd64.deb")
        fields = run("dpkg-deb", "--field", deb).stdout
        self.assertIn(f"Version: {version}\n", fields)
        # The same wherever it is built: sizes of directories are those of a file system.
        unpacked = self.room / "unpacked"
        self.assertEqual(run("dpkg-deb", "--extract", deb, str(unpacked)).returncode, 0)
        sizes = [path.stat().st_size if path.is_file() else 1 for path in unpacked.rglob("*")]
        self.assertIn(f"Installed-Size: {sum(-(-size // 1024) for size in sizes)}\n", fields)
        self.assertIn("data.tar.xz", run("ar", "t", deb).stdout, "a release is compressed")
        for line in run("dpkg-deb", "--contents", deb).stdout.splitlines():
            self.assertTrue(line.startswith(("-rw-r--r-- root/root", "-rwxr-xr-x root/root", "drwxr-xr-x root/root")), line)
        self.assertEqual((output / "RELEASE-NOTES.md").read_text().splitlines()[0], self.notes()[0])

    def notes(self):
        section = (ROOT / "CHANGELOG.md").read_text().split(f"\n## [{self.version}]", 1)[1].split("\n## [", 1)[0]
        return [line for line in section.splitlines()[1:] if line]

    def test_a_program_that_says_another_commit_is_not_released(self):
        done = self.release(self.room / "out", env={**os.environ, "SAYS": "unknown commit"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f'the program says "sealog {self.version} (unknown commit, release)"', done.stderr)
        self.assertEqual(list(self.room.iterdir()), [], "nothing is left")

    def test_a_program_that_needs_a_newer_glibc_is_not_released(self):
        for program in ("sealog", "sealog-verify"):
            done = self.release(self.room / "out", env={**os.environ, "NEWER": program})
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"release: {program} needs glibc 2.25, and is to need 2.17 at most", done.stderr)
            self.assertEqual(list(self.room.iterdir()), [], "nothing is left")

    def test_a_release_that_is_killed_at_any_step_is_whole_or_not_there_and_the_next_one_begins_anew(self):
        hook, steps = self.room / "hook", self.room / "steps"
        hook.write_text(HOOK)
        place, elsewhere = self.room / "place", self.room / "elsewhere"
        place.mkdir()
        elsewhere.mkdir()

        def release(at, output):
            more = {"BASH_ENV": str(hook), "KILL_AT": str(at), "STEPS": str(steps), "TMPDIR": str(elsewhere), "QUICK": "1"}
            return self.release(output, env={**os.environ, **more}, start_new_session=True)

        whole = self.room / "whole"
        done = release(10**9, whole)
        self.assertEqual(done.returncode, 0, done.stderr)
        count, names = int(steps.read_text()), {file.name for file in whole.iterdir()}
        self.assertGreater(count, 40)
        moments = {1 + at * count // SOME for at in range(SOME)} | set(range(count - LAST, count + 1))
        there = 0
        for at in sorted(moments):
            done = release(at, place / "out")
            self.assertEqual(done.returncode, -signal.SIGKILL, f"{at}: {done.stderr}")
            left = {path.name for path in place.iterdir()}
            self.assertLessEqual(left, {"out", "out.unfinished", "out.temporary"}, at)
            self.assertEqual(list(elsewhere.iterdir()), [], f"{at}: what no later run would remove")
            if "out" in left:
                there += 1
                self.assertEqual({file.name for file in (place / "out").iterdir()}, names, at)
                self.assertEqual(run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=place / "out").returncode, 0, at)
                shutil.rmtree(place / "out")
        self.assertTrue(0 < there < LAST, "it comes into its place at one of the last steps")
        done = release(10**9, place / "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([path.name for path in place.iterdir()], ["out"], "and what was left is gone")
        for file in whole.iterdir():
            self.assertEqual((place / "out" / file.name).read_bytes(), file.read_bytes(), file.name)

    def test_a_disk_that_fills_during_a_release_leaves_no_part_of_one(self):
        disk = self.room / "disk"
        disk.mkdir()
        if run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)).returncode != 0:
            self.skipTest("no small file system can be mounted here")
        self.addCleanup(run, "umount", str(disk))
        whole = self.release(self.room / "whole")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        pages = sum(-(-file.stat().st_size // 4096) for file in (self.room / "whole").iterdir())
        # It has room for the first file, for some, for all but the last, and for all.
        for left, code in [(1, None), (pages // 2, None), (pages - 2, None), (8 * pages, 0)]:
            run("mount", "-o", f"remount,size={4 * left}k", str(disk))
            done = self.release(disk / "out")
            if code == 0:
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual({file.name for file in (disk / "out").iterdir()}, {file.name for file in (self.room / "whole").iterdir()})
            else:
                self.assertNotEqual(done.returncode, 0, f"{left} pages")
                self.assertIn("No space left on device", done.stderr)
                self.assertIn(f"{disk}/out was not made", done.stderr)
                self.assertEqual(list(disk.iterdir()), [], "and it takes no room")


class Sbom(unittest.TestCase):
    def test_it_lists_every_crate_that_is_linked_and_is_the_same_each_time(self):
        for package in ("sealog", "sealog-verify"):
            first = run("scripts/sbom", package, "--commit", "abc")
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertEqual(first.stdout, run("scripts/sbom", package, "--commit", "abc").stdout)
            document = json.loads(first.stdout)
            self.assertEqual((document["bomFormat"], document["specVersion"]), ("CycloneDX", "1.5"))
            self.assertEqual(document["metadata"]["component"]["name"], package)
            listed = {(made["name"], made["version"]) for made in document["components"]}
            edges = ["--edges", "normal,no-proc-macro", "--target", "x86_64-unknown-linux-gnu", "--prefix", "none", "--format", "{p}"]
            tree = run("cargo", "tree", "--locked", "-p", package, *edges)
            self.assertEqual(tree.returncode, 0, tree.stderr)
            linked = {tuple(line.split(" ")[:2]) for line in tree.stdout.splitlines() if line}
            self.assertEqual(listed, {(name, version.lstrip("v")) for name, version in linked} - {(package, document["metadata"]["component"]["version"])})
            for made in document["components"]:
                self.assertTrue(made["licenses"][0]["expression"], made)
                self.assertTrue(made["name"].startswith("sealog") or len(made["hashes"][0]["content"]) == 64, made)
            references = {made["bom-ref"] for made in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
            for dependency in document["dependencies"]:
                self.assertLessEqual({dependency["ref"], *dependency["dependsOn"]}, references)

    def test_a_package_that_is_not_there_is_named(self):
        done = run("scripts/sbom", "no-such-package")
        self.assertEqual((done.returncode, done.stderr), (1, "sbom: no-such-package is no package of this workspace\n"))


if __name__ == "__main__":
    unittest.main()
