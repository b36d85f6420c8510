# `. _packages.sh PACKAGE...`: a temporary environment with these packages; $python runs in it.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
python="$work/venv/bin/python"
if command -v uv >/dev/null; then
  uv pip install --quiet --python "$python" "$@"
else
  "$python" -m pip install --quiet --disable-pip-version-check "$@"
fi
export PYTHONWARNINGS=ignore
