"""Whether the experiments can fail: a build with deliberate bugs, each a switch, and the experiment that must notice it."""

from .cache import cache_loss, refused_write
from .common import CannotRun, Failed, say
from .oracle import Tally
from .power import power_cuts
from .trouble import rewritten_log, second_writer


def cuts(shape, count=12):
    def experiment(bench, tally, dice, mutant):
        return power_cuts(bench, tally, dice, cuts=count, shape=shape, seconds=0.15, mutant=mutant) > 0

    return experiment


def states(kind, shape="large"):
    def experiment(bench, tally, dice, mutant):
        return cache_loss(bench, tally, dice, states=40, shape=shape, seconds=0.8, mutant=mutant, kinds=(kind,)) > 0

    return experiment


def refusal(bench, tally, dice, mutant):
    return not refused_write(bench, tally, dice, mutant=mutant)


def second(bench, tally, dice, mutant):
    second_writer(bench, tally, dice, mutant=mutant)
    return tally.counts["wrong"] > 0


def rewrite(bench, tally, dice, mutant):
    return not rewritten_log(bench, tally, dice, mutant=mutant)


# Name of the switch, what must notice it, and by which figures, of which one is enough.
MUTANTS = (
    ("ack-before-sync", cuts("small"), ("lost",)),
    # What is gone may be a segment, or a mark that the verifier misses before it gets as far.
    ("skip-directory-sync", states("segment begun", shape="small"), ("lost", "invalid")),
    ("retry-failed-sync", refusal, ("retried",)),
    ("frame-without-checksum", states("torn"), ("invalid",)),
    ("key-outside-frame", cuts("small"), ("wrong",)),
    ("mark-without-hash", rewrite, ("wrong",)),
    ("lock-file-only", second, ("wrong",)),
)


def mutants(bench, dice, only=None):
    """Which were tried and which caught. That the same experiments hold without a mutant, the other commands show."""
    chosen = [mutant for mutant in MUTANTS if only in (None, mutant[0])]
    tried, caught = [], []
    for name, experiment, figures in chosen:
        tally, noticed = Tally(), False
        try:
            noticed = experiment(bench, tally, dice, name)
        except Failed:
            noticed = True
        except CannotRun as error:
            print("skipped mutant %s: %s" % (name, error), flush=True)
            continue
        tried.append(name)
        found = {figure: len(tally.lost) if figure == "lost" else tally.counts[figure] for figure in figures}
        is_caught = noticed and any(found.values())
        if is_caught:
            caught.append(name)
        words = "caught" if is_caught else "NOT CAUGHT"
        by = ", ".join("%s=%d" % pair for pair in found.items())
        say("mutant %s: %s (%s) %s" % (name, words, by, tally.line()))
        if not is_caught:
            tally.say_problems()
    return tried, caught
