"""One tuning from its space of configs to its winner: ``TuningSession.run`` is the whole flow."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from tileops import counters, log, settings
from tileops.autotuner import ranks
from tileops.autotuner.database import VALUES, Measured, Record, Row, TuningKey, TuningResult, words
from tileops.autotuner.inputs import copies_of, inputs_of
from tileops.autotuner.measuring import CustomTimer, ReferenceFailedError
from tileops.autotuner.param import errors_of
from tileops.autotuner.progress import Bar
from tileops.autotuner.ranks import Answer, StoreLostError
from tileops.autotuner.search import SEARCHES, Deadline
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
    from tileops.autotuner.ranks import Share
    from tileops.ir.program import Program
    from tileops.jit.eager import Choice

# A tuning may take long; a waiter gives up after this long and tunes itself.
_LOCK_SECONDS = 3600.0


@dataclass(frozen=True)
class TuningRequest:
    """A choice of ``jit`` with the configs to choose from, by their canonical text.

    ``default`` names the config that runs without tuning, None where a parameter has no value.
    ``is_general``: the key is also that of other choices, of other sizes or arguments.
    """

    choice: Choice
    options: TuningOptions
    configs: Mapping[str, Config]
    default: str | None
    key: TuningKey
    is_general: bool

    @property
    def untuned(self) -> str:
        """The name of what runs where nothing is tuned."""
        return self.default if self.default is not None else next(iter(self.configs))

    @property
    def space_digest(self) -> str:
        """Tells one set of configs from another, whatever its order."""
        return hashlib.sha256("\n".join(sorted(self.configs)).encode()).hexdigest()


class TuningSession:
    """Finds the best config for one request; configs are known by their names in it."""

    def __init__(self, request: TuningRequest) -> None:
        self._request = request
        self._choice = request.choice
        self.options = request.options
        self.configs = request.configs
        self.key = request.key
        # What was measured for other sizes or arguments of the same program is good here: the
        # script of an eager program tells its texts apart whatever the sizes.
        self._ignores_digests = bool(request.choice.script) and request.is_general
        self._check = self.options.check_identity
        self._record = Record(self.key)
        self._programs: dict[str, Program] = {}
        self._digests: dict[str, str] = {}
        self._rows: dict[str, Row] = {}
        self._ranking: list[str] = []
        self._beaten: set[str] = set()  # by another config in rounds that both were in
        self._share = self._own_share()

    def run(self) -> TuningResult:
        """The best config: as recorded, else measured now.

        TileopsError listing the reasons where no config is right. CompileMissError where a
        measurement would be needed in strict mode or under graph capture.
        """
        found = self._recorded()
        if found is not None:
            return found if self._share is None else self._agree(self._share, found)
        settled = self._settled()
        if settled is None or not settled.ranking:
            if self.options.tune == "never":
                return self._untuned()
            self._refuse_where_forbidden()
        if self._share is not None:  # ranks take part together: none may wait for another's lock
            return self._tune()
        with self._record.alone(_LOCK_SECONDS):
            return self._recorded() or self._tune()

    def _tune(self) -> TuningResult:
        """The flow: from ``configs``, the space, to the best of them."""
        with counters.timed("tune"):
            ref_latency = None
            self._prune()  # what is not a program
            answer = self._settled()  # other ranks may have measured
            if answer is not None:
                self._take(answer)
            else:
                self._recall()  # what was measured before
                missing = [name for name in self._programs if name not in self._rows]
                if missing:
                    counters.add("tunings")
                # Of several ranks, which may know less, each takes part with all.
                names = missing if self._share is None else list(self._programs)
                if names:
                    program = next(iter(self._programs.values()))
                    inputs = inputs_of(self._choice, program, self.options)
                    ref_latency = self._time_reference(inputs)
                    try:
                        self._measure(names, inputs)  # compile, check, measure; with other ranks
                    except ReferenceFailedError as error:
                        raise ArgumentError(f"op {self.key.op}: {error}") from error
            best = self._decide(ref_latency)
            self._record.choose(best)  # store
            return best

    # -- records and other ranks -----------------------------------------------------------------
    def _recorded(self) -> TuningResult | None:
        """The recorded winner, where its space, its program and its check are the same."""
        best = self._record.best()
        if best is None or best.space != self._request.space_digest or best.check != self._check:
            return None
        config = self.configs.get(canonical(best.config))
        if config is None or not (self._ignores_digests or self._digest(config) == best.digest):
            return None
        return replace(best, config=config)

    def _digest(self, config: Config) -> str:
        """That of the program under a config; empty where it is not a program."""
        try:
            return digest_of(self._choice.trace(config), 64)
        except Exception:
            return ""

    def _own_share(self) -> Share | None:
        """This process's share of a tuning by several ranks.

        Ranks meet where the program, its digest under one config, the space and the check are the
        same: the others tune apart.
        """
        if ranks.world() < 2:
            return None
        config = self.configs[self._request.untuned]
        digest = "" if self._ignores_digests else self._digest(config)
        facts = [*self.key.parts, self._request.space_digest, self._check, digest]
        return ranks.share_of(hashlib.sha256(json.dumps(facts).encode()).hexdigest())

    def _settled(self) -> Answer | None:
        """The answer of the ranks, if there is one."""
        try:
            return None if self._share is None else self._share.answer()
        except StoreLostError:
            return None

    def _agree(self, share: Share, found: TuningResult) -> TuningResult:
        """Give the other ranks a recorded winner, and take theirs where that stands.

        Of the rows only the winner's goes with it: the others may be of other programs.
        """
        name, own = canonical(found.config), Measured("ok", found.latency)
        for row in self._record.rows():
            if canonical(row.config) == name and row.is_right and row.digest == found.digest:
                own = row.measured
        try:
            answer = share.publish(Answer.of({name: own}))
        except StoreLostError:
            return found
        stands = answer.ranking[0] if answer.ranking else name
        if stands == name or stands not in self.configs:
            return found
        return TuningResult(self.configs[stands], answer.outcomes[stands].latency)

    def _untuned(self) -> TuningResult:
        config = self.configs[self._request.untuned]
        log.warn_once(
            f"tune.never.{self.key.op}",
            f"{self.key.op} is not tuned for these arguments and tune='never': it runs with "
            f"{describe(config)}",
        )
        return TuningResult(config)

    def _refuse_where_forbidden(self) -> None:
        device = self._choice.torch_device
        if settings.current().strict:
            reason = "strict mode allows no measurement"
        elif device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            reason = "a stream under capture allows no measurement"
        else:
            return
        facts = self.key.facts
        key = " ".join(words(facts[name]) for name in VALUES if facts[name]) or "its arguments"
        raise CompileMissError(
            f"op {self.key.op} is not tuned for {key} on {facts['device']}, and {reason}; call it "
            "once before, give its configuration, or use tune='never'"
        )

    # -- before measuring ------------------------------------------------------------------------
    def _prune(self) -> None:
        """Trace each config; one that is not a program is a result, for ``tune show``."""
        for name, config in self.configs.items():
            try:
                program = self._choice.trace(config)
            except Exception as error:  # a program's own code may refuse a config as it likes
                is_own = isinstance(error, TileopsError)
                reason = str(error) if is_own else f"{type(error).__name__}: {error}"
                self._rows[name] = Row("compile_error", config=config, reason=reason)
            else:
                self._programs[name] = program
                self._digests[name] = digest_of(program, 64)
        if self._rows:
            known = {(canonical(row.config), row.reason) for row in self._record.rows()}
            fresh = [row for n, row in self._rows.items() if (n, row.reason) not in known]
            self._record.append(fresh)

    def _recall(self) -> None:
        """Take the recorded measurements that hold for these programs."""
        known = {
            (canonical(row.config), "" if self._ignores_digests else row.digest): row
            for row in self._record.rows()
        }
        for name in self._programs:
            row = known.get((name, "" if self._ignores_digests else self._digests[name]))
            # An error of unknown cause may not come again; the others say something of the config,
            # those that ran only under the same check.
            if row is None or row.status == "error":
                continue
            if row.status not in ("ok", "wrong_result") or row.check == self._check:
                self._rows[name] = row

    def _time_reference(self, inputs: Sequence[Any]) -> float | None:
        reference = self.options.ref_prog
        if reference is None or not self.options.checks or self.options.timer is not None:
            return None
        own = copies_of(inputs)
        with errors_of(self.key.op, "ref_prog"):
            found = do_bench(
                lambda: reference(*own), warmup=5, rep=20, device=self._choice.torch_device,
                return_mode="median",
            )  # fmt: skip
        return float(found)

    # -- measuring -------------------------------------------------------------------------------
    def _measure(self, names: Sequence[str], inputs: Sequence[Any]) -> None:
        with ExitStack() as stack:
            bar = stack.enter_context(Bar(self.key.op, len(names)))

            def progress(name: str, measured: Measured) -> None:
                bar.tell(name, measured.latency, describe(self.configs[name]))
                # What is final is kept at once: the rest may be interrupted.
                if measured.latency is None or self.options.timer is not None:
                    self._keep({name: measured})

            work: CustomTimer | Workshop
            if self.options.timer is not None:
                candidates = {n: (self.configs[n], self._programs[n]) for n in names}
                build = replace(self._choice.build, target=self._choice.target)
                work = CustomTimer(candidates, build, inputs, self.options, progress)
            else:
                work = stack.enter_context(self._workshop(names, inputs, progress))
            if self._share is None:
                self._search(names, work)
                return
            # Ranks need no halving: what they cannot measure within the budget is left out.
            answer = ranks.together(
                self._share,
                names,
                work,
                {name: row.measured for name, row in self._rows.items()},
                seed=None if SEARCHES[self.options.search].keeps_order else self._seed,
                chunk=work.chunk,
                is_over=Deadline(self.options.budget).is_over,
            )
            self._take(answer)

    def _workshop(
        self, names: Sequence[str], inputs: Sequence[Any], progress: Progress
    ) -> Workshop:
        choice = self._choice
        try:
            facts = facts_of(self._programs[names[0]], inputs)
        except (ArgumentError, ArgumentTypeError) as error:
            # It names the program by its content.
            raise type(error)(f"op {self.key.op}: {str(error).partition(': ')[2]}") from error
        request = Request(
            self._programs[names[0]], choice.target, facts, self.key.op, "tuning",
            choice.all_sizes, self.key.script,
        )  # fmt: skip
        programs = {name: self._programs[name] for name in names}
        movable = [is_movable(program) for program in programs.values()]  # each, for its errors
        return Workshop(
            {name: replace(request, program=program) for name, program in programs.items()},
            inputs,
            self.options,
            self.options.measuring_devices(choice.torch_device),
            isolated=all(movable),
            default=self._request.default,
            share=self._share,
            progress=progress,
        )

    def _search(self, names: Sequence[str], work: CustomTimer | Workshop) -> None:
        def measure(chosen: Sequence[str], effort: float) -> dict[str, float | None]:
            work.begin(effort)
            self._take(ranks.alone(chosen, work))
            return {name: self._rows[name].latency for name in chosen}

        search, order = SEARCHES[self.options.search], list(names)
        if not search.keeps_order:
            random.Random(self._seed).shuffle(order)
        may_win = search.run(order, measure, Deadline(self.options.budget))
        self._beaten |= set(names) - may_win

    @property
    def _seed(self) -> int:
        return int(self.key.hash[:8], 16)  # the same at each tuning of a key

    def _keep(self, found: Mapping[str, Measured]) -> None:
        """Take over outcomes, and record those that are new."""
        fresh: list[Row] = []
        for name, measured in found.items():
            if name in self._programs:
                row = Row(
                    **asdict(measured), config=self.configs[name], digest=self._digests[name],
                    check=self._check,
                )  # fmt: skip
                known = self._rows.get(name)
                if known is None or replace(row, time=known.time) != known:
                    fresh.append(row)
                self._rows[name] = row
        self._record.append(fresh)

    def _take(self, answer: Answer) -> None:
        """Take over an answer."""
        self._keep(answer.outcomes)
        self._ranking = [name for name in answer.ranking if name in self._programs]
        self._beaten.update(self._ranking[1:])
        self._beaten.difference_update(self._ranking[:1])

    # -- deciding --------------------------------------------------------------------------------
    def _decide(self, ref_latency: float | None) -> TuningResult:
        right = [n for n in self.configs if n in self._rows and self._rows[n].is_right]
        if not right:
            raise TileopsError(self._all_failed())
        # Times are compared where no rounds compared the configs. The ranking of the ranks is what
        # all of them take.
        if self._ranking and self._share is not None:
            name = self._ranking[0]
        else:
            unbeaten = [name for name in right if name not in self._beaten]
            name = min(unbeaten or right, key=lambda n: self._rows[n].latency or 0.0)
        name = preferred(name, self._request.default, self._rows)
        row = self._rows[name]
        return TuningResult(
            self.configs[name], row.latency, self._digests[name], self._request.space_digest,
            ref_latency, self._check, row.noisy,
        )  # fmt: skip

    def _all_failed(self) -> str:
        """What to say where no config is right: the reason of each."""
        rows = [self._rows[name] for name in self.configs if name in self._rows]
        lines = [f"  {describe(row.config)}: {row.summary()}" for row in rows]
        return "\n".join([f"{self.key.op}: no config of {len(rows)} works:", *lines])


def preferred(name: str, default: str | None, rows: Mapping[str, Measured]) -> str:
    """``name``, or the default where noise is all that speaks for ``name``."""
    if default is None or name == default or default not in rows:
        return name
    mine, other = rows[name], rows[default]
    if not other.is_right or mine.sure or not (mine.noisy or other.noisy):
        return name
    is_apart = mine.high is not None and other.low is not None and mine.high < other.low
    return name if is_apart else default
