"""Fail when the wheel lacks a tracked file of the packages or holds one that is not tracked, or its facts are not ours.

Usage: compare_wheel.py WHEEL SDIST
"""

import email
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

FOLDERS = {"parvibench/": "parvibench/", "tasks/": "parvibench/tasks/", "baselines/": "parvibench/baselines/", "reports/": "parvibench/results/"}  # fmt: skip
PATHS = ["parvibench/", "tasks/", "baselines/", "reports/__init__.py", ":(glob)reports/*/results.parquet"]

tracked = subprocess.run(["git", "ls-files", *PATHS], capture_output=True, text=True, check=True).stdout.split("\n")
expected = {new + f.removeprefix(old) for f in tracked for old, new in FOLDERS.items() if f.startswith(old)}
with zipfile.ZipFile(sys.argv[1]) as wheel:
    found = {n for n in wheel.namelist() if not n.split("/")[0].endswith(".dist-info")}
    (metadata,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    facts = email.message_from_bytes(wheel.read(metadata))
missing, surplus = sorted(expected - found), sorted(found - expected)
if missing or surplus:
    sys.exit(f"wheel against tracked files: missing {missing}, surplus {surplus}")

project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
wanted = {"Name": project["name"], "Version": project["version"], "Requires-Python": project["requires-python"], "License-Expression": project["license"]}  # fmt: skip
wrong = {key: facts[key] for key, value in wanted.items() if facts[key] != value}
told = facts.get_payload(decode=True).decode("utf-8")
if wrong or told.strip() != Path(project["readme"]).read_text("utf-8").strip():
    sys.exit(f"wheel: its facts are not those of pyproject.toml and the README: {wrong}")
with tarfile.open(sys.argv[2]) as source:
    names = {n.partition("/")[2] for n in source.getnames()}
if lacking := {"LICENSE", "README.md", "pyproject.toml"} - names:
    sys.exit(f"source distribution: lacks {sorted(lacking)}")
print(f"wheel: {len(found)} files, as tracked; source distribution: {len(names)} files")
