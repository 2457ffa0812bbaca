"""Every error class that a user of tileops can see."""

from __future__ import annotations

from tileops.location import Location, here


class TileopsError(RuntimeError):
    """Base of all errors raised by tileops."""


class ArgumentError(TileopsError, ValueError):
    """A value, shape, stride, alignment or device that an operation does not accept."""


class ArgumentTypeError(TileopsError, TypeError):
    """An argument of the wrong Python type or dtype."""


def is_of_torchs_parser(error: RuntimeError) -> bool:
    """True for the plain RuntimeError with which torch refuses a Python value of another type."""
    return type(error) is RuntimeError and ") Expected a value of type " in str(error)


class NotDifferentiableError(TileopsError):
    """A derivative is asked for of an op without a rule for it: a backward pass, or a tangent."""


class RedefinedOpError(TileopsError):
    """An op that a later definition has replaced was called."""


class CompileMissError(TileopsError):
    """A compile was needed where none is allowed: strict mode, or a stream under capture."""


class ToolchainError(TileopsError):
    """A compiler or library that the call needs is missing or failed; says what to install."""


class CacheError(TileopsError):
    """The cache was asked for something that it cannot do (never raised from a user's op call)."""


class DriverError(TileopsError):
    """The CUDA driver reported an error; carries the driver's own words."""


class InternalError(TileopsError):
    """A fault of tileops itself: generated code or IR that breaks its own rules."""


class ProgramError(TileopsError):
    """A program that breaks a rule of the tile language, with the place where it does.

    ``message`` is one sentence; ``expected`` and ``found`` are shown on lines of their own when
    given. ``location`` is by default the statement being traced, if any.
    """

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        expected: str | None = None,
        found: str | None = None,
    ) -> None:
        self.message = message
        self.location = location or here()
        self.expected = expected
        self.found = found
        super().__init__(self._render())

    def _render(self) -> str:
        lines = [self.message]
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.found is not None:
            lines.append(f"  found:    {self.found}")
        if self.location is not None:
            lines.append("  at " + self.location.render().replace("\n", "\n  "))
        return "\n".join(lines)

    def at(self, location: Location | None) -> ProgramError:
        """Return this error with ``location`` filled in if it had none."""
        if self.location is not None or location is None:
            return self
        return type(self)(self.message, location=location, expected=self.expected, found=self.found)


class ProgramSyntaxError(ProgramError, SyntaxError):
    """A Python form that the tile language does not have."""

    # SyntaxError's own __str__ prints msg; keep the rendered text.
    def __str__(self) -> str:
        return self._render()


class ProgramTypeError(ProgramError, TypeError):
    """A wrong dtype or kind of operand in a program."""


class ProgramValueError(ProgramError, ValueError):
    """A wrong value, shape or extent in a program."""


class ProgramIndexError(ProgramError, IndexError):
    """A wrong number of indices, or a constant index outside its buffer."""


class ProgramAttributeError(ProgramError, AttributeError):
    """A name that the tile language, or a value of it, does not have."""


class NoBuilderError(ProgramError):
    """A tile-language construct was used outside a program that is being traced."""


class UnsupportedConstructError(ProgramError, NotImplementedError):
    """A construct of the language that tileops does not have (yet), for this target or at all."""


class UnsupportedOnTargetError(ProgramError, NotImplementedError):
    """A construct or dtype that the target's hardware lacks and that cannot be done exactly."""


class SharedMemoryError(ProgramError):
    """A program that needs more shared memory than the target has, naming its buffers."""
