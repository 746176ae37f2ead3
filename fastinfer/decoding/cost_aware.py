"""A gamma policy that knows what drafting costs, and leaves it where it can't pay.

Renewal-reward rule: with lambda the best rate known so far (tokens per ms), draft one more token as
long as the chance that it is reached and accepted exceeds what it costs:

    prod(a_i) > lambda * (draft step + extra verification)

This is SpecDec++'s threshold (arXiv:2405.19715) with the threshold computed instead of tuned. The
a_i come from the draft's confidence, calibrated while running; the costs are measured while
running. The verification's share is in the price because on a CPU a longer block costs more.

Deviation from the idealised rule: the first round is a plain step (it measures what drafting has to
beat), the next drafts two tokens and two more draft `initial` tokens each, since a first round in a
cold process is slow. Where nothing pays, plain steps follow, with a probe of one token after 8, 16,
32, ... of them, since the text may turn easier. Where a drafted token takes so long that even one
that is nearly always accepted wouldn't pay, one more is drafted at once, to be sure; then nothing
more is learnt, and probes become rare: only the costs can change, as they do where the cache grows,
and a probe also reads all that the draft has missed. A draft that is expected to be so dear, as the
target itself over a shorter cache is, begins with those two tokens, when three plain steps have
been timed, and one lucky time does not speak for it. Where drafting gains little, plain steps are
timed again after 4, 8, 16, ... drafted rounds: the first ones may have come in a slow moment, and a
draft that loses a tenth would seem to gain for good.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastinfer.config import GammaConfig
from fastinfer.decoding.protocols import Outcome

NUM_BINS = 10
PRIOR_ACCEPTANCE = 0.7
PRIOR_WEIGHT = 4.0
MEMORY = 0.98  # per round: acceptance counts of 50 rounds ago weigh a third
RATE_MEMORY = 0.95
TIME_SHARE = 0.2  # of a new time in the running mean
SPIKE = 3.0  # a time above this multiple of the mean is the machine's doing
LINE_MEMORY = 0.95
OUTLIER = 2.0  # the same, of the line through the verification times
SLOPE_PRIOR = 4.0  # squared tokens: block sizes that hardly differ say little of the slope
LEARNING_ROUNDS = 3
FIRST_DRAFT = 2
HOPE = 0.9  # acceptance that a draft may yet turn out to have
FIRST_PROBE = 8
LAST_PROBE = 64
RARE_PROBE = 256
WORTH = 1.05  # the least gain to draft for: times vary by more
DOUBTFUL = 1.3  # a gain up to which a time that has changed could explain it
FIRST_LOOK = 4


class Calibration:
    """Acceptance of a drafted token, given the draft's confidence in it: counts in bins."""

    def __init__(self) -> None:
        # One bin more for a confidence of 1: copies of the text have it, a draft model hardly ever.
        self._tested = [0.0] * (NUM_BINS + 1)
        self._accepted = [0.0] * (NUM_BINS + 1)
        # A guess to start from, which fades like everything that was seen.
        self._all_tested = PRIOR_WEIGHT
        self._all_accepted = PRIOR_WEIGHT * PRIOR_ACCEPTANCE
        self._estimates: list[float] = []  # by bin, made when first asked for after a change

    def add(self, confidences: Sequence[float], num_accepted: int) -> None:
        """One verified block: its tokens up to and with the first refused one were tested."""
        self._tested = [MEMORY * count for count in self._tested]
        self._accepted = [MEMORY * count for count in self._accepted]
        tested = confidences[: num_accepted + 1]
        self._all_tested = MEMORY * self._all_tested + len(tested)
        self._all_accepted = MEMORY * self._all_accepted + num_accepted
        for i, confidence in enumerate(tested):
            place = int(confidence * NUM_BINS)
            self._tested[place] += 1.0
            self._accepted[place] += float(i < num_accepted)
        self._estimates = []

    def mean(self) -> float:
        """Acceptance whatever the confidence."""
        return self._all_accepted / self._all_tested

    def chance(self, confidences: Sequence[float]) -> float:
        """That tokens of these confidences are all accepted; the mean counts where little was
        seen."""
        if not self._estimates:
            lean = self.mean() * PRIOR_WEIGHT
            self._estimates = [
                (accepted + lean) / (tested + PRIOR_WEIGHT)
                for accepted, tested in zip(self._accepted, self._tested, strict=True)
            ]
        chance, estimates = 1.0, self._estimates
        for confidence in confidences:
            chance *= estimates[int(confidence * NUM_BINS)]
        return chance


