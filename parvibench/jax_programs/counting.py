"""Evaluations of a log density counted inside compiled JAX code.

A function is traced once and evaluated again equation by equation, with a counter next to its results: an evaluation of the
density adds to it; loops carry it along; of the branches of a condition the one that is taken adds its own. So a chain
counts what it computes by itself, also where many are vectorised and wait for one another. Evaluations are recognised by
the name of a jitted function, which differentiation and vectorisation keep.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from parvibench.core.errors import UnsupportedError

from .loading import jax_library

_SCORED, _VALUED = "parvibench_scored", "parvibench_valued"
#: Primitives that call one program, and the names of their parameter that holds it.
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def recognised(log_density: Callable[[Any], Any], dim: int) -> Callable[[Any], Any]:
    """The log density of a point (D,), with value and gradient computed together and recognised by ``counted``."""
    jax = jax_library("jax")

    def scored(x: Any) -> Any:  # one array, so that no part of it is dropped
        value, slope = jax.value_and_grad(log_density)(x)
        return jax.numpy.append(slope, value)

    def valued(x: Any) -> Any:
        return log_density(x)

    scored.__name__, valued.__name__ = _SCORED, _VALUED
    both, value = jax.jit(scored), jax.jit(valued)
    found = jax.custom_jvp(value)
    found.__name__ = "log_density"  # its transformations keep this name

    def derivative(points: Any, directions: Any) -> Any:
        row = both(points[0])
        return row[dim], row[:dim] @ directions[0]

    found.defjvp(derivative)
    return found


def counted(function: Callable[..., Any], dim: int) -> Callable[..., Any]:
    """The function with the scores and the log densities that it evaluates besides: ``(results, scores, values)``.

    A derivative of a score counts as a score for each direction. The first call raises ``UnsupportedError`` where
    evaluations are within a primitive that cannot be followed.
    """
    jax = jax_library("jax")

    def also(*args: Any) -> Any:
        program, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        results, counts = _Run(jax, dim).program(program, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), results), *map(jax.numpy.int32, counts)

    return also


Counts = tuple[Any, Any]


class _Run:
    """Evaluates programs and counts on the way."""

    def __init__(self, jax: Any, dim: int) -> None:
        self._jax, self._dim = jax, dim

    def program(self, closed: Any, args: Sequence[Any]) -> tuple[list[Any], Counts]:
        """Results of a closed program, and its counts."""
        jaxpr, counts = closed.jaxpr, (0, 0)
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *args], strict=True))

        def read(atom: Any) -> Any:
            return atom.val if hasattr(atom, "val") else known[atom]

        for equation in jaxpr.eqns:
            results, more = self._equation(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
            counts = _sum(counts, more)
        return [read(atom) for atom in jaxpr.outvars], counts

    def _equation(self, equation: Any, args: list[Any]) -> tuple[list[Any], Counts]:
        name, inner = equation.primitive.name, equation.params
        tag = inner.get("name")
        if not _counts(equation) or tag in (_SCORED, _VALUED):
            bound = equation.primitive.get_bind_params(inner)
            functions, options = bound if isinstance(bound, tuple) else ((), bound)  # a pair before JAX 0.10
            with equation.ctx.manager:
                results = equation.primitive.bind(*functions, *args, **options)
            results = list(results) if equation.primitive.multiple_results else [results]
            size = sum(math.prod(v.aval.shape) for v in equation.outvars)
            return results, (-(-size // (self._dim + 1)) * (tag == _SCORED), size * (tag == _VALUED))
        if name == "while":
            return self._loop(inner, args)
        if name == "scan":
            return self._scan(inner, args)
        if name == "cond":
            branches = [lambda *a, b=b: self._arrays(*self.program(b, a)) for b in inner["branches"]]
            return self._jax.lax.switch(args[0], branches, *args[1:])
        called = next((inner[key] for key in _CALLS if key in inner), None)
        if called is None:
            raise UnsupportedError(f"evaluations of the log density within {name!r} cannot be counted")
        closed = called if hasattr(called, "consts") else jax_library("jax.extend.core").ClosedJaxpr(called, ())
        return self.program(closed, args)

    def _loop(self, inner: Any, args: list[Any]) -> tuple[list[Any], Counts]:
        if _within(inner["cond_jaxpr"]):
            raise UnsupportedError("evaluations of the log density in the condition of a loop cannot be counted")
        first, second = inner["cond_nconsts"], inner["body_nconsts"]
        ends, goes, start = args[:first], args[first : first + second], args[first + second :]

        def holds(carry: Any) -> Any:
            return self.program(inner["cond_jaxpr"], [*ends, *carry[0]])[0][0]

        def body(carry: Any) -> Any:
            results, more = self.program(inner["body_jaxpr"], [*goes, *carry[0]])
            return self._arrays(results, _sum(carry[1], more))

        return self._jax.lax.while_loop(holds, body, self._arrays(start, (0, 0)))

    def _scan(self, inner: Any, args: list[Any]) -> tuple[list[Any], Counts]:
        consts, carried = inner["num_consts"], inner["num_carry"]
        fixed, start, rows = args[:consts], args[consts : consts + carried], args[consts + carried :]

        def step(carry: Any, row: Any) -> Any:
            results, more = self.program(inner["jaxpr"], [*fixed, *carry[0], *row])
            return self._arrays(results[:carried], _sum(carry[1], more)), results[carried:]

        options = {key: inner[key] for key in ("length", "reverse", "unroll")}
        (last, counts), stacked = self._jax.lax.scan(step, self._arrays(start, (0, 0)), rows, **options)
        return [*last, *stacked], counts

    def _arrays(self, results: Any, counts: Counts) -> Any:
        """Results and counts as control flow carries them, in arrays."""
        return list(results), tuple(self._jax.numpy.asarray(c, self._jax.numpy.int32) for c in counts)


def _sum(first: Counts, second: Counts) -> Counts:
    return first[0] + second[0], first[1] + second[1]


def _counts(equation: Any) -> bool:
    """True where an equation is, or contains, an evaluation."""
    inner = equation.params
    return inner.get("name") in (_SCORED, _VALUED) or any(_within(value) for value in inner.values())


def _within(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_within(part) for part in value)
    jaxpr = getattr(value, "jaxpr", value)
    return hasattr(jaxpr, "eqns") and any(_counts(equation) for equation in jaxpr.eqns)
