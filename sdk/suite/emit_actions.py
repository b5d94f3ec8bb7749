#!/usr/bin/env python3
"""Writes what `sealog actions --emit` writes for an organisation of its own on a real server.

emit_actions.py SEALOG LANGUAGE FILE

The organisation has a framework and its own actions, some with names that are hard to write down in a
programming language.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from run import RealServer

OWN = [
    {
        "action": "order.shipped",
        "description": 'Ends */ a comment, \\ and """ a text.',
        "required_fields": ["carrier", "tracking-id"],
    },
    {"action": 'order "returned" */', "required_fields": ["class", "metadata", "actor_id"]},
    {"action": "order_shipped", "required_fields": []},
    {"action": "import", "required_fields": ["9 lives", "größe"]},
]


def main() -> None:
    program, language, file = sys.argv[1], sys.argv[2], str(Path(sys.argv[3]).resolve())
    with tempfile.TemporaryDirectory(prefix="sealog-actions-") as folder:
        server = RealServer(str(Path(program).resolve()), Path(folder))
        try:
            for action in OWN:
                server.call("/operator/v1/tenants/%s/actions" % server.tenant, **action)
            path = "/operator/v1/tenants/%s/projects" % server.tenant
            project = server.call(path, name="typed", frameworks=["eu_ai_act"])["project_id"]
            key = server.call("/operator/v1/projects/%s/keys" % project, name="typed", mode="test")["key"]
            environment = {**os.environ, "SEALOG_URL": "http://" + server.address, "SEALOG_API_KEY": key}
            command = [program, "actions", "--emit", language]
            subprocess.run([*command, "--output", file], env=environment, check=True)
            subprocess.run([*command, "--check", file], env=environment, check=True)
            with open(file, "a", encoding="utf-8") as out:
                out.write("// moved\n")
            moved = subprocess.run([*command, "--check", file], env=environment, stderr=subprocess.DEVNULL)
            if moved.returncode != 1:
                raise SystemExit("--check does not notice a file that differs")
            subprocess.run([*command, "--output", file], env=environment, check=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
