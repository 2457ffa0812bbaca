"""One tuning from its space of configs to its winner: ``TuningSession._tune`` is the whole flow."""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch

from tileops import counters, log, settings
from tileops.autotuner import ranks
from tileops.autotuner.database import (
    VALUES,
    Answer,
    Measured,
    Record,
    Row,
    TuningKey,
    TuningResult,
    words,
)
from tileops.autotuner.inputs import copies_of, inputs_of
from tileops.autotuner.measuring import CustomTimer, ReferenceFailedError
from tileops.autotuner.param import errors_of
from tileops.autotuner.progress import Bar
from tileops.autotuner.ranks import StoreLostError
from tileops.autotuner.search import SEARCHES
from tileops.autotuner.spaces import Config, canonical, describe
from tileops.autotuner.workshop import Workshop
from tileops.errors import ArgumentError, ArgumentTypeError, CompileMissError, TileopsError
from tileops.jit.compiling import Request
from tileops.jit.loadable import facts_of, is_movable
from tileops.op.registration import digest_of
from tileops.profiler import do_bench

if TYPE_CHECKING:
    from tileops.autotuner.measuring import Progress
    from tileops.autotuner.param import TuningOptions
    from tileops.autotuner.search import Work
    from tileops.ir.program import Program
    from tileops.jit.eager import Choice

    # Ranks some configs after measuring them with a share of the full effort.
    _Measure = Callable[[Sequence[str], float], list[str]]

# A tuning may take long; a waiter gives up after this long and tunes itself.
_LOCK_SECONDS = 3600.0


