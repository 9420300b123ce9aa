"""The arms of a round at the same time, each in a process of its own: above simulated disks one run alone leaves most of
a machine idle, so a round takes as long as its slowest arm. They warm up until each is steady, and are measured in
the same seconds, so whatever the machine does in them is done to all. One run is in `trial`; runs one after the other
are in the main module.
"""

import multiprocessing
import os
import threading
import time
import traceback

import trial
from processes import SIGNALS, Failure, Interrupted

# Copies, starts and steps of the others are waited for so long.
MEETING_S = 1200
FORK = multiprocessing.get_context("fork")


class Alone:
    """What a run without others asks: nobody is waited for."""

    def begin(self):
        pass

    def all_say(self, ready):
        return ready

    def ended(self):
        pass


class Together:
    """Where the runs of a round wait for each other, as a process of one of them sees it."""

    def __init__(self, barrier, said, place):
        self.barrier, self.said, self.place = barrier, said, place

    def begin(self):
        """Waits until all are there."""
        try:
            self.barrier.wait(MEETING_S)
        except threading.BrokenBarrierError:
            raise Failure("another arm of the round has failed") from None

    ended = begin

    def all_say(self, ready):
        """Whether every run says so; each asks as often as the others."""
        self.said[self.place] = ready
        self.begin()
        everyone = all(self.said)
        # Nobody says the next before all have read this.
        self.begin()
        return everyone


def round_of(options, runs, check):
    """Makes the runs of a round: their results, or a failure if one of them failed."""
    barrier, said = FORK.Barrier(len(runs)), FORK.Array("b", len(runs))
    places = [FORK.Pipe(duplex=False) for _ in runs]
    children = []
    began = time.monotonic()
    try:
        for place, (run, (_, sender)) in enumerate(zip(runs, places)):
            together = Together(barrier, said, place)
            child = FORK.Process(target=one, args=(options, run, check, together, sender))
            with SIGNALS.deferred():
                child.start()
                children.append(child)
            # Whether the child is there is known by the end of the pipe.
            sender.close()
        answers = [received(receiver) for receiver, _ in places]
    except BaseException:
        end(children)
        raise
    for child in children:
        child.join()
    failed = [f"{run.arm.name}: {answer}" for run, answer in zip(runs, answers) if isinstance(answer, str)]
    if failed:
        raise Failure("; ".join(failed))
    for answer in answers:
        # A run's part of the time of its round.
        answer["took_s"]["all"] = (time.monotonic() - began) / len(runs)
    return answers


def end(children):
    """Ends processes in order. One that was just forked loses a signal, so they are asked again; one that is ending
    already goes on with that."""
    with SIGNALS.deferred():
        while alive := [child for child in children if child.is_alive()]:
            for child in alive:
                child.terminate()
            alive[0].join(1)


def received(receiver):
    try:
        return receiver.recv()
    except EOFError:
        return "its process has ended"


def one(options, run, check, together, sender):
    """The process of a run: what it sends is the result, or why there is none."""
    try:
        # It was forked while they were held back.
        SIGNALS.depth = 0
        SIGNALS.deliver()
        home = options.work / "run" / str(together.place)
        sender.send(trial.trial(options, run.experiment, run.arm, run.number, check, home, together))
    except Failure as failure:
        together.barrier.abort()
        sender.send(str(failure))
    except BaseException as error:
        together.barrier.abort()
        if not isinstance(error, Interrupted):
            traceback.print_exc()
        os._exit(1)