class VerifyTimes:
    """v(n): ms to verify n drafted tokens; a plain step's by itself, all others on one line.

    Not a mean for each size: what a further token costs is the difference of two of them, a few
    percent of a step, and no machine is that quiet. Simulated on bundled models' acceptance with
    times that vary by a tenth, such means drafted a single token in 445 of 1,590 rounds, where a
    line did in 66.
    """

    def __init__(self) -> None:
        self._plain = RunningTime()
        # Fading sums over drafted rounds: 1, n, ms, n * n, n * ms.
        self._count = self._n = self._ms = self._nn = self._nms = 0.0
        # A plain step's time, where the line starts and how it rises: made when first asked for.
        self._made: tuple[float, float, float] | None = None

    def add(self, num_drafted: int, ms: float) -> None:
        """One measurement."""
        if num_drafted == 0:
            self._made = None
            self._plain.add(ms)
            return
        if self._count >= LEARNING_ROUNDS - 1:
            _, start, slope = self._fitted()
            ms = min(ms, OUTLIER * (start + slope * num_drafted))
        self._made = None
        self._count = 1.0 + LINE_MEMORY * self._count
        self._n = num_drafted + LINE_MEMORY * self._n
        self._ms = ms + LINE_MEMORY * self._ms
        self._nn = num_drafted**2 + LINE_MEMORY * self._nn
        self._nms = num_drafted * ms + LINE_MEMORY * self._nms

    @property
    def plain_known(self) -> bool:
        """Whether a plain step has been measured."""
        return self._plain.ms > 0.0

    def at(self, num_drafted: int) -> float:
        """The time for a block of this size, never less than a plain step's.

        Of that one there may be a single measurement, the first of a cold process: it takes no
        longer than blocks do on average.
        """
        plain, start, slope = self._fitted()
        return plain if num_drafted == 0 else max(plain, start + slope * num_drafted)

    def slope(self) -> float:
        """ms that one more token adds: least squares, leaning on none at all, never negative."""
        return self._fitted()[2]

    def _fitted(self) -> tuple[float, float, float]:
        """A plain step's time, and the line; that is nothing before the first drafted round."""
        if self._made is None:
            plain = self._plain.ms
            start = slope = 0.0
            if self._count:
                level = self._ms / self._count
                plain = min(plain, level) if self.plain_known else level
                spread = self._count * self._nn - self._n**2 + SLOPE_PRIOR * self._count
                slope = max(0.0, (self._count * self._nms - self._n * self._ms) / spread)
                start = (self._ms - slope * self._n) / self._count
            self._made = plain, start, slope
        return self._made


class RunningTime:
    """A running mean that clips spikes.

    It starts from the least of the first few times, or from the mean of what is expected and them.
    """

    def __init__(self, expected_ms: float = 0.0) -> None:
        self.ms = expected_ms
        self._expected = expected_ms > 0.0
        self._count = int(self._expected)

    def add(self, ms: float) -> None:
        """Take in one time."""
        self._count += 1
        if self._count > LEARNING_ROUNDS:
            self.ms += TIME_SHARE * (min(ms, SPIKE * self.ms) - self.ms)
        elif self._expected:
            self.ms += (ms - self.ms) / self._count
        else:
            self.ms = ms if self._count == 1 else min(self.ms, ms)


