"""CPU and memory over a run, from samples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from clusters import processes
from harness.waiting import wait_until
from load import usage
from load.usage import ProcessSample, Sample, Sampler


def sample(at: float, busy: float, *, steal: float = 0.0, **found: ProcessSample) -> Sample:
    """Of a machine with two cores, which has two seconds of CPU time per second."""
    return Sample(at, busy, steal, 2.0 * at, {name.replace("_", "-"): each for name, each in found.items()})


def test_the_machines_share_and_its_busiest_ten_seconds() -> None:
    # 10 s idle, 10 s with both cores busy, 20 s with half of one core.
    busy = {0: 0.0, 5: 0.0, 10: 0.0, 15: 10.0, 20: 20.0, 30: 25.0, 40: 30.0}
    samples = [sample(float(at), used) for at, used in busy.items()]
    host = usage.host(samples, 0.0, 40.0)
    assert host is not None
    assert (host.cpu, host.cpu_peak, host.seconds, host.steal) == (30 / 80, 1.0, 40.0, 0.0)
    quiet = usage.host(samples, 20.0, 40.0)
    assert quiet is not None
    # The sample before belongs to it as well: what was between is of both times.
    assert (quiet.seconds, quiet.cpu) == (25.0, 20 / 50)


def test_what_the_hypervisor_took_is_not_the_machines_own_work() -> None:
    host = usage.host([sample(0, 0.0), sample(10, 5.0, steal=10.0)], 0.0, 10.0)
    assert host is not None
    assert (host.cpu, host.steal) == (0.25, 0.5)


def test_one_sample_says_nothing() -> None:
    assert usage.host([sample(0, 0.0)], 0.0, 10.0) is None
    assert usage.host([], 0.0, 10.0) is None
    assert usage.components([], 0.0, 10.0) == []


def test_a_component_that_was_restarted_keeps_what_it_used() -> None:
    samples = [
        sample(0, 0.0, etcd=ProcessSample(7, 100, 5.0), kwok=ProcessSample(9, 50, 1.0)),
        sample(1, 0.0, etcd=ProcessSample(7, 300, 6.0), kwok=ProcessSample(9, 50, 1.0)),
        sample(2, 0.0, kwok=ProcessSample(9, 50, 1.5)),
        sample(3, 0.0, etcd=ProcessSample(8, 200, 0.5), kwok=ProcessSample(9, 50, 1.5)),
    ]
    etcd, kwok = usage.components(samples, 0.0, 3.0)
    assert (etcd.name, etcd.cpu_seconds, etcd.restarts) == ("etcd", 1.5, 1)
    assert (etcd.rss_start, etcd.rss_end, etcd.rss_peak) == (100, 200, 300)
    assert (kwok.name, kwok.cpu_seconds, kwok.restarts) == ("kwok", 0.5, 0)
    assert usage.memory(samples, "etcd") == [(0, 100), (1, 300), (3, 200)]


@pytest.fixture
def busy(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process of a cluster that uses the CPU; it has become the program that it was to be."""
    process = processes.spawn(
        [sys.executable, "-c", "while True: pass"],
        cluster_id="paper-usage",
        component="serve/bundled/gpu",
        log=tmp_path / "log",
    )
    wait_until(
        lambda: any(found.program.startswith("python") for found in processes.find("paper-usage")),
        60,
        "the process to be seen",
    )
    return process


def test_a_clusters_processes_are_sampled(busy: subprocess.Popen[bytes]) -> None:
    with Sampler("paper-usage", interval=0.05) as sampler:
        wait_until(lambda: len(sampler.samples) > 12, 60, "samples", interval=0.05)
        busy.kill()
        busy.wait()
        gone = len(sampler.samples)
        wait_until(lambda: len(sampler.samples) > gone + 2, 60, "samples without it", interval=0.05)
    samples = sampler.samples
    (found,) = usage.components(samples, samples[0].at, samples[-1].at)
    assert found.name == "serve/bundled/gpu"
    assert 0 < found.cpu_seconds < 5
    assert found.rss_peak > 1_000_000
    assert samples[-1].processes == {}
    host = usage.host(samples, samples[0].at, samples[-1].at)
    assert host is not None
    assert 0 < host.cpu <= 1
    assert host.cores == psutil.cpu_count() == os.cpu_count()
