"""Speed and memory of relational message passing against the naive layer on MetaQA's graph, in the same run.

python benchmarks/bench_gnn.py --kb ../shared/data/metaqa/kb.txt
python benchmarks/bench_gnn.py --kb ../shared/data/metaqa/kb.txt --device cuda

On a CPU: aggregation, forward and with backward, time of the process (threads added up) and peak memory above the
inputs; exits with an error where a ratio misses its bound. With `--device cuda`: aggregation and whole training steps
at widths 64 and 512 and batches 8 to 256, with memory, achieved bandwidth, and its share of what a copy on the same
device reaches.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from running import run
from torch import Tensor

from gnnrag.gnn import GNNConfig, LossConfig
from gnnrag.gnn.layers import relational_sum
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.stages import Candidates, retrieval_loss
from gnnrag.gnn.subgraph import GraphBatch, RelationalIndex

Work = Callable[[], object]


def main() -> None:
    """Print the table; exit with an error if a CPU ratio misses its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kb", type=Path, required=True, help="lines of head|relation|tail")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--widths", type=int, nargs="+", default=None, help="default: 64; on a GPU 64 and 512")
    parser.add_argument("--batches", type=int, nargs="+", default=None, help="default: 8; on a GPU 8 to 256")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions; the fastest counts, for all")
    parser.add_argument("--min-time", type=float, default=3.0, help="fail below this ratio of times, on a CPU")
    parser.add_argument("--min-memory", type=float, default=5.0, help="fail below this ratio of memory, on a CPU")
    args = parser.parse_args()
    edges, names = read_edges(args.kb)
    num_nodes, num_relations = names
    index = RelationalIndex(*edges, num_nodes)
    start = time.perf_counter()
    pairs = index.by_target.num_pairs, index.by_source.num_pairs
    print(f"{num_nodes:,} nodes, {index.num_edges:,} edges, {num_relations} relation ids, {pairs[0]:,} pairs")
    seconds, threads = time.perf_counter() - start, torch.get_num_threads()
    print(f"index sorted in {seconds:.2f} s; torch {torch.__version__}, {threads} threads")
    if args.device == "cuda":
        on_gpu(index, num_relations, args.widths or [64, 512], args.batches or [8, 16, 32, 64, 128, 256], args.rounds)
        return
    missed = []
    for width in args.widths or [64]:
        for batch in args.batches or [8]:
            missed += on_cpu(index, num_relations, (width, batch), args)
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def read_edges(path: Path) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int]]:
    """Both directions of the distinct triples; number of nodes, and of relation ids."""
    nodes: dict[str, int] = {}
    relations: dict[str, int] = {}
    triples = set()
    for line in path.read_text("utf-8").splitlines():
        head, relation, tail = line.split("|")
        triples.add(
            (
                nodes.setdefault(head, len(nodes)),
                relations.setdefault(relation, len(relations)),
                nodes.setdefault(tail, len(nodes)),
            )
        )
    head, relation, tail = torch.tensor(sorted(triples)).T
    both = torch.cat([head, tail]), torch.cat([relation, relation + len(relations)]), torch.cat([tail, head])
    return both, (len(nodes), 2 * len(relations))


def aggregation(
    index: RelationalIndex, num_relations: int, shape: tuple[int, int], device: str
) -> Callable[[str], tuple[Work, Work]]:
    """Return a maker of (forward, forward and backward) for a back end, on states of (width, batch)."""
    width, batch = shape
    torch.manual_seed(0)
    x = torch.randn(index.num_nodes, batch, width, device=device, requires_grad=True)
    rel = torch.randn(num_relations, width, device=device, requires_grad=True)
    cotangent = torch.randn_like(x)

    def make(backend: str) -> tuple[Work, Work]:
        def forward() -> object:
            with torch.no_grad():
                return relational_sum(x, rel, index, backend=backend)

        def both() -> object:
            return torch.autograd.grad(relational_sum(x, rel, index, backend=backend), (x, rel), cotangent)

        return forward, both

    return make


# ------------------------------------------------------------------------------------------------------------ CPU
def on_cpu(index: RelationalIndex, num_relations: int, shape: tuple[int, int], args: argparse.Namespace) -> list[str]:
    """Compare both back ends; return what missed its bound."""
    make = aggregation(index, num_relations, shape, "cpu")
    works = {name: make(name) for name in ("naive", "bag")}
    seconds = {(name, i): float("inf") for name in works for i in (0, 1)}
    for _ in range(args.rounds):  # alternate, so that a busy machine slows both
        for name, pair in works.items():
            for i, work in enumerate(pair):
                seconds[name, i] = min(seconds[name, i], cpu_seconds(work))
    memory = {(name, i): peak_memory(work) for name, pair in works.items() for i, work in enumerate(pair)}
    naive, ours = works["naive"][1](), works["bag"][1]()
    error = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(naive, ours, strict=True))  # type: ignore
    print(f"width {shape[0]}, batch {shape[1]}; largest relative difference of the gradients {error:.1e}")
    missed = []
    for i, what in enumerate(("forward", "forward and backward")):
        times, sizes = [seconds[n, i] for n in works], [memory[n, i] for n in works]
        print(
            f"  {what:22} naive {times[0] * 1e3:7.0f} ms {sizes[0]:7.0f} MB   bag {times[1] * 1e3:7.0f} ms "
            f"{sizes[1]:7.0f} MB   ratio {times[0] / times[1]:4.1f} and {sizes[0] / sizes[1]:4.1f}"
        )
        if times[0] / times[1] < args.min_time:
            missed.append(f"{what} at width {shape[0]}: time ratio {times[0] / times[1]:.1f} < {args.min_time:g}")
        if sizes[0] / sizes[1] < args.min_memory:
            missed.append(f"{what} at width {shape[0]}: memory ratio {sizes[0] / sizes[1]:.1f} < {args.min_memory:g}")
    return missed


