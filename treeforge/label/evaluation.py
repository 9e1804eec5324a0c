"""Rigorous numeric values of expressions, as complex balls. Disjoint balls prove that two values differ."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from treeforge.label.balls import FUNCTIONS, Ball, flint, guard, modulo, precision, root, stand_in
from treeforge.label.exact import MAX_TERMS, InexactError, rational
from treeforge.label.syntax import (
    EULER,
    INFINITY,
    Add,
    Big,
    Call,
    Const,
    Degree,
    Div,
    Mul,
    Neg,
    Node,
    Num,
    Percent,
    Pow,
    Sym,
)
from treeforge.label.tokens import LimitError
from treeforge.label.walk import children


def ball(
    node: Node,
    values: Mapping[str, tuple[int, int]],
    bits: int,
    *,
    log_base: int = 0,
    at: Mapping[str, Ball] | None = None,
    strict: bool = False,
) -> Ball:
    """The value of `node` at the rational `values`, as a complex ball computed with `bits` bits.

    `at` gives variables values that are real balls; `log_base` is the base of a `log` without one, 0 the natural one.
    `strict` leaves out what stands for a sum or integral that cannot be worked out.
    Raises `InexactError` for what is no number, `LimitError` for what is too large.
    """
    with precision(bits):
        evaluation = _Evaluation(values, log_base, MAX_TERMS, strict)
        if at:
            evaluation.balls = {name: evaluation.acb(x) for name, x in at.items()}
        return evaluation.value(node)


class _Evaluation:
    """One evaluation at one point and one precision."""

    __slots__ = ("acb", "balls", "fmpq", "log_base", "strict", "terms", "values")

    def __init__(self, values: Mapping[str, tuple[int, int]], log_base: int, terms: int, strict: bool) -> None:
        self.values, self.log_base, self.terms, self.strict = values, log_base, terms, strict
        self.acb, self.fmpq = flint().acb, flint().fmpq
        self.balls: dict[str, Ball] = {}

    def value(self, node: Node) -> Ball:
        """The ball of a node."""
        if isinstance(node, Num):
            return self.acb(node.p) if node.q == 1 else self.acb(self.fmpq(node.p, node.q))
        if isinstance(node, Sym):
            if node.name in self.balls:
                return self.balls[node.name]
            point = self.values.get(node.name)
            if point is None:
                raise InexactError
            return self.acb(self.fmpq(*point))
        if isinstance(node, Mul):
            result = self.value(node.factors[0])
            for factor in node.factors[1:]:
                result = result * self.value(factor)
            return result
        if isinstance(node, Add):
            result = self.value(node.terms[0])
            for term in node.terms[1:]:
                result = result + self.value(term)
            return result
        if isinstance(node, Neg):
            return -self.value(node.x)
        if isinstance(node, Div):
            return self.value(node.a) / self.value(node.b)
        if isinstance(node, Pow):
            return self._power(node)
        if isinstance(node, Const):
            return self._constant(node.name)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Degree):
            return self.value(node.x) * self.acb.pi() / 180
        if isinstance(node, Percent):
            return self.value(node.x) / 100
        if isinstance(node, Big):
            return self._big(node)
        raise InexactError

    def _constant(self, name: str) -> Ball:
        if name == "pi":
            return self.acb.pi()
        if name == "e":
            return self.acb(1).exp()
        if name == "i":
            return self.acb(0, 1)
        raise InexactError

    def _power(self, node: Pow) -> Ball:
        exponent = node.exponent
        base = self.value(node.base)
        if isinstance(exponent, Num) and exponent.q == 1 and abs(exponent.p) < 1000:
            return base**exponent.p
        power = self.value(exponent)
        if node.base == EULER:
            guard(power)
            return power.exp()
        if base.is_zero():
            if power.real > 0:
                return self.acb(0)
            raise InexactError
        guard(power * base.log())
        if isinstance(exponent, Num) and exponent.q == 1:
            return base**exponent.p
        if base.imag.is_zero() and base.real < 0 and (share := _odd_root(exponent)) is not None:
            real = (-base) ** self.acb(self.fmpq(*share))
            return -real if share[0] % 2 else real
        return base**power

    def _call(self, node: Call) -> Ball:
        name = node.name
        if name == "log":
            x = self.value(node.args[0]).log()
            if len(node.args) > 1:
                return x / self.value(node.args[1]).log()
            return x / self.acb(self.log_base).log() if self.log_base else x
        if name in ("root", "cbrt"):
            x, index = self.value(node.args[0]), node.args[1] if name == "root" else Num(3)
            if isinstance(index, Num) and index.q == 1 and 0 < abs(index.p) < 1000:
                return root(x, index.p)
            return x ** (1 / self.value(index))
        args = [self.value(arg) for arg in node.args]
        function = FUNCTIONS.get(name)
        if function is not None:
            if len(args) != 1:
                raise InexactError
            if name in ("exp", "factorial", "sinh", "cosh"):
                guard(args[0])
            return function(args[0])
        if name in ("max", "min"):
            result = args[0]
            for x in args[1:]:
                result = result.real_max(x) if name == "max" else result.real_min(x)
            return result
        if name == "binom" and len(args) == 2:
            n, k = args
            guard(n)
            guard(k)
            return (n + 1).gamma() * (k + 1).rgamma() * (n - k + 1).rgamma()
        if name in ("gcd", "lcm", "det"):
            raise InexactError
        if name == "mod" and len(args) == 2:
            return modulo(args[0], args[1])
        return stand_in(name, args)

    def _big(self, node: Big) -> Ball:
        """A sum or product written out where its bounds are integers close by, else a function of bounds and body."""
        if node.op == "lim":
            return self._limit(node)
        low = self.value(node.low) if node.low is not None else self.acb(0)
        high = self.value(node.high) if node.high is not None and node.high != INFINITY else None
        if node.op != "int" and high is not None and node.var:
            first, last = low.unique_fmpz(), high.unique_fmpz()
            if first is not None and last is not None and low.is_exact() and high.is_exact():
                count = max(int(last - first) + 1, 1)
                if count > self.terms:
                    raise LimitError(f"a sum of more than {MAX_TERMS} terms")
                result = self.acb(0 if node.op == "sum" else 1)
                for index in range(int(first), int(last) + 1):
                    term = self._at(node, (index, 1), self.terms // count)
                    result = result + term if node.op == "sum" else result * term
                return result
        if node.op == "int" and node.low is not None and high is not None and analytic(node.body):
            try:
                return self.acb.integral(
                    lambda x, _: self._with(node.var, x).value(node.body), low, high, eval_limit=4000
                )
            except SystemError:  # what flint makes of an exception in the integrand: a limit was hit there
                raise InexactError from None
        if self.strict:
            raise InexactError
        samples = [self._at(node, point, self.terms) for point in ((1789, 997), (2311, 499))]
        return stand_in(node.op, [low, *([] if high is None else [high]), *samples])

    def _limit(self, node: Big) -> Ball:
        """The value at the point, where the expression is defined there."""
        if node.low is None or node.low in (INFINITY, Neg(INFINITY)):
            raise InexactError
        result = self._with(node.var, self.value(node.low)).value(node.body)
        if not result.is_finite():
            raise InexactError
        return result

    def _with(self, var: str, x: Ball) -> _Evaluation:
        """The same evaluation with one more variable, at a ball."""
        inner = _Evaluation(self.values, self.log_base, self.terms, self.strict)
        inner.balls = {**self.balls, var: x}
        return inner

    def _at(self, node: Big, point: tuple[int, int], terms: int) -> Ball:
        """The body of a sum or integral at one value of its variable."""
        inner = _Evaluation({**self.values, node.var: point}, self.log_base, terms, self.strict)
        inner.balls = {name: x for name, x in self.balls.items() if name != node.var}
        return inner.value(node.body)


def analytic(node: Node) -> bool:
    """Whether an integrand has no branch cuts: sums, products, quotients, whole powers and entire functions."""
    if isinstance(node, Pow):
        whole = isinstance(node.exponent, Num) and node.exponent.q == 1
        return analytic(node.base) if whole else node.base == EULER and analytic(node.exponent)
    if isinstance(node, Call):
        return node.name in ("sin", "cos", "exp", "sinh", "cosh") and analytic(node.args[0])
    if isinstance(node, Add | Mul | Neg | Div):
        return all(analytic(child) for child in children(node))
    return isinstance(node, Num | Sym | Const)


def _odd_root(exponent: Node) -> tuple[int, int] | None:
    """A constant exponent n/m in lowest terms with an odd m > 1: the root is real then, as in school."""
    if not isinstance(exponent, Num | Div | Neg):
        return None
    try:
        n, m = rational(exponent, {})
    except (InexactError, ZeroDivisionError):
        return None
    m //= (common := gcd(n, m))
    return (n // common, m) if m % 2 and m > 1 else None
