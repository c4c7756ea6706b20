from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from gnnrag.batching import MicroBatcher, Worker


class Squares:
    """Squares numbers, refuses negative ones, remembers its batches."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()
        self.seconds = seconds

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        if any(i < 0 for i in items):
            raise ValueError(f"negative: {[i for i in items if i < 0]}")
        return [i * i for i in items]


def test_each_gets_its_own_result_in_order() -> None:
    work = Squares()

    async def go() -> list[list[int]]:
        batcher = MicroBatcher(work, max_batch=4)
        return await asyncio.gather(*(batcher([i, i + 100]) for i in range(10)))

    assert asyncio.run(go()) == [[i * i, (i + 100) ** 2] for i in range(10)]
    assert sorted(i for b in work.batches for i in b) == sorted([*range(10), *range(100, 110)])
    assert max(map(len, work.batches)) == 4 and len(work.batches) == 5, "ready items share batches"
    assert threading.get_ident() not in work.threads and len(work.threads) == 1


def test_what_comes_while_a_batch_is_computed_makes_the_next_one() -> None:
    work = Squares(seconds=0.05)

    async def go() -> None:
        batcher = MicroBatcher(work)
        first = asyncio.create_task(batcher([1]))
        await asyncio.sleep(0.02)
        await asyncio.gather(first, *(batcher([i]) for i in (2, 3, 4)))

    asyncio.run(go())
    assert work.batches == [[1], [2, 3, 4]]


def test_one_failing_item_does_not_fail_its_neighbours() -> None:
    work = Squares()

    async def go() -> list[Any]:
        batcher = MicroBatcher(work)
        return await asyncio.gather(batcher([1, 3]), batcher([-2]), batcher([4]), return_exceptions=True)

    good, bad, four = asyncio.run(go())
    assert (good, four) == ([1, 9], [16])
    assert isinstance(bad, ValueError) and str(bad) == "negative: [-2]"


def test_a_batcher_works_again_after_a_failure_and_in_another_event_loop() -> None:
    batcher = MicroBatcher(Squares())
    with pytest.raises(ValueError, match="negative"):
        asyncio.run(batcher([-1]))
    assert asyncio.run(batcher([3])) == [9]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("results", [[], [1, 2, 3]])
def test_a_wrong_number_of_results_is_an_error_and_no_deadlock(results: list[int]) -> None:
    with pytest.raises(ValueError, match=f"{len(results)} results for a batch of 1"):
        asyncio.run(MicroBatcher(lambda items: results)([1, 2]))


def test_one_who_gives_up_is_left_out() -> None:
    work = Squares(seconds=0.1)

    async def go() -> list[int]:
        batcher = MicroBatcher(work)
        first = asyncio.create_task(batcher([1]))
        await asyncio.sleep(0.01)
        gives_up, stays = asyncio.create_task(batcher([2])), asyncio.create_task(batcher([3]))
        await asyncio.sleep(0.01)
        gives_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gives_up
        await first
        return await stays

    assert asyncio.run(go()) == [9]
    assert work.batches == [[1], [3]]


def test_cancelled_in_the_middle_of_its_batch() -> None:
    work = Squares(seconds=0.05)

    async def go() -> list[int]:
        batcher = MicroBatcher(work)
        gives_up, stays = asyncio.create_task(batcher([2])), asyncio.create_task(batcher([3]))
        await asyncio.sleep(0.02)
        gives_up.cancel()
        result = await stays
        return [*result, *await batcher([5])]

    assert asyncio.run(go()) == [9, 25]


def test_nothing_asked() -> None:
    assert asyncio.run(MicroBatcher(Squares())([])) == []


def test_a_worker_leaves_the_event_loop_free() -> None:
    order: list[str] = []

    async def go() -> int:
        worker = Worker()
        free = asyncio.Event()

        async def others() -> None:
            order.append("loop")
            free.set()

        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(others()))
        waiting = threading.Event()
        job = asyncio.ensure_future(worker(lambda: (waiting.wait(5), order.append("job"), threading.get_ident())[2]))
        await free.wait()
        waiting.set()
        with pytest.raises(ValueError, match="bad"):
            await worker(lambda: int("bad"))
        return await job

    assert asyncio.run(go()) != threading.get_ident() and order == ["loop", "job"]


def test_what_waits_when_it_is_closed_is_answered_and_so_is_what_comes_later() -> None:
    release, work = threading.Event(), Squares()

    def slow(items: Sequence[int]) -> list[int]:
        release.wait(10)
        return work(items)

    async def go() -> list[list[int]]:
        batcher = MicroBatcher(slow, max_batch=1)
        waiting = asyncio.gather(batcher([1]), batcher([2]))
        await asyncio.sleep(0.05)  # the first batch is at work, the second one waits
        batcher.close()
        release.set()
        return [*await waiting, await batcher([3])]

    assert asyncio.run(asyncio.wait_for(go(), 10)) == [[1], [4], [9]]