def cpu_seconds(work: Work) -> float:
    """Processor time of this process, all threads: what a busy machine leaves alone."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def peak_memory(work: Work) -> float:
    """Largest growth of resident memory during a call, in MB, sampled every millisecond."""
    work()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before, peak, running = resident(), 0, True

    def watch() -> None:
        nonlocal peak
        while running:
            peak = max(peak, resident())
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    work()
    running = False
    thread.join()
    return (peak - before) / 1e6


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# ------------------------------------------------------------------------------------------------------------ GPU
def on_gpu(index: RelationalIndex, num_relations: int, widths: list[int], batches: list[int], rounds: int) -> None:
    """Print times, memory and bandwidth of aggregation and of whole training steps."""
    if not torch.cuda.is_available():
        sys.exit("--device cuda: this machine has no CUDA device")
    bandwidth = copy_bandwidth(rounds)
    print(f"{torch.cuda.get_device_name()}; a copy reaches {bandwidth:,.0f} GB/s")
    index = index.to("cuda")
    for width in widths:
        for batch in batches:
            make = aggregation(index, num_relations, (width, batch), "cuda")
            for backend in ("naive", "bag"):
                measure_aggregation(make(backend), (index, width, batch), (backend, bandwidth), rounds)
            del make
            for backend in ("naive", "auto"):
                measure_step(index, num_relations, (width, batch), backend, rounds)


def measure_aggregation(
    works: tuple[Work, Work], sizes: tuple[RelationalIndex, int, int], against: tuple[str, float], rounds: int
) -> None:
    """Print one line: the least traffic is to read each state once and write each sum once, twice over for backward."""
    index, width, batch = sizes
    backend, bandwidth = against
    line = f"width {width:3} batch {batch:3} {backend:6}"
    state = 4 * index.num_nodes * width * batch / 1e9
    gathered = 4 * index.num_edges * width * batch / 1e9
    for what, work, factor in (("forward", works[0], 1), ("fwd+bwd", works[1], 2)):
        try:
            seconds, megabytes = cuda_seconds(work, rounds)
        except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
            print(f"{line} {what}: {str(error).splitlines()[0][:80]}")
            return
        reached = factor * (gathered + state) / seconds  # every edge reads a state, every node writes one
        roofline = factor * 2 * state / bandwidth
        line += (
            f"  {what} {seconds * 1e3:8.2f} ms {megabytes:7.0f} MB {reached:6.0f} GB/s = {reached / bandwidth:4.0%}"
            f" of copy, {seconds / roofline:5.1f} x roofline"
        )
    print(line)


def measure_step(index: RelationalIndex, num_relations: int, shape: tuple[int, int], backend: str, rounds: int) -> None:
    """Print the time of an inference pass and of a training step, in float32 and bfloat16."""
    width, batch = shape
    torch.manual_seed(0)
    layers = 6 if width >= 512 else 4
    config = GNNConfig(mode="entity", dim=width, layers=layers, fusion="none", node_text=False)
    model = QueryGNN(config, 768, backend=backend, checkpointing=True).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-4)
    seeds = torch.zeros(index.num_nodes, batch, device="cuda")
    seeds[torch.randint(index.num_nodes, (batch,), device="cuda"), torch.arange(batch, device="cuda")] = 1
    targets = (torch.rand_like(seeds) < 1e-4).float()
    data = GraphBatch(
        index.source, index.relation, index.target, index.num_nodes,
        torch.randn(num_relations, 768, device="cuda"), torch.randn(batch, 768, device="cuda"), seeds, index=index,
    )  # fmt: skip

    def forward() -> object:
        with torch.inference_mode():
            return model(data)

    def step() -> object:
        retrieval_loss(Candidates.of(model(data), targets), LossConfig()).backward()
        optimiser.step()
        optimiser.zero_grad()
        return None

    line = f"width {width:3} batch {batch:3} {backend:6} {layers} layers"
    for precision in (torch.float32, torch.bfloat16):
        try:
            with torch.autocast("cuda", precision, enabled=precision != torch.float32):
                infer, train = cuda_seconds(forward, rounds), cuda_seconds(step, rounds)
        except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
            print(f"{line} {precision}: {str(error).splitlines()[0][:80]}")
            continue
        name = str(precision).removeprefix("torch.")
        line += f"  {name}: forward {infer[0] * 1e3:.1f} ms {infer[1]:.0f} MB"
        line += f", step {train[0] * 1e3:.1f} ms {train[1]:.0f} MB"
    print(line)


def cuda_seconds(work: Work, rounds: int) -> tuple[float, float]:
    """Best time by the device's clock, and memory above the inputs in MB."""
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, best = torch.cuda.memory_allocated(), float("inf")
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return best, (torch.cuda.max_memory_allocated() - before) / 1e6


def copy_bandwidth(rounds: int) -> float:
    """GB/s of reading and writing one gigabyte: the roofline of everything that only moves data."""
    source = torch.empty(2**28, device="cuda")
    target = torch.empty_like(source)
    return 2 * 4 * 2**28 / 1e9 / cuda_seconds(lambda: target.copy_(source), max(rounds, 5))[0]


if __name__ == "__main__":
    run(main, __doc__)
