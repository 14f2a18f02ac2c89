"""The team of threads: every block once, errors come out, and nobody waits for a late helper."""

import itertools
import threading

import pytest

from lucid_gpu.devices.threads import Team


def taking(blocks, take):
    """Work as kernels write it: blocks from a shared counter."""
    counter = itertools.count()

    def work():
        for number in counter:
            if number >= blocks:
                return
            take(number)

    return work


def test_every_block_is_taken_once():
    taken = []
    Team(3).run(taking(100, taken.append))
    assert sorted(taken) == list(range(100))


def test_a_helper_that_has_not_begun_is_not_waited_for():
    team, free, begun = Team(2), threading.Event(), threading.Event()

    def occupy():
        begun.set()
        free.wait()

    busy = team.begin(occupy)
    begun.wait()
    taken = []
    team.run(taking(10, taken.append))  # the helper is busy all the while
    assert taken == list(range(10))
    free.set()
    assert busy.end() is None
    team.run(taking(20, taken.append))  # and of use again
    assert sorted(taken) == sorted([*range(10), *range(20)])


def test_errors_of_helpers_come_out():
    both = threading.Barrier(2)
    caller = threading.get_ident()

    def work():
        both.wait()  # so that the helper takes part
        if threading.get_ident() != caller:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Team(2).run(work)


def test_the_caller_s_error_comes_out_too():
    with pytest.raises(KeyError):
        Team(1).run({}.popitem)
