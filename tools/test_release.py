"""What scripts/release refuses before it builds anything, and what scripts/sbom says of the programs."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command, cwd=ROOT):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


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

    def refused(self, *arguments, code=1):
        done = run("scripts/release", *arguments, cwd=self.room)
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

    def test_a_key_that_cannot_be_read_stops_it_first(self):
        self.assertIn("cannot read the key", self.refused("1.2.3", "--key", "no-such-key"))


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
