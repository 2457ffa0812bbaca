"""Owns what a rewrite before code generation leaves: a program, and whence its statements stem."""

from __future__ import annotations

from dataclasses import dataclass

from tileops.ir.program import Program
from tileops.ir.stmt import Body
from tileops.ir.walk import sub_bodies, walk
from tileops.location import Location


@dataclass(frozen=True)
class Rewritten:
    """The program after a pass, and for each of its statements the number of the one it stems from.

    Without ``origins`` the statements are those that the pass was given.
    """

    program: Program
    origins: tuple[int, ...] | None = None

    @classmethod
    def of(cls, before: Program, after: Program) -> Rewritten:
        """``after``, whose statements stem from the first ones of ``before`` at the same places."""
        first: dict[Location, int] = {}
        for number, stmt in enumerate(walk(before.launches)):
            if stmt.loc is not None:
                first.setdefault(stmt.loc, number)
        out: list[int] = []

        def visit(body: Body, enclosing: int) -> None:
            for stmt in body:
                number = enclosing if stmt.loc is None else first.get(stmt.loc, enclosing)
                out.append(number)
                for inner in sub_bodies(stmt):
                    visit(inner, number)

        visit(after.launches, 0)
        return cls(after, tuple(out))

    def original(self, statements: dict[int, int]) -> dict[int, int]:
        """A map to statement numbers in terms of the program before the pass."""
        if self.origins is None:
            return statements
        return {line: self.origins[number] for line, number in statements.items()}
