"""Policies written in Python: simulated like others, and checked like others."""

import os
import signal
import threading
import time

import pytest

import policies
import undercroft as uc


@pytest.mark.parametrize("placement", ["access", "eviction", "gl"])
@pytest.mark.parametrize("ours, engine", [(policies.Lru, "lru"), (policies.GhostFifo, "fifo")])
def test_it_counts_as_the_engine_s_own(small, ours, engine, placement):
    def levels(policy):
        report = uc.simulate(small, l1="20blk:lru", l2=("60blk", policy), placement=placement)
        for level in report["levels"]:
            level.pop("policy")
        return report["levels"]

    assert levels(ours) == levels(engine)
    assert levels(ours)[1]["evictions"] > 0


def test_reports_name_the_class(small):
    assert uc.simulate(small, l1=("9blk", policies.Lru))["levels"][0]["policy"] == "Lru"


@pytest.mark.parametrize("policy", [policies.Lru, policies.GhostFifo])
def test_good_policies_keep_the_contract(policy):
    seed = int(os.environ.get("UNDERCROFT_SEED", "0"))
    uc.check_policy(policy, first_seed=seed, seeds=20)


class Silent(policies.Lru):
    def admit(self, block):
        super().admit(block)


class Forgetful(policies.Lru):
    def __contains__(self, block):
        return block != 3 and super().__contains__(block)


class Mru(policies.Lru):
    def admit(self, block):
        victim = self.order.popitem()[0] if len(self.order) == self.capacity else None
        self.order[block] = None
        return victim


class Failing(policies.Lru):
    def admit(self, block):
        return 1 // (5 - block) * 0 or super().admit(block)


class Asserting(policies.Lru):
    def validate(self):
        assert len(self.order) < 2, "two blocks are one too many"


@pytest.mark.parametrize(
    "policy, error, told",
    [
        (Silent, uc.ContractError, "is no longer resident, and was not reported"),
        (Forgetful, uc.ContractError, "list of residents"),
        (Mru, uc.ContractError, "its victim was"),
        (Failing, ZeroDivisionError, "division"),
        (Asserting, uc.ContractError, "one too many"),
        (uc.Policy, NotImplementedError, "Policy"),
    ],
)
def test_faults_are_found(policy, error, told):
    with pytest.raises(error, match=told) as raised:
        uc.check_policy(policy)
    if error is uc.ContractError:
        assert policy.__name__ in str(raised.value) and "seed" in str(raised.value)


def test_exceptions_of_a_policy_end_the_simulation(small):
    with pytest.raises(ZeroDivisionError) as raised:
        uc.simulate(small, l1=("30blk", Failing))
    assert any("test_policy" in str(entry.path) for entry in raised.traceback)
    with pytest.raises(ZeroDivisionError):
        uc.sweep(small, l2="30blk", policy=Failing)


class Liar(policies.Lru):
    def admit(self, block):
        super().admit(block)
        return block + 1


class Full(policies.Lru):
    def admit(self, block):
        self.order[block] = None


class Odd(policies.Lru):
    def admit(self, block):
        super().admit(block)
        return "all of them"


class Forgetting(policies.GhostFifo):
    def admit(self, block):
        return [*super().admit(block), (block, "forgotten")]


@pytest.mark.parametrize("options", [{"l1": 0}, {"l1": "20blk:lru", "l2": 0, "placement": "eviction"}, {"l1": 0, "l2": "60blk:mq"}])
@pytest.mark.parametrize(
    "policy, told",
    [
        (Liar, "which is not resident"),
        (Full, "31 blocks in a cache of 30"),
        (Odd, "expected None, a block"),
        (Forgetting, "which is not a ghost"),
    ],
)
def test_reports_that_cannot_be_true_end_the_simulation(small, policy, told, options):
    with pytest.raises(ValueError, match=told):
        uc.simulate(small, **{name: value or ("30blk", policy) for name, value in options.items()})


def interrupted(work):
    """Seconds from Ctrl-C to its exception."""
    at = []

    def interrupt():
        time.sleep(0.5)
        at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    # A shell that starts the tests in the background has them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
            pytest.fail("it ended before it was interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join()
    return time.monotonic() - at[0]


def test_ctrl_c_ends_a_long_simulation(recording):
    len(recording)

    def forever():
        for _ in range(1000):
            uc.simulate(recording, l1="16MiB:lru", l2="64MiB:mq", placement="eviction")

    # A machine under load is slow; without looks for signals nothing would end before the loop.
    assert interrupted(forever) < 5
    assert interrupted(lambda: uc.sweep(recording, l1="16MiB:lru", l2="1MiB..200MiB", placement="eviction")) < 5