class TuningSession:
    """Finds the best config for a choice of ``jit``; configs are known by their canonical text.

    ``default`` names the config that runs without tuning, None where a parameter has no value.
    ``is_general``: the key is also that of other choices, of other sizes or arguments.
    """

    def __init__(
        self,
        choice: Choice,
        options: TuningOptions,
        configs: Mapping[str, Config],
        default: str | None,
        key: TuningKey,
        *,
        is_general: bool,
    ) -> None:
        self._choice = choice
        self._options = options
        self._configs = configs
        self._default = default
        self._key = key
        # What was measured for other sizes or arguments of the same program is good here: the
        # script of an eager program tells its texts apart whatever the sizes.
        self._ignores_digests = bool(choice.script) and is_general
        self._space_digest = hashlib.sha256("\n".join(sorted(configs)).encode()).hexdigest()
        self._check_identity = options.check_identity
        self._record = Record(key)
        self._programs: dict[str, Program] = {}
        self._digests: dict[str, str] = {}
        self._rows: dict[str, Row] = {}
        self._joint = ranks.joint_tuning(self._joint_name)

    def run(self) -> TuningResult:
        """The best config: as recorded, else measured now.

        TileopsError listing the reasons where no config is right. CompileMissError where a
        measurement would be needed in strict mode or under graph capture.
        """
        if (best := self._recorded()) is not None:
            return self._agreed(best)
        settled = self._settled()
        if settled is None or not settled.ranking:
            if self._options.tune == "never":
                return self._not_tuned()
            self._refuse_where_forbidden()
        if self._joint is not None:  # ranks take part together: none may wait for another's lock
            return self._tune(settled)
        with self._record.alone(_LOCK_SECONDS):
            return self._recorded() or self._tune(settled)

    def _tune(self, settled: Answer | None) -> TuningResult:
        """The eight steps from a space of configs to the best of them."""
        with counters.timed("tune"), ExitStack() as stack:
            space = self._configs  # 1. space: it came with the request
            names = self._prune(space)  # 2. prune: what is not a program, or is known
            leaders: Container[str] = ()
            ref_latency = None
            if settled is not None:
                leaders = self._take(settled)[:1]
            elif names:
                if not self._rows.keys() >= set(names):
                    counters.add("tunings")
                inputs = inputs_of(self._choice, self._programs[names[0]], self._options)
                ref_latency = self._time_reference(inputs)
                work = self._work(names, inputs, stack)

                def measure(chosen: Sequence[str], effort: float) -> list[str]:
                    work.effort = effort
                    compiled = work.compile(chosen)  # 3. compile: in other processes
                    work.check(chosen, compiled)  # 4. check: run each once, as it comes
                    found = work.measure()  # 5. measure: in rounds
                    return self._take(work.decide({name: found[name] for name in chosen}))

                budget = self._options.budget
                deadline = math.inf if budget is None else time.monotonic() + budget
                try:
                    if self._joint is None:
                        leaders = self._search(names, measure, deadline)
                    else:  # ranks do steps 3 to 5 together
                        known = {name: row.measured for name, row in self._rows.items()}
                        answer = ranks.together(
                            self._joint, names, work, known, seed=self._seed, deadline=deadline
                        )
                        leaders = self._take(answer)[:1]
                except ReferenceFailedError as error:
                    raise ArgumentError(f"op {self._key.op}: {error}") from error
            best = self._decide(leaders, ref_latency)  # 6. decide
            self._record.choose(best)  # 7. store
        return self._agreed(best)  # 8. share: with the other ranks

    # -- records and other ranks -----------------------------------------------------------------
    def _recorded(self) -> TuningResult | None:
        """The recorded winner, where its space, its program and its check are the same.

        One of a part of the space stands where the rest may not be measured now, or as briefly.
        """
        best = self._record.best()
        if best is None or best.space != self._space_digest or best.check != self._check_identity:
            return None
        is_brief = self._options.budget is not None or self._options.tune == "never"
        if not (best.complete or is_brief or self._forbidden()):
            return None
        config = self._configs.get(canonical(best.config))
        if config is None or not (self._ignores_digests or self._digest(config) == best.digest):
            return None
        return replace(best, config=config)

    def _digest(self, config: Config) -> str:
        """That of the program under a config; empty where it is not a program."""
        try:
            return digest_of(self._choice.trace(config), 64)
        except Exception:
            return ""

    def _joint_name(self) -> str:
        """The name by which ranks meet, where program, space and check are the same.

        The program is known by its digest under one config.
        """
        digest = "" if self._ignores_digests else self._digest(self._untuned)
        facts = [*self._key.parts, self._space_digest, self._check_identity, digest]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _settled(self) -> Answer | None:
        """The answer of the ranks, if there is one."""
        try:
            return None if self._joint is None else self._joint.answer()
        except StoreLostError:
            return None

    def _agreed(self, best: TuningResult) -> TuningResult:
        """The winner of all ranks: this one, unless another stands.

        Of the rows only the winner's goes with it: the others may be of other programs.
        """
        if self._joint is None:
            return best
        name, own = canonical(best.config), Measured("ok", best.latency)
        for row in self._record.rows():
            if canonical(row.config) == name and row.is_right and row.digest == best.digest:
                own = row.measured
        try:
            answer = self._joint.publish(Answer.of({name: own}))
        except StoreLostError:
            return best
        first = next(iter(answer.ranking), name)
        stands = preferred(first, self._default, answer.outcomes)
        config = self._configs.get(stands)
        if stands == name or config is None or not self._digest(config):
            return best
        return TuningResult(config, answer.outcomes[stands].latency)

    @property
    def _untuned(self) -> Config:
        """What runs where nothing is tuned."""
        return self._configs[self._default or next(iter(self._configs))]

    def _not_tuned(self) -> TuningResult:
        log.warn_once(
            f"tune.never.{self._key.op}",
            f"{self._key.op} is not tuned for these arguments and tune='never': it runs with "
            f"{describe(self._untuned)}",
        )
        return TuningResult(self._untuned)

    def _forbidden(self) -> str:
        """Why nothing may be measured now; empty if it may."""
        if settings.current().strict:
            return "strict mode allows no measurement"
        if self._choice.torch_device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return "a stream under capture allows no measurement"
        return ""

    def _refuse_where_forbidden(self) -> None:
        reason = self._forbidden()
        if not reason:
            return
        facts = self._key.facts
        key = " ".join(words(facts[name]) for name in VALUES if facts[name]) or "its arguments"
        raise CompileMissError(
            f"op {self._key.op} is not tuned for {key} on {facts['device']}, and {reason}; call it "
            "once before, give its configuration, or use tune='never'"
        )

    # -- before measuring ------------------------------------------------------------------------
    def _prune(self, space: Mapping[str, Config]) -> list[str]:
        """The configs to measure: those that are programs, and of which nothing is recorded.

        What is not a program is a result too, for ``tune show``.
        """
        refused: dict[str, Measured] = {}
        for name, config in space.items():
            try:
                program = self._choice.trace(config)
            except Exception as error:  # a program's own code may refuse a config as it likes
                is_own = isinstance(error, TileopsError)
                reason = str(error) if is_own else f"{type(error).__name__}: {error}"
                refused[name] = Measured("compile_error", reason=reason)
            else:
                self._programs[name] = program
                self._digests[name] = digest_of(program, 64)
        self._recall()
        self._keep(refused)
        if self._joint is not None:  # other ranks may know less: each takes part with all
            return list(self._programs)
        return [name for name in self._programs if name not in self._rows]

    def _recall(self) -> None:
        """Take the recorded measurements that hold for these programs."""
        known = {
            canonical(row.config): row
            for row in self._record.rows()
            if self._ignores_digests or row.digest == self._digests.get(canonical(row.config), "")
        }
        for name, row in known.items():
            # An error of unknown cause may not come again; the others say something of the config,
            # those that ran only under the same check.
            holds = row.status not in ("ok", "wrong_result") or row.check == self._check_identity
            if name in self._configs and row.status != "error" and holds:
                self._rows[name] = row

    def _time_reference(self, inputs: Sequence[Any]) -> float | None:
        reference = self._options.ref_prog
        if reference is None or not self._options.checks or self._options.timer is not None:
            return None
        own = copies_of(inputs)
        with errors_of(self._key.op, "ref_prog"):
            found = do_bench(
                lambda: reference(*own), warmup=5, rep=20, device=self._choice.torch_device,
                return_mode="median",
            )  # fmt: skip
        return float(found)

    # -- measuring -------------------------------------------------------------------------------
    def _work(self, names: Sequence[str], inputs: Sequence[Any], stack: ExitStack) -> Work:
        """What compiles and measures these configs, as long as the stack is open."""
        bar = stack.enter_context(Bar(self._key.op, len(names)))

        def progress(name: str, measured: Measured) -> None:
            bar.tell(name, measured.latency, describe(self._configs[name]))
            # What is final is kept at once: the rest may be interrupted.
            if measured.latency is None or self._options.timer is not None:
                self._keep({name: measured})

        if self._options.timer is None:
            return stack.enter_context(self._workshop(names, inputs, progress))
        candidates = {n: (self._configs[n], self._programs[n]) for n in names}
        build = replace(self._choice.build, target=self._choice.target)
        return CustomTimer(candidates, build, inputs, self._options, progress)

    def _workshop(
        self, names: Sequence[str], inputs: Sequence[Any], progress: Progress
    ) -> Workshop:
        choice = self._choice
        try:
            facts = facts_of(self._programs[names[0]], inputs)
        except (ArgumentError, ArgumentTypeError) as error:
            # It names the program by its content.
            raise type(error)(f"op {self._key.op}: {str(error).partition(': ')[2]}") from error
        request = Request(
            self._programs[names[0]], choice.target, facts, self._key.op, "tuning",
            choice.all_sizes, self._key.script,
        )  # fmt: skip
        programs = {name: self._programs[name] for name in names}
        movable = [is_movable(program) for program in programs.values()]  # each, for its errors
        return Workshop(
            {name: replace(request, program=program) for name, program in programs.items()},
            inputs,
            self._options,
            self._options.measuring_devices(choice.torch_device),
            isolated=all(movable),
            default=self._default,
            joint=self._joint,
            progress=progress,
        )

    def _search(self, names: Sequence[str], measure: _Measure, deadline: float) -> set[str]:
        """The configs that no other one beat in rounds; those that were known before are some."""
        order, leaders = list(names), set(self._rows)
        if self._seed is not None:
            random.Random(self._seed).shuffle(order)

        def measured(chosen: Sequence[str], effort: float) -> dict[str, float | None]:
            ranking = measure(chosen, effort)
            leaders.difference_update(ranking[1:])
            leaders.update(ranking[:1])
            return {name: self._rows[name].latency for name in chosen}

        may_win = SEARCHES[self._options.search].run(order, measured, deadline)
        leaders -= set(names) - may_win
        last = [name for name in names if name in leaders]
        if len(last) > 1 and self._options.timer is None:
            # With a budget each part of the space has its own best, and no round compared them.
            leaders.difference_update(measure(last, 1.0)[1:])
        return leaders

    @property
    def _seed(self) -> int | None:
        """What shuffles the configs, the same at each tuning of a key; None: they keep an order."""
        keeps_order = SEARCHES[self._options.search].keeps_order
        return None if keeps_order else int(self._key.hash[:8], 16)

    def _keep(self, found: Mapping[str, Measured]) -> None:
        """Take over outcomes, and record those that are new."""
        rows = {
            name: Row(
                **asdict(measured), config=self._configs[name],
                digest=self._digests.get(name, ""), check=self._check_identity,
            )
            for name, measured in found.items()
        }  # fmt: skip
        self._record.append([row for name, row in rows.items() if row != self._rows.get(name)])
        self._rows.update(rows)

    def _take(self, answer: Answer) -> list[str]:
        """Take over an answer as far as it is about programs here; its ranking."""
        self._keep({n: m for n, m in answer.outcomes.items() if n in self._programs})
        return [name for name in answer.ranking if name in self._programs]

    # -- deciding --------------------------------------------------------------------------------
    def _decide(self, leaders: Container[str], ref_latency: float | None) -> TuningResult:
        right = [n for n in self._configs if n in self._rows and self._rows[n].is_right]
        if not right:
            raise TileopsError(self._all_failed())
        # Times are compared where no rounds compared the configs.
        first = [name for name in right if name in leaders] or right
        name = min(first, key=lambda n: self._rows[n].latency or 0.0)
        name = preferred(name, self._default, self._rows)
        row = self._rows[name]
        return TuningResult(
            self._configs[name], row.latency, self._digests[name], self._space_digest,
            ref_latency, self._check_identity, row.noisy,
            complete=self._programs.keys() <= self._rows.keys(),
        )  # fmt: skip

    def _all_failed(self) -> str:
        """What to say where no config is right: the reason of each."""
        rows = [self._rows[name] for name in self._configs if name in self._rows]
        lines = [f"  {describe(row.config)}: {row.summary()}" for row in rows]
        return "\n".join([f"{self._key.op}: no config of {len(rows)} works:", *lines])


def preferred(name: str, default: str | None, rows: Mapping[str, Measured]) -> str:
    """``name``, or the default where noise is all that speaks for ``name``."""
    if default is None or name == default or default not in rows:
        return name
    mine, other = rows[name], rows[default]
    if not other.is_right or mine.sure or not (mine.noisy or other.noisy):
        return name
    is_apart = mine.high is not None and other.low is not None and mine.high < other.low
    return name if is_apart else default
