"""Fail when the wheel lacks a tracked file of the packages, or holds one that is not tracked."""

import subprocess
import sys
import zipfile

FOLDERS = {"parvibench/": "parvibench/", "tasks/": "parvibench/tasks/", "baselines/": "parvibench/baselines/"}

tracked = subprocess.run(["git", "ls-files", *FOLDERS], capture_output=True, text=True, check=True).stdout.split("\n")
expected = {new + f.removeprefix(old) for f in tracked for old, new in FOLDERS.items() if f.startswith(old)}
with zipfile.ZipFile(sys.argv[1]) as wheel:
    found = {n for n in wheel.namelist() if not n.split("/")[0].endswith(".dist-info")}
missing, surplus = sorted(expected - found), sorted(found - expected)
if missing or surplus:
    sys.exit(f"wheel against tracked files: missing {missing}, surplus {surplus}")
print(f"wheel: {len(found)} files, as tracked")
