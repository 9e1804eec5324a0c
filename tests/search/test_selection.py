"""Options of `mcts`: priors and progressive widening."""

from __future__ import annotations

import math

import pytest
from support.driving import TextPolicy, drive

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.policy import World
from treeforge.sample import Sample
from treeforge.search.selection import Selector
from treeforge.tree import TreeBuilder


def siblings(*steps):
    """A builder whose root has children of (multiplicity, tokens, log-probability), and a selector told of them."""

    def opened(**search):
        builder = TreeBuilder()
        selector = Selector(builder, SearchConfig(**search))
        for i, (multiplicity, tokens, logprob) in enumerate(steps):
            row = builder.add(0, f"{i}\n", token_count=tokens, logprob=logprob)
            builder.multiplicity[row] = multiplicity
        selector.opened(0, list(range(1, builder.size)))
        return builder.prior[1:]

    return opened


def test_priors():
    opened = siblings((3.0, 10, -5.0), (1.0, 2, -3.0))
    assert opened() == [0.75, 0.25]
    assert opened(prior="uniform") == [0.5, 0.5]
    better = math.exp(-0.5) / (math.exp(-0.5) + math.exp(-1.5))
    assert opened(prior="logprob") == pytest.approx([better, 1 - better]), "by mean log-probability a token"
    sharper = 1 / (1 + math.exp(-10))
    assert opened(prior="logprob", prior_temperature=0.1) == pytest.approx([sharper, 1 - sharper])


def test_an_unknown_log_probability_leaves_the_share_of_samples():
    assert siblings((3.0, 10, -5.0), (1.0, 2, math.nan))(prior="logprob") == [0.75, 0.25]


def test_extreme_log_probabilities_are_priors_too():
    prior = siblings((1.0, 1, -1e6), (1.0, 1, -1e5), (1.0, 0, 0.0))(prior="logprob")
    assert prior == [0.0, 0.0, 1.0]


def expansions(waves):
    found: dict[str, int] = {}
    for wave in waves:
        for request in wave:
            found[request.prefix] = found.get(request.prefix, 0) + 1
    return found


@pytest.mark.parametrize("power", [0.3, 0.7])
def test_widening_gives_a_node_children_by_its_visits(power):
    world = World(branching=200, duplicate_rate=0)
    tree, waves, _ = drive(
        BudgetConfig(simulations=60), world=world, wave=1, children=2, widening=1.5, widening_power=power
    )
    frozen = tree.builder.freeze()
    asked = expansions(waves)
    assert asked[""] > 1
    for row in range(frozen.size):
        drawn = 2 * asked.get(tree.builder.prefix(row), 0)
        if drawn:
            before = int(frozen.visits[row])
            assert drawn < 1.5 * before**power + 2, "one request more than were allowed at most"
    assert frozen.multiplicity[frozen.parent == 0].sum() == 2 * asked[""]


def test_more_widening_makes_a_wider_tree():
    shapes = []
    for widening in (0.0, 1.0, 3.0):
        tree, waves, _ = drive(BudgetConfig(simulations=60), world=World(branching=200), widening=widening)
        shapes.append((expansions(waves)[""], -max(tree.builder.depth)))
    assert shapes[0][0] == 1
    assert shapes[0][0] < shapes[1][0] < shapes[2][0]
    assert shapes[0][1] <= shapes[1][1] <= shapes[2][1], "and a shallower one"


@pytest.mark.parametrize("sample", ["rollout", "step"])
def test_widening_over_a_policy_that_repeats_itself_ends(sample):
    policy = TextPolicy(lambda request, i: "a\nb\nThe answer is 0."[len(request.prefix) :])
    tree, waves, ended = drive(BudgetConfig(simulations=0), policy=policy, widening=3.0, sample=sample)
    assert ended == ("done", "every branch is closed")
    assert 3 <= sum(map(len, waves)) < 1000
    assert tree.builder.size == 4


def test_each_expansion_of_a_node_has_its_own_seed():
    _, waves, _ = drive(BudgetConfig(simulations=50), widening=3.0, wave=4)
    requests = [request for wave in waves for request in wave]
    assert len({request.seed for request in requests}) == len(requests)


def test_log_probabilities_of_the_policy_steer_the_search():
    class Sure:
        """Of two first steps that end alike, one is much more likely; both are sampled equally often."""

        def __init__(self):
            self.identity = {"backend": "sure"}

        def sample_now(self, request):
            samples = []
            for i in range(request.n):
                first, logprob = (("likely\n", -0.1), ("unlikely\n", -9.0))[i % 2]
                text = f"{first}{len(request.prefix)}-{i}\nThe answer is 1."
                samples.append(Sample(text, "stop", 3, logprob - 2, (1, 1, 1), (logprob, -1.0, -1.0)))
            return tuple(samples)

    visits = {}
    for prior in ("share", "logprob"):
        tree, _, _ = drive(BudgetConfig(simulations=16), policy=Sure(), prior=prior, wave=1, max_depth=5)
        visits[prior] = tree.builder.visits[1:3]
    assert visits["logprob"][0] > 2 * visits["logprob"][1]
    assert visits["share"][0] < 2 * visits["share"][1]