class CostAwareGamma:
    """The policy. `gamma` is 0 in rounds that are better plain."""

    per_token = True

    def __init__(self, config: GammaConfig, draft_cost: float = 0.0) -> None:
        """`draft_cost`: what to expect of a drafted token before one was timed, in plain steps."""
        self.draft_cost = draft_cost
        self._expected_dear = draft_cost >= HOPE
        self.minimum = config.minimum or 0
        self.maximum = config.maximum
        self.initial = config.initial
        self.acceptance = Calibration()
        self.verify = VerifyTimes()
        self._draft_time: RunningTime | None = None  # per drafted token, once one was timed
        self._drafted_rounds = 0
        # As of the last drafted round: a plain step that was slow by chance is no reason to draft,
        # and to read all that the draft has missed for it.
        self._hopeful = not self._expected_dear
        self._tokens, self._ms = 0.0, 0.0  # of drafted rounds, fading
        self._least: dict[int, float] = {}  # by tokens drafted, see `_least_chance`
        self._plain_rounds = 0  # since the last drafted one
        self._since_plain = 0  # drafted rounds since the last plain one
        self._look_after = FIRST_LOOK
        # A first time after the prompt is a slow one: what is expected to be dear waits for three.
        self._probe_after = LEARNING_ROUNDS if self._expected_dear else FIRST_PROBE

    @property
    def gamma(self) -> int:
        """The most that `keep_drafting` may allow in the coming round."""
        if self.minimum:
            return self.maximum
        if not self.verify.plain_known:
            return 0
        if self._learning:
            return self.maximum
        if self._pays():
            return 0 if self._doubtful() else self.maximum
        unsure = self._drafted_rounds == 1  # a first time may be a cold process's
        return int(unsure or self._plain_rounds >= self._probe_after)

    def keep_drafting(self, confidences: Sequence[float]) -> bool:
        """Whether one more token is worth its price."""
        count = len(confidences)
        if count < self.minimum:
            return True
        if self._learning:
            return count < (self.initial if self._drafted_rounds else FIRST_DRAFT)
        if count == 0:
            return True  # `gamma` has decided that this round drafts
        least = self._least.get(count)
        if least is None:
            least = self._least[count] = self._least_chance(count)
        return self.acceptance.chance(confidences) > least

    def _least_chance(self, count: int) -> float:
        """The chance to be reached from which token `count` + 1 is worth its price."""
        extra = self.verify.at(count + 1) - self.verify.at(count)
        price = self._rate() * (self._draft_ms() + extra)
        return price / self.acceptance.mean()

    def update(self, outcome: Outcome) -> None:
        """Learn acceptance, costs and the rate from a round."""
        n = outcome.num_drafted
        self._least.clear()
        self.verify.add(n, outcome.verify_ms)
        if n == 0:
            self._plain_rounds += 1
            if self._since_plain:
                later = min(LAST_PROBE, 2 * self._look_after)
                self._look_after = later if self._pays() else FIRST_LOOK
            self._since_plain = 0
            return
        paid = self._learning or self._pays()
        self._drafted_rounds += 1
        if not outcome.copied:
            self._draft_time = self._draft_time or RunningTime(self._draft_ms())
            self._draft_time.add(outcome.draft_ms / n)
        self.acceptance.add(outcome.confidences, outcome.num_accepted)
        self._hopeful = self._may_yet_pay()
        self._tokens = RATE_MEMORY * self._tokens + outcome.num_accepted + 1
        self._ms = RATE_MEMORY * self._ms + outcome.draft_ms + outcome.verify_ms
        self._plain_rounds = 0
        self._since_plain += 1
        if self._pays():
            self._probe_after = FIRST_PROBE
        elif not paid:
            later = min(LAST_PROBE, 2 * self._probe_after)
            hopeful = self._hopeful and not self._expected_dear
            self._probe_after = later if hopeful else RARE_PROBE

    @property
    def _learning(self) -> bool:
        return self._drafted_rounds < LEARNING_ROUNDS and (
            not self.verify.plain_known or self._hopeful
        )

    def _may_yet_pay(self) -> bool:
        """Whether a drafted token would, if it was accepted as often as can be hoped for.

        What verification adds is left out: its first time, in a cold process, may be any multiple.
        """
        return self._draft_ms() < HOPE * self.verify.at(0)

    def _draft_ms(self) -> float:
        """Per drafted token: measured, or expected."""
        timed = self._draft_time
        return self.draft_cost * self.verify.at(0) if timed is None else timed.ms

    def _doubtful(self) -> bool:
        """Whether a plain step should be timed again before drafting goes on."""
        return self._since_plain >= self._look_after and not self._has_gained(DOUBTFUL)

    def _has_gained(self, times: float) -> bool:
        """Whether drafted rounds have been more than so many times as fast as plain steps."""
        return self._tokens * self.verify.at(0) > times * self._ms

    def _pays(self) -> bool:
        """Whether any block size promises `WORTH` over plain steps, or drafting has been worth it.

        A block of g promises (1 + a + ... + a^g) tokens in g draft steps and v(g) (Theorem 3.8 of
        arXiv:2211.17192). Asked in every round, so it ends where no further token can be worth its
        own draft step: the chance to reach one only falls, and v never does.
        """
        if not self.verify.plain_known:
            return True
        if self._has_gained(WORTH):
            return True
        plain, mean, draft = self.verify.at(0), self.acceptance.mean(), self._draft_ms()
        expected, reached = 1.0, mean
        for gamma in range(1, self.maximum + 1):
            if reached * plain <= draft:
                return False
            expected += reached
            spent = gamma * draft + self.verify.at(gamma)
            if expected * plain > WORTH * spent:
                return True
            reached *= mean
        return False

    def _rate(self) -> float:
        """lambda: tokens per ms, of plain steps or of drafted rounds, whichever is better."""
        plain = 1.0 / self.verify.at(0) if self.verify.plain_known else 0.0
        return max(plain, self._tokens / self._ms if self._ms > 0 else 0.0)
