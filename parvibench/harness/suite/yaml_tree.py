"""YAML as plain data: no tags, no oversized trees; every node has its line."""

from collections.abc import Iterable
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from parvibench.core.errors import SuiteError, printable

MAX_BYTES = 1_000_000
MAX_NODES = 10_000
MAX_DEPTH = 30


def read_yaml(content: bytes, source: str) -> CommentedMap:
    """The mapping in these bytes of the file ``source``; ``SuiteError`` where there is none."""
    if len(content) > MAX_BYTES:
        raise SuiteError(f"{source}: {len(content)} bytes; a suite file has at most {MAX_BYTES}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{source}: not a text file (byte {error.start} is not UTF-8)") from None
    # The parser takes a second for ten thousand nodes, and a minute for a thousand brackets in one another.
    if text.count("\n") + text.count(",") > MAX_NODES or _bracket_depth(text) > MAX_DEPTH:
        limits = f"at most {MAX_NODES} lines and entries, {MAX_DEPTH} deep"
        raise SuiteError(f"{source}: too large: a suite file has {limits}")
    try:
        tree = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = (error.problem or "not valid YAML").split("\n")[0]
        if "'\\t'" in problem:
            problem = "a tab before a key or a value: YAML is indented by spaces"
        raise SuiteError(f"{source}{line}: {problem}") from None
    except (YAMLError, ValueError, RecursionError, AttributeError, KeyError, TypeError, IndexError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise SuiteError(f"{source}: not valid YAML: {reason}") from None
    if not isinstance(tree, CommentedMap):
        found = "nothing" if tree is None else type(tree).__name__.lower()
        raise SuiteError(f"{source}:1: a suite is a mapping with keys such as name, tasks, algorithms; found {found}")
    return tree


def _bracket_depth(text: str) -> int:
    """Most brackets open at a time, those in quotes and comments included."""
    deepest = depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth = max(0, depth - 1)
    return deepest


def plain(tree: Any, source: str) -> Any:
    """Plain Python data; refuses tags, and trees that aliases have blown up."""
    nodes = 0

    def convert(node: Any, path: str, depth: int) -> Any:
        nonlocal nodes
        nodes += 1
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            raise SuiteError(f"{source}: too large at {path or 'the top'} (aliases that repeat themselves?)")
        tag = getattr(getattr(node, "tag", None), "value", None)
        if tag is not None and not str(tag).startswith("tag:yaml.org,2002:"):
            raise SuiteError(f"{source}: {path or 'the top'}: tag {tag} is not allowed; a suite is plain data")
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str) or not key.isprintable():
                    raise SuiteError(f"{source}: {path or 'the top'}: key {key!a:.60} is no plain text")
            return {str(k): convert(v, f"{path}.{k}" if path else str(k), depth + 1) for k, v in node.items()}
        if isinstance(node, list):
            return [convert(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(node)]
        if isinstance(node, bool) or node is None:
            return node
        if isinstance(node, str) and printable(node) != node:
            raise SuiteError(f"{source}: {path or 'the top'}: control characters or lone surrogates in {node[:40]!a}")
        for kind in (int, float, str):
            if isinstance(node, kind):
                return kind(node)
        raise SuiteError(f"{source}: {path}: {type(node).__name__} values are not allowed; use text or numbers")

    return convert(tree, "", 0)


def line_of(tree: Any, loc: Iterable[Any]) -> int:
    """Line of the deepest node of ``loc`` that the file holds, counted from 1."""
    line, node = 1, tree
    for part in loc:
        if not hasattr(node, "lc"):
            break
        try:
            data = node.lc.data
            line = (data[part][0] if data and part in data else node.lc.line) + 1
            node = node[part]
        except (KeyError, IndexError, TypeError):
            break
    return line
